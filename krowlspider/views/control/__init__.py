"""Questions and orders of people, by telnet and over HTTP, and the live page that shows them."""

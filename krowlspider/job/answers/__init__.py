"""How requests end: failures, what a host is charged with, retries, robots.txt, outages."""

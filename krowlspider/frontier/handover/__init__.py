"""Hosts that leave for another frontier or come from one, in chunks of JSON."""

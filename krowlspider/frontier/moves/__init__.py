"""Hosts that move to and from other frontiers, in chunks of JSON."""

"""Hosts that change their owner: what is sent, what is received, and at which share of the loop."""

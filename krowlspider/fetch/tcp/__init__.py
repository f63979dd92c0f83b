"""Reach an address: attempts to connect, their failures, and the routes of this machine."""

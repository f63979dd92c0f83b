"""Shares: what several hosts have in common, and how many of them may be in flight at a time."""

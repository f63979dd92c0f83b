"""How politely a host is treated: the pace of its fetches, and what its robots.txt allows.

This room is pure: time and bytes are handed in, decisions are handed back.
"""

"""Decide how often a host is fetched and which of its paths robots.txt allows.

This package is pure: callers pass in time and bytes, and get decisions back.
"""

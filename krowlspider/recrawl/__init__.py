"""Decide when a page is fetched again, how it is asked for, and what its answer means.

This package is pure: callers pass in time and bytes, and get decisions back.
"""

"""Notices of a crawl to its operator: what is worth one, and how it is sent."""

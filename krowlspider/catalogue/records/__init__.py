"""Rows made of the records of a WARC file."""

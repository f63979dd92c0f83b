"""A mock web on loopback for whole-crawl tests: thousands of hosts served by one subprocess,
an oracle that knows what a polite crawler must fetch from them, and an audit of the request log.

`MockWeb` starts and stops it from a test; `python -m tests.mockweb --help` from a shell.
"""

from tests.mockweb.client import MockWeb
from tests.mockweb.graph import Graph
from tests.mockweb.log import Entry

__all__ = ["Entry", "Graph", "MockWeb"]

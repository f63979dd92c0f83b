"""A mock web on loopback for whole-crawl tests.

One subprocess serves thousands of hosts. An oracle computes what a polite crawler must fetch from
them, and an audit checks the request log. `MockWeb` runs the server in a test; in a shell, use
`python -m tests.mockweb --help`.
"""

from tests.mockweb.client import MockWeb
from tests.mockweb.graph import Graph
from tests.mockweb.log import Entry

__all__ = ["Entry", "Graph", "MockWeb"]

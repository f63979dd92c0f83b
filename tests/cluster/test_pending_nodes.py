"""The keys of pending nodes: whatever is in them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from krowlspider.cluster.register.lease import NodeInfo


@given(st.binary() | st.text().map(str.encode))
def test_node_info_of_any_bytes_is_read_or_empty(junk: bytes):
    NodeInfo.loads(junk)


def test_deeply_nested_node_info_is_empty():
    assert NodeInfo.loads(b'{"redis": ' + b"[" * 100_000) == NodeInfo()
    assert NodeInfo.loads(b'{"other": ' + b"[" * 100_000) == NodeInfo()

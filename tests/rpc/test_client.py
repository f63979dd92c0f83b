"""The client in Python, without a server."""

from __future__ import annotations

import socket

import pytest

from krowlspider.errors import KrowlError
from krowlspider.rpc.client import connect, results

grpc = pytest.importorskip("grpc")


@pytest.mark.parametrize(
    "files", [{"ca": "c", "cert": "a"}, {"ca": "c", "key": "a"}, {"cert": "a", "key": "b"}]
)
def test_files_that_are_not_all_there_are_refused(files: dict[str, str]) -> None:
    """gRPC would end the whole program, or the token go out without TLS."""
    with pytest.raises(KrowlError, match="need each other"), connect("127.0.0.1:1", "", **files):
        pass


def test_results_that_do_not_begin_are_not_waited_for() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with connect(address, "x") as crawl, pytest.raises(grpc.RpcError) as refused:
            next(results(crawl))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

"""The server of the mock web answers as its rules say, and logs what it sent."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.client
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.mockweb import Entry, Graph, MockWeb
from tests.mockweb.asking import BOUND_S, HOST, body, entry, get, spec, status, talk
from tests.mockweb.log import LogWriter, read_log
from tests.mockweb.protocol import Connection, Web
from tests.mockweb.reply import Reply
from tests.mockweb.spec import SpecSite

ROOT = Path(__file__).resolve().parents[2]


# --- the server -----------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order() -> None:
    """On a connection that is kept alive."""
    rules: list[dict[str, Any]] = [
        {"path": "/slow", "body": "slow", "latency": 0.05},
        {"path": "/fast", "body": "fast"},
    ]
    with MockWeb(spec=rules) as web:
        asked = "".join(
            f"GET {path} HTTP/1.1\r\nHost: a{end}\r\n\r\n"
            for path, end in (("/slow", ""), ("/fast", ""), ("/fast", "\r\nConnection: close"))
        )
        answered = talk(web, asked)
        assert answered.count(b"HTTP/1.1 200 OK\r\n") == 3
        assert answered.index(b"slow") < answered.index(b"fast")
        first, second, third = web.log()
        assert first.conn == second.conn == third.conn
        assert first.end - first.start >= 0.05
        assert second.end >= first.end


def test_framing_chunked_gzip_close_and_head() -> None:
    text = "word " * 1_000
    rules: list[dict[str, Any]] = [
        {"path": "/chunked", "body": text, "chunked": True},
        {"path": "/gzip", "body": text, "gzip": True},
        {"path": "/both", "body": text, "gzip": True, "chunked": True},
        {"path": "/close", "body": text, "close": True},
    ]
    with MockWeb(spec=rules) as web:
        assert b"Transfer-Encoding: chunked\r\n" in get(web, "/chunked")
        assert body(get(web, "/chunked")).startswith(b"3e8\r\nword ")
        assert body(get(web, "/chunked")).endswith(b"\r\n0\r\n\r\n")
        assert gzip.decompress(body(get(web, "/gzip"))).decode() == text
        connection = http.client.HTTPConnection(HOST, web.port, timeout=BOUND_S)
        connection.request("GET", "/both")
        assert gzip.decompress(connection.getresponse().read()).decode() == text
        connection.close()
        closed = talk(web, "GET /close HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"Content-Length" not in closed
        assert body(closed).decode() == text
        head = get(web, "/gzip", method="HEAD")
        assert b"Content-Length: " in head
        assert body(head) == b""


def test_first_rule_that_fits_answers() -> None:
    """By host, path and regular expression."""
    rules: list[dict[str, Any]] = [
        {"host": "a.test", "path": "/x", "body": "a"},
        {"path": "^/x\\?n=[0-9]+$", "body": "number"},
        {"path": "/x", "body": "any"},
    ]
    with MockWeb(spec=rules) as web:
        assert body(get(web, "/x", host="A.test")) == b"a"
        assert body(get(web, "/x", host="b.test")) == b"any"
        assert body(get(web, "/x?n=12")) == b"number"
        assert status(get(web, "/x?n=")) == 404


def test_first_gives_way_to_the_next_rule_for_each_url() -> None:
    rules: list[dict[str, Any]] = [
        {"path": "^/", "status": 503, "retry_after": 7, "first": 2},
        {"path": "^/", "status": 429, "first": 1},
        {"path": "^/", "body": "at last"},
    ]
    with MockWeb(spec=rules) as web:
        assert [status(get(web, "/a")) for _ in range(4)] == [503, 503, 429, 200]
        assert b"\r\nRetry-After: 7\r\n" in get(web, "/b")
        assert [entry.retry_after for entry in web.log()] == [7, 7, 0, 0, 7]


def test_busy_page_refuses_as_often_as_its_number_says() -> None:
    with MockWeb(graph=Graph(1, 1, 0)) as web:
        for path, codes in (
            ("/busy/1", [429, 200, 200]),
            ("/busy/2", [429, 429, 200]),
            ("/sick/1", [503, 200, 200]),
        ):
            answers = [get(web, path, host="127.10.0.1") for _ in codes]
            assert [status(raw) for raw in answers] == codes
            assert b"\r\nRetry-After: 1\r\n" in answers[0]


def test_a_body_may_end_early() -> None:
    with MockWeb(spec=spec(body="0123456789", close_early=4)) as web:
        raw = get(web, "/x")
        assert b"Content-Length: 10\r\n" in raw
        assert body(raw) == b"0123"


def test_raw_bytes_are_sent_as_they_are() -> None:
    raw = b"HTTP/1.0 200\nX: \xff\n\n\x00garbage"
    with MockWeb(spec=spec(raw_base64=base64.b64encode(raw).decode())) as web:
        assert get(web, "/x") == raw


def test_a_huge_body_is_generated() -> None:
    size = 20_000_001
    with MockWeb(spec=spec(size=size)) as web:
        raw = get(web, "/x")
        assert len(body(raw)) == size
        assert web.log()[0].sha1 == hashlib.sha1(raw, usedforsecurity=False).hexdigest()


def test_a_body_may_drip() -> None:
    with MockWeb(spec=spec(body="x" * 40, drip=200)) as web:
        started = time.monotonic()
        assert body(get(web, "/x")) == b"x" * 40
        assert time.monotonic() - started >= 0.15


def test_ports_are_filled_into_bodies_headers_and_redirects(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(b"\xe9 {port}")
    rules: list[dict[str, Any]] = [
        {"path": "/text", "body": "{port} {tls_port}", "headers": {"X-Port": "{port}"}},
        {"path": "/file", "body_file": str(file)},
        {"path": "/to", "redirect": "https://a.test:{tls_port}/"},
    ]
    with MockWeb(spec=rules, tls=True) as web:
        assert body(get(web, "/text")).decode() == f"{web.port} {web.tls_port}"
        assert f"\r\nX-Port: {web.port}\r\n".encode() in get(web, "/text")
        assert body(get(web, "/file")) == b"\xe9 %d" % web.port
        redirect = get(web, "/to")
        assert status(redirect) == 302
        assert f"\r\nLocation: https://a.test:{web.tls_port}/\r\n".encode() in redirect


def test_tls_is_served_under_any_name() -> None:
    with MockWeb(spec=spec(body="secret"), tls=True) as web:
        context = ssl._create_unverified_context()
        with (
            socket.create_connection((HOST, web.tls_port), BOUND_S) as plain,
            context.wrap_socket(plain, server_hostname="whatever.example") as sock,
        ):
            sock.sendall(b"GET /x HTTP/1.1\r\nHost: a.test:1\r\nConnection: close\r\n\r\n")
            assert b"".join(iter(lambda: sock.recv(4_096), b"")).endswith(b"secret")
        (logged,) = web.log()
        assert logged.tls
        assert logged.url == "https://a.test:1/x"


def test_without_a_host_header_the_address_decides() -> None:
    with MockWeb(graph=Graph(3, 1, 0)) as web:
        with socket.create_connection(("127.10.0.2", web.port), BOUND_S) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            raw = b"".join(iter(lambda: sock.recv(65_536), b""))
        assert b"<title>/ of 127.10.0.2</title>" in raw
        assert web.log()[0].host == f"127.10.0.2:{web.port}"


def test_garbage_closes_the_connection() -> None:
    with MockWeb(spec=[]) as web:
        assert talk(web, "\x00\x01 not http\r\n\r\n") == b""
        assert status(get(web, "/x")) == 404
        assert web.stderr() == ""


class FakeTransport:
    """A transport that records that the peer is refused."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.aborted = False

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return (self._peer, 1) if name == "peername" else ("127.0.0.1", 2)

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize(("peer", "refused"), [("127.255.0.1", False), ("10.0.0.1", True)])
def test_a_peer_that_is_not_on_loopback_is_refused(peer: str, refused: bool) -> None:
    transport = FakeTransport(peer)
    connection = Connection(Web(SpecSite([], 1, 0), None), tls=False)
    connection.connection_made(transport)  # type: ignore[arg-type]
    assert transport.aborted == refused


# --- the log --------------------------------------------------------------------------------------


def test_the_log_has_the_times_the_bytes_and_who_asked() -> None:
    with MockWeb(spec=spec(body="page", latency=0.1)) as web:
        before = time.monotonic()
        raw = get(web, "/x", host="A.test")
        after = time.monotonic()
        (logged,) = web.log()
    assert before <= logged.start <= logged.end <= after
    assert 0.1 <= logged.end - logged.start
    assert (logged.host, logged.path, logged.method) == (f"a.test:{web.port}", "/x", "GET")
    assert (logged.status, logged.bytes, logged.complete) == (200, len(raw), True)
    assert logged.sha1 == hashlib.sha1(raw, usedforsecurity=False).hexdigest()
    assert logged.ua == "test/1"
    assert logged.peer.startswith("127.")


def test_an_aborted_request_is_logged_as_ended_when_it_was_lost() -> None:
    with MockWeb(spec=spec(body="page", latency=60.0)) as web:
        with socket.create_connection((HOST, web.port), BOUND_S) as sock:
            sock.sendall(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
            sent = time.monotonic()
            get(web, "/other")
        logged = next(entry for entry in web.log() if entry.path == "/x")
        assert not logged.complete
        assert (logged.status, logged.bytes, logged.sha1) == (0, 0, "")
        assert sent - BOUND_S < logged.start < logged.end < sent + BOUND_S


def test_a_huge_answer_nobody_reads_is_logged_with_what_was_sent() -> None:
    with MockWeb(spec=spec(size=500_000_000)) as web:
        with socket.create_connection((HOST, web.port), BOUND_S) as sock:
            sock.sendall(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
            assert sock.recv(1)
        (logged,) = web.log()
        assert not logged.complete
        assert 0 < logged.bytes < 100_000_000
        assert logged.status == 200


def test_requests_in_the_air_are_logged_when_the_server_stops() -> None:
    with (
        MockWeb(spec=spec(latency=60.0)) as web,
        socket.create_connection((HOST, web.port), BOUND_S) as sock,
    ):
        sock.sendall(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
        get(web, "/other")
        web.stop()
    assert [(entry.path, entry.complete) for entry in web.log()] == [
        ("/x", False),
        ("/other", True),
    ]


def test_the_log_of_a_killed_server_can_be_read() -> None:
    with MockWeb(spec=spec(body="page")) as web:
        get(web, "/x")
        assert len(web.log()) == 1
        os.kill(web.pid, signal.SIGKILL)
    assert len(web.log()) == 1


def test_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer = LogWriter(path)
    writer.close()
    whole = json.dumps({name: getattr(entry(1, 2), name) for name in Entry.__slots__})
    path.write_text(f"{whole}\n{whole[:20]}")
    assert [(found.start, found.end) for found in read_log(path)] == [(1, 2)]


# --- starting and stopping ------------------------------------------------------------------------


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="sorcery"), MockWeb(spec=[{"sorcery": 1}]):
        pass


def test_a_server_can_come_back_on_its_port() -> None:
    with MockWeb(spec=[]) as web:
        port = web.port
    with MockWeb(spec=[], port=port) as web:
        assert web.port == port
        assert status(get(web, "/")) == 404


ORPHAN = """
import os, signal
from tests.mockweb import MockWeb
web = MockWeb(spec=[]).__enter__()
print(web.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_server_dies_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            server = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        ready, _, _ = select.select([server], [], [], BOUND_S)
        os.close(server)
        assert ready


# --- replies --------------------------------------------------------------------------------------


def test_only_a_whole_keep_alive_answer_is_made_once() -> None:
    reply = Reply(body=b"x")
    assert reply.wire() is reply.wire() is not None
    assert Reply(body=b"x", close_early=0).wire() is None
    assert Reply(body=b"x", framing="close").wire() is None
    assert Reply(size=1).wire() is None

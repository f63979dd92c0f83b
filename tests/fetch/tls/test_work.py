"""The cost of TLS that a server can cause is bounded: for a connection, and for a turn of the event
loop."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import pytest
import trustme
from OpenSSL import SSL

from krowlspider.fetch.connection import Connection
from krowlspider.fetch.errors import Exchange, TLSFailed
from krowlspider.fetch.http.head import Origin
from krowlspider.fetch.http.reader import ResponseReader
from krowlspider.fetch.tls import (
    BARE_MOST,
    TURN,
    WORK,
    Channel,
    Slices,
    TlsWork,
    crawler_tls,
    offers_finite_field,
)
from tests.fetch.clockwork import Clockwork, Wire, order
from tests.fetch.sealed import HANDSHAKE, Sealer, by_bytes, hello_retry
from tests.fetch.tls.records import Records
from tests.fetch.web import Peer, answering, client, fetch, serve
from tests.support.work import seconds

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
# What a single slice can cost at the worst, in CPU seconds, with all room for a slow machine.
SLICE = 0.1


@pytest.fixture(scope="module")
def certificate() -> trustme.LeafCert:
    return trustme.CA().issue_cert("a.test")


@pytest.fixture
def tls(certificate: trustme.LeafCert, tmp_path: Path) -> ssl.SSLContext:
    """Return the context of a server whose secrets are logged."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    context.keylog_filename = str(tmp_path / "secrets")
    context.num_tickets = 0
    return context


class TCP(Wire):
    """A simulated transport that can be paused."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.aborted


class Line:
    """A channel on a simulated loop that has sent a request; ``sealer`` seals the records of its
    server."""

    def __init__(
        self,
        clockwork: Clockwork,
        slices: Slices,
        context: ssl.SSLContext,
        log: Path,
    ) -> None:
        clock = clockwork.clock
        self.connection = Connection(clock, Origin("https", "a.test", 443), "192.0.2.1")
        self.channel = Channel(clock, crawler_tls(), "a.test", self.connection, slices)
        self.tcp = TCP()
        self.channel.connection_made(self.tcp)
        inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = context.wrap_bio(inward, outward, server_side=True)
        while not self.channel.secured.done():
            inward.write(b"".join(self.tcp.written))
            self.tcp.written.clear()
            with suppress(ssl.SSLWantReadError):
                server.do_handshake()
            self.channel.data_received(outward.read())
        clockwork.turn()
        self.sealer = Sealer(log)
        made = order(clockwork.loop, clock.time(), 60.0, 60.0)
        self.outcome: asyncio.Future[Exchange] = self.connection.exchange(
            made, ResponseReader("GET", 100_000_000)
        )

    def receive(self, data: bytes) -> None:
        """Receive as from TCP: 256 kB at a time, and nothing while paused."""
        if not self.tcp.aborted:
            assert self.tcp.reading
            self.channel.data_received(data)
        if self.tcp.aborted:
            self.channel.connection_lost(None)

    def receive_all(self, data: bytes, clockwork: Clockwork) -> None:
        for start in range(0, len(data), 262_144):
            self.receive(data[start : start + 262_144])
            while not self.tcp.reading and not self.tcp.aborted:
                clockwork.turn()
        if self.tcp.aborted:
            self.channel.connection_lost(None)


@pytest.fixture
def clockwork() -> Clockwork:
    return Clockwork()


@pytest.fixture
def line(clockwork: Clockwork, tls: ssl.SSLContext, tmp_path: Path) -> Line:
    return Line(clockwork, Slices(clockwork.loop), tls, tmp_path / "secrets")


def key_updates(sealer: Sealer) -> bytes:
    return b"".join(sealer.key_update() for _ in range(4000))


def tickets(sealer: Sealer) -> bytes:
    return b"".join(sealer.ticket() for _ in range(3000))


def padding(sealer: Sealer) -> bytes:
    """Return records of padding alone; OpenSSL itself refuses 32 of them in a row."""
    return b"".join(sealer.seal(23, b"", 16_000) for _ in range(30))


def pieces(sealer: Sealer) -> bytes:
    """Return a message in records of one byte."""
    message = b"\x04" + (60_000).to_bytes(3, "big") + bytes(60_000)
    return b"".join(sealer.seal(HANDSHAKE, message[at : at + 1]) for at in range(5000))


@pytest.mark.parametrize("flood", [key_updates, tickets, padding, pieces])
def test_bytes_without_content_are_bounded(
    line: Line, clockwork: Clockwork, flood: Callable[[Sealer], bytes]
) -> None:
    """However many are sent."""
    data = flood(line.sealer)
    assert len(data) > 2.5 * BARE_MOST
    cost = seconds(lambda: line.receive_all(data, clockwork), tries=1)
    assert isinstance(line.outcome.exception(), TLSFailed)
    assert cost < WORK + SLICE


def test_the_same_bound_holds_for_an_idle_connection(line: Line, clockwork: Clockwork) -> None:
    line.receive(line.sealer.content(OK))
    assert line.outcome.result().body == b"hello"
    line.receive_all(key_updates(line.sealer), clockwork)
    assert line.connection.closed
    assert isinstance(line.connection.fault, TLSFailed)


def key_update_and_byte(sealer: Sealer) -> bytes:
    return sealer.key_update() + sealer.content(b"x")


def byte(sealer: Sealer) -> bytes:
    return sealer.content(b"x")


@pytest.mark.parametrize(("piece", "count"), [(key_update_and_byte, 20_000), (byte, 150_000)])
def test_work_is_bounded_by_the_content_it_brings(
    line: Line, clockwork: Clockwork, piece: Callable[[Sealer], bytes], count: int
) -> None:
    """50 ns a byte of content and 50 ms in all, exceeded by one slice at most."""
    data = line.sealer.content(HEAD) + b"".join(piece(line.sealer) for _ in range(count))
    cost = seconds(lambda: line.receive_all(data, clockwork), tries=1)
    error = line.outcome.exception()
    assert isinstance(error, TLSFailed)
    assert "ms of CPU" in str(error)
    assert cost < WORK + SLICE


@pytest.mark.parametrize("size", [1400, 100])
def test_small_records_of_content_are_not_cut(line: Line, clockwork: Clockwork, size: int) -> None:
    """Servers that flush often send such records."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n"
    line.receive_all(line.sealer.content(head + bytes(2_000_000), size), clockwork)
    clockwork.turn()
    assert len(line.outcome.result().body) == 2_000_000
    assert not line.connection.closed
    assert line.channel.work.is_light


def test_turn_is_bounded_for_many_floods(
    clockwork: Clockwork, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    """A quiet connection is served before them, in the next turn; in the end all are served."""
    slices = Slices(clockwork.loop)
    lines = [Line(clockwork, slices, tls, tmp_path / "secrets") for _ in range(21)]
    floods = [
        line.sealer.content(HEAD) + b"".join(key_update_and_byte(line.sealer) for _ in range(1300))
        for line in lines[1:]
    ]
    answer = lines[0].sealer.content(OK)
    first = seconds(
        lambda: [line.receive(f) for line, f in zip(lines[1:], floods, strict=True)], tries=1
    )
    lines[0].receive(answer)
    assert not lines[0].outcome.done()
    turns = []
    while not lines[0].outcome.done():
        turns.append(seconds(clockwork.turn, tries=1))
    assert len(turns) == 1
    while any(not line.tcp.reading and not line.tcp.aborted for line in lines):
        turns.append(seconds(clockwork.turn, tries=1))
    assert max(first, *turns) < TURN + SLICE
    assert sum(turns) > 3 * (TURN + SLICE)
    assert lines[0].tcp.reading


class Costly:
    """A channel of a quiet server, each slice of which takes so many seconds."""

    def __init__(
        self, name: str, served: list[str], seconds: float = 2 * TURN, *, is_long: bool = False
    ) -> None:
        self.work = TlsWork()
        self.pending, self.is_long = True, is_long
        self._name = name
        self._served = served
        self._seconds = seconds

    def step(self) -> float:
        self._served.append(self._name)
        self.pending = False
        return self._seconds

    def set_waiting(self, waiting: bool) -> None: ...


def test_waiting_connections_are_served_in_order(clockwork: Clockwork) -> None:
    """As many new ones as a turn can serve, in each turn, do not keep the others waiting."""
    slices, served = Slices(clockwork.loop), list[str]()
    for name in "abcd":
        slices.process(cast("Channel", Costly(name, served)))
    assert served == ["a"]
    for name in "efg":
        clockwork.turn()
        slices.process(cast("Channel", Costly(name, served)))
    assert served == ["a", "b", "c", "d"]


def test_long_and_heavy_connections_go_on_beside_short_ones(clockwork: Clockwork) -> None:
    """As many short ones as a turn can serve, in each turn, do not keep them from their slice."""
    slices, served = Slices(clockwork.loop), list[str]()

    def receive(name: str, *, is_long: bool = False, is_heavy: bool = False) -> None:
        channel = Costly(name, served, TURN / 4, is_long=is_long)
        if is_heavy:
            channel.work.timer = lambda: 1.0
            channel.work.charge(0.0)
        slices.process(cast("Channel", channel))

    for _ in range(8):
        receive("short")
    receive("heavy", is_heavy=True)
    receive("long", is_long=True)
    for _ in range(2):
        clockwork.turn()
        for _ in range(4):
            receive("short")
    assert {"long", "heavy"} < {*served}


@pytest.mark.parametrize(
    ("group", "taken"),
    [(0x17, True), (0x18, True), (0x19, True), (0x1E, True), (0x100, False), (0x104, False)],
)
async def test_a_server_may_choose_a_curve_and_no_modulus(group: int, taken: bool) -> None:
    """A single call with ffdhe8192 takes 0.1 s."""
    answers: list[bytes] = []

    async def script(peer: Peer) -> None:
        hello = await peer.some()
        await peer.send(hello_retry(hello, group))
        answers.append(await peer.some())
        peer.close()

    async with serve(script) as web, client() as made:
        with pytest.raises(TLSFailed) as caught:
            await fetch(made, f"https://a.test:{web.port}/")
    assert bool(answers) is taken
    assert ("finite field" in str(caught.value)) is not taken


@pytest.mark.parametrize("flight", [b"", b"\x14\x03\x03\x00\x01\x01", b"\x16\x03\x03\x00\x01\x10"])
def test_other_bytes_are_no_client_hello(flight: bytes) -> None:
    assert not offers_finite_field(flight)


def chain(path: Path, certificate: trustme.LeafCert, count: int) -> ssl.SSLContext:
    """Return the context of a server that sends ``count`` certificates."""
    pem = certificate.private_key_and_cert_chain_pem.bytes()
    more = certificate.cert_chain_pems[-1].bytes()
    (path / "chain.pem").write_bytes(pem + more * (count - 1))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path / "chain.pem")
    return context


@pytest.mark.parametrize(
    ("version", "count", "taken"),
    [("TLSv1_2", 10, True), ("TLSv1_2", 150, False), ("TLSv1_3", 150, False)],
)
async def test_a_chain_of_certificates_is_taken_up_to_32_kib(
    tmp_path: Path, version: str, count: int, taken: bool
) -> None:
    context = chain(tmp_path, trustme.CA().issue_cert("a.test"), count)
    context.maximum_version = ssl.TLSVersion[version]

    async with serve(answering(OK), context) as web, client() as made:
        if taken:
            await fetch(made, f"https://a.test:{web.port}/")
            return
        with pytest.raises(TLSFailed, match="bytes of TLS without content"):
            await fetch(made, f"https://a.test:{web.port}/")


async def test_a_handshake_in_records_of_a_byte_is_bounded(
    tmp_path: Path, certificate: trustme.LeafCert
) -> None:
    context = chain(tmp_path, certificate, 20)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    async def script(peer: Peer) -> None:
        inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = context.wrap_bio(inward, outward, server_side=True)
        inward.write(await peer.some())
        with suppress(ssl.SSLWantReadError):
            server.do_handshake()
        split = by_bytes(outward.read())
        assert len(split) > BARE_MOST
        await peer.send(split)
        await peer.gone()

    async with serve(script) as web, client() as made:
        with pytest.raises(TLSFailed, match="bytes of TLS without content"):
            await fetch(made, f"https://a.test:{web.port}/")


async def test_a_host_that_floods_an_idle_connection_is_blamed(
    tls: ssl.SSLContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next request fails and is not sent; the one after it gets a new connection."""

    async def script(peer: Peer) -> None:
        records = Records(peer, tls)
        await records.request()
        sealer = Sealer(tmp_path / "secrets")
        await peer.send(sealer.content(OK))
        await peer.send(key_updates(sealer))
        await peer.gone()

    async with serve(script) as web, client() as made:
        url = f"https://a.test:{web.port}/"
        first = await fetch(made, url)
        await web.gone.wait()
        with pytest.raises(TLSFailed):
            await fetch(made, url)
        third = await fetch(made, url)
    assert (first.body, third.body, web.connections) == (b"hello", b"hello", 2)
    assert "the connection to a.test at 127.0.0.1:" in caplog.text


async def test_handshakes_without_end_are_bounded(certificate: trustme.LeafCert) -> None:
    """A server of TLS 1.2 may ask for another at any time (RFC 5246, section 7.4.1.1)."""
    context = SSL.Context(SSL.TLSv1_2_METHOD)
    certificate.configure_cert(context)
    server = SSL.Connection(context, None)
    server.set_accept_state()

    async def script(peer: Peer) -> None:
        while True:
            with suppress(SSL.WantReadError):
                while True:
                    server.recv(65_536)
            finished = server.get_state_string() == b"SSL negotiation finished successfully"
            if finished and not server.renegotiate_pending():
                server.renegotiate()
                with suppress(SSL.WantReadError):
                    server.do_handshake()
            with suppress(SSL.WantReadError):
                await peer.send(server.bio_read(65_536))
            server.bio_write(await peer.some())

    async with serve(script) as web, client() as made:
        with pytest.raises(TLSFailed):
            await fetch(made, f"https://a.test:{web.port}/")
    assert 5 < server.total_renegotiations() < 500


def test_a_connection_that_waits_for_memory_is_given_nothing(
    line: Line, clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even data that was received and is not decrypted yet."""
    came: list[int] = []

    def take(data: bytes) -> None:
        came.append(len(data))
        if len(came) == 1:
            line.channel.pause_reading()

    monkeypatch.setattr(line.connection, "data_received", take)
    data = b"".join(line.sealer.content(bytes(16_000)) for _ in range(10))
    line.receive(data)
    for _ in range(3):
        clockwork.turn()
    assert not line.tcp.reading
    assert sum(came) <= 16_000
    line.channel.resume_reading()
    for _ in range(12):
        clockwork.turn()
    assert line.tcp.reading
    assert sum(came) == 160_000

"""The server of metrics and of the live page: who may ask, how, and for how long."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from aiohttp import web
from scrapy.utils.asyncio import run_in_thread

from krowlspider.job.in_flight import AT_MOST, FOR_CLIENTS, LoopTurns
from krowlspider.job.monitoring.access import HostNames
from krowlspider.job.monitoring.endpoint import MORE_TIME, REST_MAX, Endpoint, Events, metrics_route
from krowlspider.job.monitoring.page_server import ListenAddress, PageServer, RecentAnswers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine


# --- the server and who comes to it ---

# Seconds that no test of these takes; a connection with this limit is cut for another reason.
LONG = 30.0
# More than the kernel takes off the server's hands; no real page has so much.
LARGE = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
ASK = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def serving(
    page: Callable[[], bytes] = lambda: b"the page\n",
    time_limit: float = 5.0,
    events: bytes = b"",
    on_clients: Callable[[int], None] = lambda _: None,
) -> AsyncIterator[int]:
    """Serve on the loop of the test; yield the port."""
    routes = {"/metrics": metrics_route(page), "/events": lambda _: Events(lambda: events)}
    endpoint = PageServer([lambda: routes], time_limit, on_clients)
    _, port = await endpoint.open("127.0.0.1", range(1))
    try:
        async with asyncio.timeout(LONG):
            yield port
    finally:
        endpoint.close()


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, None]], None]:
    def on_uvloop(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)

    return on_uvloop


async def said_to(port: int, request: bytes) -> bytes:
    """All that comes until the server ends the connection; nothing is what one has that is cut."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    said = b""
    with suppress(ConnectionError):
        said = await reader.read()
    writer.transport.abort()
    return said


# --- one request ---


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200 OK"),
        (b"GET /metrics?a=b HTTP/1.0\r\nHost: localhost\r\n\r\n", b"200 OK"),
        (b"GET /metrics HTTP/1.0\r\n\r\n", b"421 Misdirected Request"),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"421 Misdirected Request"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404 Not Found"),
        (b"GET /metrics/ HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405 Method Not Allowed"),
        (b"GET /metrics  HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400 Bad Request"),
    ],
)
async def test_only_a_get_of_the_path_has_the_page(
    head: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Who asks for something else fills no log."""
    async with serving() as port:
        said = await said_to(port, head)
        assert said.partition(b" ")[2].startswith(status + b"\r\n")
        assert said.endswith(b"the page\n") == (status == b"200 OK")
    assert caplog.records == []


async def test_a_head_has_the_length_of_the_page_and_no_page() -> None:
    async with serving() as port:
        said = await said_to(port, b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"Content-Length: 9\r\n" in said
        assert said.endswith(b"\r\n\r\n")


async def test_a_page_that_cannot_be_made_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> bytes:
        raise RuntimeError("no figures")

    async with serving(broken) as port:
        assert b"500 Internal Server Error" in await said_to(port, ASK)
    assert "no figures" in caplog.text


def test_the_page_is_made_once_a_second_however_many_ask() -> None:
    times = [0.0]
    made: list[bytes] = []

    def make() -> bytes:
        made.append(b"%d" % len(made))
        return made[-1]

    recent = RecentAnswers(lambda: times[0])
    seen = []
    for times[0] in (5.0, 5.0, 5.9, 6.0, 6.5, 7.1):
        seen.append(recent.get("metrics", make))
    assert seen == [b"0", b"0", b"0", b"1", b"1", b"2"]


@LARGE
async def test_the_page_is_sent_whole_and_the_connection_ended() -> None:
    whole = b"x" * 50_000_000
    async with serving(lambda: whole) as port:
        said = await said_to(port, ASK)
        head, _, body = said.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"text/plain; version=0.0.4; charset=utf-8" in head
        assert body == whole


async def test_turns_of_the_loop_are_short_while_a_client_waits() -> None:
    """One that is sent events does not wait."""
    turns, seen = LoopTurns(), []

    def page() -> bytes:
        seen.append(turns.at_once)
        return b"x"

    async with serving(page, events=b"data: 1\n\n", on_clients=turns.serve) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"data: 1")
        seen.append(turns.at_once)
        await said_to(port, ASK)
        writer.transport.abort()
    assert seen == [AT_MOST, FOR_CLIENTS]


async def test_turns_are_long_while_a_long_answer_is_made() -> None:
    """A client that is given more time is not waited for: short turns cost the crawl CPU."""
    turns, seen = LoopTurns(), []

    def long_answer(request: web.BaseRequest) -> web.Response:
        seen.append(turns.at_once)
        request[MORE_TIME]()
        seen.append(turns.at_once)
        return web.Response()

    endpoint = Endpoint({"/long": long_answer}, LONG, turns.serve, HostNames())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        await endpoint.listen(listening)
        await said_to(listening.getsockname()[1], ASK.replace(b"metrics", b"long"))
        endpoint.close()
    assert seen == [FOR_CLIENTS, AT_MOST]


async def test_turns_are_short_from_the_accept_on() -> None:
    """If they were short from the connection on, a client would wait a turn longer."""
    seen = []
    endpoint = Endpoint(
        {"/metrics": metrics_route(lambda: b"x")},
        LONG,
        lambda clients: seen.append((clients, len(endpoint.connections))),
        HostNames(),
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        await endpoint.listen(listening)
        await said_to(listening.getsockname()[1], ASK)
        endpoint.close()
    assert seen == [(1, 0), (1, 1), (0, 0)]


@pytest.mark.parametrize("comes", [True, False])
async def test_the_server_is_loaded_for_the_first_client_or_before(comes: bool) -> None:
    told: list[int | str] = []
    is_loaded = asyncio.Event()
    loop = asyncio.get_running_loop()

    def make() -> dict[str, Any]:
        told.append("loads")
        loop.call_soon_threadsafe(is_loaded.set)
        return {}

    server = PageServer([make], LONG, told.append, load_after=LONG if comes else 0.01)
    _, port = await server.open("127.0.0.1", range(1))
    async with asyncio.timeout(LONG):
        if comes:
            await said_to(port, ASK)
        await is_loaded.wait()
    server.close()
    # Turns are short while it is loaded for somebody.
    assert told[:2] == ([1, "loads"] if comes else ["loads"])


async def test_client_that_sends_no_whole_request_is_dropped() -> None:
    async with serving(time_limit=0.2) as port:
        requests = (b"", ASK[:-2], b"GET ")
        assert await asyncio.gather(*(said_to(port, request) for request in requests)) == [b""] * 3


async def test_who_drips_a_byte_at_a_time_gains_no_time_by_it() -> None:
    async with serving(time_limit=0.3) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ASK[:-2] + b"A: ")
        while not reader.at_eof() and reader.exception() is None:
            writer.write(b"x")
            await asyncio.sleep(0.02)
        writer.transport.abort()


@LARGE
async def test_client_that_reads_nothing_is_dropped() -> None:
    async with serving(lambda: b"x" * 50000000, time_limit=0.3) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=LONG) as idle:
            idle.sendall(ASK)
            await run_in_thread(send_until_cut, idle)


def send_until_cut(idle: socket.socket, piece: bytes = b"x") -> int:
    """Return the bytes sent when the other side is gone; nothing is read.

    :raises TimeoutError: it stays, and takes no more
    """
    sent = 0
    with suppress(ConnectionError):
        while True:
            idle.sendall(piece)
            sent += len(piece)
    return sent


async def test_a_request_without_end_is_cut_at_its_limit_and_not_kept() -> None:
    async with serving(time_limit=2 * LONG) as port:
        for endless in (b"GET /" + b"a" * 1_000_000, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100_000):
            said = await said_to(port, endless)
            assert said == b"" or said.startswith(b"HTTP/1.0 400 Bad Request\r\n")
        assert b"200 OK" in await said_to(port, ASK)


@pytest.mark.parametrize(
    ("path", "name", "status"),
    [("/metrics", "localhost", 405), ("/nothing", "localhost", 404), ("/metrics", "x.test", 421)],
)
async def test_whoever_sends_8_mb_reads_the_refusal(path: str, name: str, status: int) -> None:
    """http.client reads nothing before it has sent all."""
    body = bytes(8_000_000)

    def post(port: int) -> int:
        connection = HTTPConnection("127.0.0.1", port, timeout=LONG)
        with closing(connection):
            connection.request("POST", path, body, {"Host": name})
            return connection.getresponse().status

    async with serving() as port:
        for _ in range(50):
            assert await run_in_thread(post, port) == status


ANNOUNCED = b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\nHost: localhost\r\n\r\nx"
BROKEN = {
    "chunk": b"Transfer-Encoding: chunked\r\n\r\nno length\r\n",
    "coding": b"Content-Length: 9\r\nContent-Encoding: gzip\r\n\r\nno gzip..",
}


@pytest.mark.parametrize("sends", ["nothing more", "without end"])
async def test_the_rest_of_a_body_has_bounds_of_bytes_and_time(sends: str) -> None:
    async with serving(time_limit=LONG if sends == "without end" else 0.3) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(ANNOUNCED)
            assert (await run_in_thread(client.recv, 40)).startswith(b"HTTP/1.1 405 ")
            if sends == "without end":
                sent = await run_in_thread(send_until_cut, client, bytes(65_536))
                assert REST_MAX < sent < 4 * REST_MAX
            else:
                await run_in_thread(client.recv, 1000)
                with suppress(ConnectionError):
                    assert await run_in_thread(client.recv, 1) == b""


@pytest.mark.parametrize("way", BROKEN)
async def test_a_rest_that_is_broken_ends_the_connection(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as port:
        await said_to(port, b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n" + BROKEN[way])
    assert caplog.records == []


async def test_a_body_that_is_announced_is_not_waited_for() -> None:
    async with serving(time_limit=LONG) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ANNOUNCED)
        head = await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()
        assert b"405 Method Not Allowed" in head
        assert b"Allow: GET, HEAD" in head


@LARGE
@pytest.mark.parametrize("size", [1, 50_000_000])
async def test_events_have_a_limit_of_clients_and_drop_slow_ones(size: int) -> None:
    event = b"x" * size
    async with serving(time_limit=0.3 if size > 1 else 5.0, events=event) as port:
        with ExitStack() as idle:
            for _ in range(5 if size == 1 else 1):
                address = ("127.0.0.1", port)
                client = idle.enter_context(socket.create_connection(address, timeout=LONG))
                client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
                head = await run_in_thread(client.recv, 20)
            assert head.startswith(b"HTTP/1.1 503" if size == 1 else b"HTTP/1.1 200")
            await run_in_thread(send_until_cut, client)


async def test_silent_clients_keep_nobody_out() -> None:
    """Only the last of them are kept."""
    async with serving(time_limit=2 * LONG) as port:
        crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        assert b"200 OK" in await said_to(port, ASK)
        cut = [reader.read() for reader, _ in crowd[:92]]
        for ended in await asyncio.gather(*cut, return_exceptions=True):
            assert ended == b"" or isinstance(ended, ConnectionError)
        for _, writer in crowd:
            writer.transport.abort()


async def test_taken_port_leads_to_the_next(caplog: pytest.LogCaptureFixture) -> None:
    """It is named in a warning. Without a free one there is an error."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        endpoint = PageServer([])
        url = await endpoint.serve(ListenAddress("127.0.0.1", range(port, port + 11)))
        assert url.startswith("http://127.0.0.1:")
        found = int(url.rpartition(":")[2])
        assert port < found <= port + 10
        assert caplog.messages == [
            f"Port {port} is taken: metrics and live page at port {found} instead"
        ]
        endpoint.close()
        with pytest.raises(OSError, match="in use"):
            await PageServer([]).open("127.0.0.1", range(port, port + 1))


async def test_a_host_without_an_address_is_named(caplog: pytest.LogCaptureFixture) -> None:
    # A blank is in no name, so no name server is asked.
    assert await PageServer([]).serve(ListenAddress("no host", range(1))) == ""
    assert "PROMETHEUS_HOST=no host has no address (" in caplog.text
    assert "Unknown error" not in caplog.text


async def test_a_server_that_cannot_be_loaded_is_logged_and_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> dict[str, Any]:
        raise ImportError("no such module")

    server = PageServer([fail])
    _, port = await server.open("127.0.0.1", range(1))
    async with asyncio.timeout(LONG):
        assert await said_to(port, ASK) == b""
    server.close()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        "Metrics and live page are not served"
    ]

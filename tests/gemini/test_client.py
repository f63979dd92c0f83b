"""The client against servers over real TLS, most of which break the protocol."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from OpenSSL import SSL

from krowlspider.fetch import errors
from krowlspider.fetch.memory import FetchMemory, Memory, Spills
from krowlspider.fetch.proxy.protocols import parse_proxy
from krowlspider.frontier.store.store import LevelStore
from krowlspider.gemini.certificates import CertificatePins
from krowlspider.gemini.client import GeminiClient
from tests.fetch.tls.crowd import BODY, Crowd, crowd
from tests.fetch.tls.records import Records
from tests.fetch.web import Peer, Web, client, serve
from tests.gemini.keys import Key, der

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.fetch.errors import Exchange

KEY = Key()
CERTIFICATE = KEY.certificate()
CONTEXT = KEY.context(CERTIFICATE)
PAGE = b"20 text/gemini; lang=en\r\n# Hello\r\n=> /next\r\n\x00\xff"

# Plays the server after the handshake; the request is given.
Play = Callable[[Peer, Records, bytes], Awaitable[None]]


@asynccontextmanager
async def capsule(play: Play, context: ssl.SSLContext = CONTEXT) -> AsyncIterator[Web]:
    """Serve one play to each connection. Web.requests are the requests."""

    async def script(peer: Peer) -> None:
        tls = Records(peer, context)
        with suppress(ssl.SSLError):
            await peer.send(await tls.shake_hands())
            request = await tls.request()
            web.requests.append(request)
            await play(peer, tls, request)

    async with serve(script) as web:
        yield web


def answering(answer: bytes, *, close_notify: bool = True) -> Play:
    async def play(peer: Peer, tls: Records, request: bytes) -> None:
        await peer.send(tls.say(answer) + (tls.close_notify() if close_notify else b""))
        peer.end()

    return play


def url_of(web: Web, path: str = "/", host: str = "a.test") -> str:
    return f"gemini://{host}:{web.port}{path}"


@asynccontextmanager
async def browsing(
    folder: Path, *, accepts_changes: bool = False, **limits: Any
) -> AsyncIterator[Callable[..., Awaitable[Exchange]]]:
    """Yield what fetches a URL; its certificates are kept in ``folder``."""
    store = LevelStore(folder / "store", create=True)
    counts: list[str] = []
    certificates = CertificatePins(
        store, accepts_changes=accepts_changes, wall=lambda: 1e9, count=counts.append
    )
    spills = Spills(asyncio.get_running_loop(), folder)

    async def fetch(url: str, **options: Any) -> Exchange:
        chosen = {"timeout": 5, "max_size": 10_000_000, "spills": spills, **options}
        return await made.fetch(url, memory=FetchMemory(Memory()), **chosen)

    async with client(**limits) as web_client:
        made = GeminiClient(web_client, certificates)
        try:
            yield fetch
        finally:
            await spills.close()
            store.close()


async def test_an_answer_is_kept_byte_for_byte(tmp_path: Path) -> None:
    async with capsule(answering(PAGE)) as web, browsing(tmp_path) as fetch:
        url = url_of(web, "/a?b%20c")
        found = await fetch(url)
        await fetch(url)
        assert web.connections == 2
    assert web.requests == [url.encode() + b"\r\n"] * 2
    assert found.request_bytes == url.encode() + b"\r\n"
    assert (found.url, found.status, found.version) == (url, 20, "")
    assert found.response_bytes == PAGE
    assert found.body == PAGE[found.head_length :] == PAGE.partition(b"\r\n")[2]
    assert found.headers == [(b"Content-Type", b"text/gemini; lang=en")]
    assert (found.truncated, found.peer.address) == ("", "127.0.0.1")
    assert found.peer.tls is not None
    assert found.peer.tls[0] == "TLSv1.3"
    assert found.peer.certificate == der(CERTIFICATE)
    assert 0 < found.times.latency <= found.times.duration < 5


async def test_a_server_gets_its_name_and_no_protocols(tmp_path: Path) -> None:
    """An address has no name. A server with protocols of its own may refuse those of HTTP."""
    hellos: list[bytes] = []

    async def script(peer: Peer) -> None:
        hellos.append(await peer.some())

    async with serve(script) as web, browsing(tmp_path) as fetch:
        for host in ("a.test", "127.0.0.1"):
            with pytest.raises(errors.TLSFailed):
                await fetch(url_of(web, host=host))
    assert [(b"a.test" in hello, b"127.0.0.1" in hello) for hello in hellos] == [
        (True, False),
        (False, False),
    ]
    assert not [hello for hello in hellos if b"http/1.1" in hello]


@pytest.mark.parametrize(
    ("answer", "status", "headers"),
    [
        (b"10 Your name?\r\n", 10, [(b"Meta", b"Your name?")]),
        (b"31 /new\r\n", 31, [(b"Location", b"/new")]),
        (b"30 gemini://b.test/\r\n<html>not a body", 30, [(b"Location", b"gemini://b.test/")]),
        (b"44 60\r\n", 44, [(b"Retry-After", b"60")]),
        (b"44 Slow down\r\n", 44, [(b"Meta", b"Slow down")]),
        (b"51\r\n", 51, []),
        (b"60 Show one\r\n" + b"x" * 100_000, 60, [(b"Meta", b"Show one")]),
    ],
)
async def test_other_answers_end_with_their_header(
    tmp_path: Path, answer: bytes, status: int, headers: list[tuple[bytes, bytes]]
) -> None:
    """Whatever follows, and without waiting for the end of the connection."""

    async def play(peer: Peer, tls: Records, request: bytes) -> None:
        await peer.send(tls.say(answer))
        await peer.gone()

    async with capsule(play) as web, browsing(tmp_path) as fetch:
        found = await fetch(url_of(web))
    assert (found.status, found.headers, found.body) == (status, headers, b"")
    assert found.response_bytes == answer[: answer.index(b"\r\n") + 2]
    assert found.truncated == ""


def test_answers_behind_handshakes_survive_a_busy_loop(tmp_path: Path) -> None:
    """Of servers that do not wait for the request."""
    answer = b"20 application/octet-stream\r\n" + BODY

    async def main(web: Crowd) -> set[bytes]:
        async with browsing(tmp_path, connect_timeout=15) as fetch:
            url = f"test:{web.port}/"
            return await web.visit(lambda n: fetch(f"gemini://a{n}.{url}", timeout=15))

    with crowd(KEY.context(CERTIFICATE), answer) as web:
        assert uvloop.run(main(web)) == {answer}


async def test_an_empty_success_is_an_answer(tmp_path: Path) -> None:
    async with capsule(answering(b"20 text/plain\r\n")) as web, browsing(tmp_path) as fetch:
        assert (await fetch(url_of(web))).body == b""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"99 what\r\n", "status 99"),
        (b"20 " + b"x" * 5_000 + b"\r\nbody", "no end within"),
        (b"20 text/gemini\n# Hello\n", "line feed"),
        (b"\xef\xbb\xbf20 text/gemini\r\n# Hello", "byte order mark"),
        (b"20 text/\x00gemini\r\n# Hello", "control character"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no status"),
        (b"\x00" * 100, "no status"),
    ],
)
async def test_a_malformed_header_is_refused(tmp_path: Path, answer: bytes, reason: str) -> None:
    async with capsule(answering(answer)) as web, browsing(tmp_path) as fetch:
        with pytest.raises(errors.ProtocolBroken, match=reason) as caught:
            await fetch(url_of(web))
    assert caught.value.exchange is None


@pytest.mark.parametrize("close_notify", [True, False])
@pytest.mark.parametrize("answer", [b"", b"2", b"20 text/gemini", b"20 text/gemini\r"])
async def test_no_whole_header_is_no_answer(
    tmp_path: Path, answer: bytes, close_notify: bool
) -> None:
    async def play(peer: Peer, tls: Records, request: bytes) -> None:
        said = tls.say(answer) if answer else b""
        await peer.send(said + (tls.close_notify() if close_notify else b""))
        peer.end()

    async with capsule(play) as web, browsing(tmp_path) as fetch:
        with pytest.raises(errors.ConnectionLost, match="header") as caught:
            await fetch(url_of(web))
    assert caught.value.exchange is None


async def test_an_endless_header_is_cut_off(tmp_path: Path) -> None:
    async def play(peer: Peer, tls: Records, request: bytes) -> None:
        await peer.send(tls.say(b"20 "))
        while True:
            await peer.send(tls.say(b"x" * 1000))

    async with capsule(play) as web, browsing(tmp_path) as fetch:
        with pytest.raises(errors.ProtocolBroken, match="no end within"):
            await fetch(url_of(web))
        await web.gone.wait()


async def test_a_header_may_come_byte_by_byte(tmp_path: Path) -> None:
    async def play(peer: Peer, tls: Records, request: bytes) -> None:
        for at in range(len(PAGE)):
            await peer.send(tls.say(PAGE[at : at + 1]))
            await asyncio.sleep(0)
        await peer.send(tls.close_notify())
        peer.end()

    async with capsule(play) as web, browsing(tmp_path) as fetch:
        assert (await fetch(url_of(web))).response_bytes == PAGE


@pytest.mark.parametrize(
    ("start", "error"),
    [(b"", errors.FirstByteTimeout), (b"20 te", errors.TotalTimeout), (PAGE, errors.TotalTimeout)],
)
async def test_a_server_that_never_goes_on_is_given_up(
    tmp_path: Path, start: bytes, error: type[errors.FetchError]
) -> None:
    async def play(peer: Peer, tls: Records, request: bytes) -> None:
        if start:
            await peer.send(tls.say(start))
        await peer.gone()

    limits = {"first_byte_timeout": 0.1}
    async with capsule(play) as web, browsing(tmp_path, **limits) as fetch:
        with pytest.raises(error) as caught:
            await fetch(url_of(web), timeout=0.3)
        await web.gone.wait()
    partial = caught.value.exchange
    if start == PAGE:
        assert partial is not None
        assert (partial.truncated, partial.response_bytes) == ("time", PAGE)
    else:
        assert partial is None


async def test_a_missing_close_notify_is_told_with_the_answer(tmp_path: Path) -> None:
    play = answering(PAGE, close_notify=False)
    async with capsule(play) as web, browsing(tmp_path) as fetch:
        with pytest.raises(errors.NoCloseNotify) as caught:
            await fetch(url_of(web))
    partial = caught.value.exchange
    assert partial is not None
    assert (partial.truncated, partial.response_bytes) == ("disconnect", PAGE)


async def test_a_reset_within_the_body_keeps_what_came(tmp_path: Path) -> None:
    seen = asyncio.Event()

    class Watcher:
        def headers(self, status: int, headers: errors.Headers) -> None:
            assert (status, headers) == (20, [(b"Content-Type", b"text/gemini; lang=en")])

        def data(self, chunk: bytes) -> None:
            seen.set()

    async def play(peer: Peer, tls: Records, request: bytes) -> None:
        await peer.send(tls.say(PAGE))
        await seen.wait()
        peer.reset()

    async with capsule(play) as web, browsing(tmp_path) as fetch:
        with pytest.raises(errors.ConnectionReset) as caught:
            await fetch(url_of(web), observer=Watcher())
    partial = caught.value.exchange
    assert partial is not None
    assert (partial.truncated, partial.response_bytes) == ("disconnect", PAGE)


async def test_an_observer_may_stop_the_answer(tmp_path: Path) -> None:
    class Stopper:
        def headers(self, status: int, headers: errors.Headers) -> None:
            raise errors.StopFetch

        def data(self, chunk: bytes) -> None: ...

    async with capsule(answering(PAGE)) as web, browsing(tmp_path) as fetch:
        found = await fetch(url_of(web), observer=Stopper())
    assert (found.status, found.truncated) == (20, "length")


@pytest.mark.parametrize("size", [10_000_000, 10_000_001])
async def test_a_body_over_the_limit_is_cut_and_kept(tmp_path: Path, size: int) -> None:
    """A large one is in a file meanwhile."""
    header = b"20 application/octet-stream\r\n"

    async def play(peer: Peer, tls: Records, request: bytes) -> None:
        await peer.send(tls.say(header))
        for at in range(0, size, 100_000):
            await peer.send(tls.say(b"x" * min(100_000, size - at)))
        await peer.send(tls.close_notify())
        peer.end()

    async with capsule(play) as web, browsing(tmp_path) as fetch:
        if size <= 10_000_000:
            found = await fetch(url_of(web))
            truncated = ""
        else:
            with pytest.raises(errors.TooLarge) as caught:
                await fetch(url_of(web))
            assert caught.value.exchange is not None
            found, truncated = caught.value.exchange, "length"
    assert (found.status, found.truncated) == (20, truncated)
    assert found.stored is not None
    assert found.stored.size == len(header) + size
    assert bytes(found.stored.mapped()[0][: len(header)]) == header
    assert len(found.stored.body()) == size


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_a_server_without_tls_1_2_is_refused(tmp_path: Path, version: ssl.TLSVersion) -> None:
    context = KEY.context(CERTIFICATE)
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, version
    context.set_ciphers("ALL:@SECLEVEL=0")
    async with capsule(answering(PAGE), context) as web, browsing(tmp_path) as fetch:
        with pytest.raises(errors.TLSFailed):
            await fetch(url_of(web))
    assert web.requests == []


async def test_tls_1_2_is_enough(tmp_path: Path) -> None:
    context = KEY.context(CERTIFICATE)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with capsule(answering(PAGE), context) as web, browsing(tmp_path) as fetch:
        found = await fetch(url_of(web))
    assert found.peer.tls is not None
    assert found.peer.tls[0] == "TLSv1.2"


async def test_no_server_is_spoken_to_without_tls(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(PAGE)
        await peer.gone()

    async with serve(script) as web, browsing(tmp_path) as fetch:
        with pytest.raises(errors.TLSFailed):
            await fetch(url_of(web))


@pytest.mark.parametrize(("names", "is_refused"), [(100, False), (1_500, True)])
async def test_a_certificate_of_100_kb_is_refused(
    tmp_path: Path, names: int, is_refused: bool
) -> None:
    certificate = KEY.certificate(names=names)
    assert (len(der(certificate)) > 95_000) is is_refused
    context = KEY.context(certificate)
    async with capsule(answering(PAGE), context) as web, browsing(tmp_path) as fetch:
        if is_refused:
            with pytest.raises(errors.TLSFailed):
                await fetch(url_of(web))
            assert web.requests == []
        else:
            assert (await fetch(url_of(web))).status == 20


@pytest.mark.parametrize(
    "certificate", [KEY.certificate(ends=-0.5), KEY.certificate("another.test")]
)
async def test_a_bad_certificate_is_trusted_at_first_use(tmp_path: Path, certificate: Any) -> None:
    """One that has expired, or is for another name: what counts is that it stays."""
    context = KEY.context(certificate)
    async with capsule(answering(PAGE), context) as web, browsing(tmp_path) as fetch:
        await fetch(url_of(web))
        assert (await fetch(url_of(web))).status == 20


@pytest.mark.parametrize("accepts_changes", [False, True])
async def test_a_changed_certificate_is_refused_before_the_request(
    tmp_path: Path, accepts_changes: bool
) -> None:
    """After a restart too. The policy may accept it."""
    contexts = [CONTEXT, Key().context()]

    async def script(peer: Peer) -> None:
        tls = Records(peer, contexts[0 if web.connections == 1 else 1])
        with suppress(ssl.SSLError):
            await peer.send(await tls.shake_hands())
            web.requests.append(await tls.request())
            await answering(PAGE)(peer, tls, b"")

    async with serve(script) as web:
        async with browsing(tmp_path) as fetch:
            await fetch(url_of(web))
        async with browsing(tmp_path, accepts_changes=accepts_changes) as fetch:
            if accepts_changes:
                await fetch(url_of(web))
                assert len(web.requests) == 2
            else:
                with pytest.raises(errors.CertificateRefused) as caught:
                    await fetch(url_of(web))
                assert caught.value.exchange is None
                # The same certificate under another name is a first use.
                await fetch(url_of(web, host="b.test"))
                assert [line.split(b":")[1] for line in web.requests] == [b"//a.test", b"//b.test"]


async def test_no_certificate_can_be_changed_within_a_connection(tmp_path: Path) -> None:
    """A server of TLS 1.2 that asks for another handshake gets none, and may go on."""
    loop = asyncio.get_running_loop()
    refused = loop.create_future()

    async def script(peer: Peer) -> None:
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_max_proto_version(SSL.TLS1_2_VERSION)
        context.use_privatekey(KEY.private)
        context.use_certificate(CERTIFICATE)
        tls = SSL.Connection(context)
        tls.set_accept_state()

        async def until(step: Callable[[], Any]) -> Any:
            while True:
                try:
                    return step()
                except SSL.WantReadError:
                    with suppress(SSL.WantReadError):
                        await peer.send(tls.bio_read(65_536))
                    tls.bio_write(await peer.some())

        await until(tls.do_handshake)
        web.requests.append(await until(lambda: tls.recv(65_536)))
        tls.renegotiate()
        tls.do_handshake()
        await peer.send(tls.bio_read(65_536))
        try:
            await until(lambda: tls.recv(65_536))
        except SSL.Error as error:
            refused.set_result(error)

    async with serve(script) as web, browsing(tmp_path) as fetch:
        with pytest.raises(errors.FetchError) as caught:
            await fetch(url_of(web))
        assert "no renegotiation" in str(await asyncio.wait_for(refused, 5))
    assert caught.value.exchange is None


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("gemini://a.test/".ljust(1025, "x"), errors.ProtocolBroken),
        ("gemini://me@a.test/", errors.ProtocolBroken),
        ("gemini://a.test:22/", errors.PortForbidden),
        ("gemini://10.0.0.1/", errors.AddressForbidden),
    ],
)
async def test_nothing_is_connected_to_for_a_url_that_may_not_be_asked(
    tmp_path: Path, url: str, error: type[errors.FetchError]
) -> None:
    async with browsing(tmp_path) as fetch:
        with pytest.raises(error):
            await fetch(url)


async def test_an_address_without_room_is_not_asked(tmp_path: Path) -> None:
    async with capsule(answering(PAGE)) as web, browsing(tmp_path) as fetch:
        with pytest.raises(errors.AddressBusy):
            await fetch(url_of(web), admit=lambda address: False)
        assert web.connections == 0


async def test_a_proxy_opens_a_tunnel(tmp_path: Path) -> None:
    """The certificate is that of the capsule, and pinned by its name."""
    contexts = [CONTEXT, Key().context()]

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        tls = Records(peer, contexts[web.connections - 1])
        with suppress(ssl.SSLError):
            await peer.send(await tls.shake_hands())
            web.requests.append(await tls.request())
            await answering(PAGE)(peer, tls, b"")

    async with serve(script) as web, browsing(tmp_path) as fetch:
        url, proxy = "gemini://a.example/", parse_proxy(web.url)
        found = await fetch(url, proxy=proxy, admit=lambda _: False)
        with pytest.raises(errors.CertificateRefused):
            await fetch(url, proxy=proxy)
    connect, request, _ = web.requests
    assert connect.startswith(b"CONNECT a.example:1965 HTTP/1.1\r\n")
    assert request == b"gemini://a.example/\r\n"
    assert (found.body, found.peer.address) == (PAGE[found.head_length :], "")
    assert found.peer.certificate == der(CERTIFICATE)


async def test_hanging_up_ends_exchanges_in_flight(tmp_path: Path) -> None:
    async def play(peer: Peer, tls: Records, request: bytes) -> None:
        asked.set()
        await peer.gone()

    asked = asyncio.Event()
    store = LevelStore(tmp_path / "store", create=True)
    certificates = CertificatePins(
        store, accepts_changes=False, wall=lambda: 0.0, count=lambda word: None
    )
    async with capsule(play) as web, client() as web_client:
        made = GeminiClient(web_client, certificates)
        memory = FetchMemory(Memory())
        fetching = asyncio.ensure_future(
            made.fetch(url_of(web), timeout=5, max_size=1000, memory=memory)
        )
        await asked.wait()
        web_client.hang_up()
        with pytest.raises(errors.ConnectionLost):
            await fetching
    store.close()

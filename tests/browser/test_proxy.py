"""The proxy of the browser: who may use it, and what it makes of what comes."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509

from krowlspider.browser.proxy import HEAD_MAX, BrowserProxy, BrowserRequest, BrowserResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

PAGE = "page"


class Asked:
    """What the proxy was asked for. With ``hold`` answers never come: ``begun`` is set when one is
    asked for, ``given_up`` when it is cancelled."""

    def __init__(self, *, hold: bool = False) -> None:
        self.asks: list[BrowserRequest] = []
        self.begun, self.given_up = asyncio.Event(), asyncio.Event()
        self._hold = hold

    async def answer(self, ask: BrowserRequest) -> BrowserResponse:
        self.asks.append(ask)
        self.begun.set()
        try:
            if self._hold:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        is_last = ask.method == "POST"
        return BrowserResponse(200, [(b"x-url", ask.url.encode())], b"content", is_last=is_last)


class Caller:
    """A connection to the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    async def ask(self, target: str, *, method: str = "GET", credentials: str = "") -> bytes:
        """Return the head of an answer, and read its body."""
        line = f"Proxy-Authorization: Basic {credentials}\r\n" if credentials else ""
        self.writer.write(f"{method} {target} HTTP/1.1\r\nHost: x\r\n{line}\r\n".encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        size = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if size and method != "HEAD":
            await self.reader.readexactly(int(size))
        return head


@asynccontextmanager
async def proxy(asked: Asked) -> AsyncIterator[tuple[BrowserProxy, Caller, str]]:
    """A proxy, a connection to it, and the credentials of `PAGE`."""
    made = BrowserProxy(asked.answer, {PAGE}.__contains__)
    port = await made.start()
    assert await made.start() == port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield made, Caller(reader, writer), basic(PAGE, made.password)
    finally:
        writer.close()
        await made.close()


def basic(name: str, password: str) -> str:
    return b64encode(f"{name}:{password}".encode()).decode()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_only_a_page_of_the_browser_is_answered() -> None:
    """Each other user of the machine can connect."""

    async def test() -> None:
        asked = Asked()
        async with proxy(asked) as (made, caller, right):
            wrong = ["", basic(PAGE, "x"), basic("other", made.password), "é", "!"]
            for credentials in wrong:
                for method, target in (("GET", "http://a.test/"), ("CONNECT", "a.test:443")):
                    head = await caller.ask(target, method=method, credentials=credentials)
                    assert head.startswith(b"HTTP/1.1 407 ")
            assert asked.asks == []
            head = await caller.ask("http://a.test/x?y", credentials=right)
            assert head.startswith(b"HTTP/1.1 200 OK\r\nx-url: http://a.test/x?y\r\n")
            assert await caller.ask("http://a.test/", method="HEAD", credentials=right)
            assert [ask.page for ask in asked.asks] == [PAGE, PAGE]

    run(test)


def test_a_tunnel_ends_in_the_proxy_with_the_pinned_key() -> None:
    """Of TLS for a name or an address, and of the plain HTTP of ws: URLs."""

    async def test() -> None:
        asked = Asked()
        for authority in ("a.test:443", "127.0.0.1:8443", "[::1]:443"):
            async with proxy(asked) as (_, caller, right):
                assert await caller.ask(authority, method="CONNECT", credentials=right)
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                await caller.writer.start_tls(context)
                assert f"x-url: https://{authority}/1".encode() in await caller.ask("/1")
                assert f"x-url: https://{authority}/2".encode() in await caller.ask("/2")
                wire = caller.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
                names = x509.load_der_x509_certificate(wire).extensions[0].value
                host = authority.rpartition(":")[0].strip("[]")
                assert [str(name.value) for name in names] == [host]  # type: ignore[attr-defined]
        async with proxy(asked) as (_, caller, right):
            assert await caller.ask("a.test:80", method="CONNECT", credentials=right)
            assert b"x-url: http://a.test:80/ws" in await caller.ask("/ws")

    run(test)


def test_what_the_browser_gives_up_is_given_up() -> None:
    async def test() -> None:
        asked = Asked(hold=True)
        async with proxy(asked) as (_, caller, right):
            asking = asyncio.ensure_future(caller.ask("http://a.test/", credentials=right))
            await asked.begun.wait()
            caller.writer.close()
            with pytest.raises(asyncio.IncompleteReadError):
                await asking
            await asked.given_up.wait()

    run(test)


@pytest.mark.parametrize("sent", [b"GET\r\n\r\n", b"x" * (HEAD_MAX + 1), b"\xff a b\r\n\r\n"])
def test_what_is_no_request_ends_the_connection(sent: bytes) -> None:
    async def test() -> None:
        asked = Asked()
        async with proxy(asked) as (_, caller, _):
            caller.writer.write(sent)
            assert await caller.reader.read() == b""
        assert asked.asks == []

    run(test)


def test_a_last_answer_ends_the_connection() -> None:
    """What follows a refused request may be its body."""

    async def test() -> None:
        asked = Asked()
        async with proxy(asked) as (_, caller, right):
            caller.writer.write(
                b"POST http://a.test/ HTTP/1.1\r\nProxy-Authorization: Basic "
                + right.encode()
                + b"\r\n\r\nGET http://b.test/ HTTP/1.1\r\n\r\n"
            )
            assert b"connection: close\r\n" in await caller.reader.read()
        assert [ask.url for ask in asked.asks] == ["http://a.test/"]

    run(test)


def test_closing_ends_what_is_under_way() -> None:
    async def test() -> None:
        asked = Asked(hold=True)
        async with proxy(asked) as (made, caller, right):
            asking = asyncio.ensure_future(caller.ask("http://a.test/", credentials=right))
            await asked.begun.wait()
            await made.close()
            with pytest.raises((asyncio.IncompleteReadError, OSError)):
                await asking
        assert asked.given_up.is_set()

    run(test)

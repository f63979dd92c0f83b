"""The hostile servers of TLS: what each does with a connection.

Which of them a client means is the name in its hello. One without a name comes to an address.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trustme

from tests.fetch.sealed import CONTENT, Sealer, by_bytes, hello_retry

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Iterator
    from typing import TypeAlias

    Flood: TypeAlias = Callable[[Sealer], Iterator[bytes]]
    Script: TypeAlias = Callable[["TLSWeb", "Peer"], Awaitable[None]]

_NAME = re.compile(rb"[a-z]+\.test")
_ROOM = 65_536
# Records that are made and sent at a time: the good hosts are served in between.
_AT_ONCE = 50
# OpenSSL takes no longer one: OPENSSL_DH_MAX_MODULUS_BITS.
_MODULUS_BITS = 10_000
# The field ffdhe8192 of TLS 1.3: RFC 7919.
_FFDHE8192 = 0x104
# Seconds between two bytes of a handshake, and bytes of a record.
_DRIP = 0.1

_BEGIN, _END = b"-----BEGIN DH PARAMETERS-----\n", b"-----END DH PARAMETERS-----\n"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"
_NOTHING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
_LINKS = b"".join(b"<a href=/%d>x</a>\n" % number for number in range(1000))
_LENGTH = 1_000_000


class Peer:
    """A client whose hello has come."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        hello: bytes,
        log: Path,
        again: Callable[[], None],
    ):
        self._reader = reader
        self._writer = writer
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._log = log
        # Reported of each request after the first.
        self._again = again
        self._asked = 0
        self.hello = hello

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def flight(self, context: ssl.SSLContext) -> bytes:
        """What the server says to the hello."""
        self._object = context.wrap_bio(self._in, self._out, server_side=True)
        self._in.write(self.hello)
        with suppress(ssl.SSLError):
            self._object.do_handshake()
        return self._out.read()

    async def shake_hands(self, context: ssl.SSLContext) -> Sealer:
        """Of TLS 1.3; what seals all that the server says afterwards."""
        flight = self.flight(context)
        sealer = Sealer(self._log)
        # Each connection adds to it.
        os.truncate(self._log, 0)
        await self.send(flight)
        while True:
            self._in.write(await self._some())
            with suppress(ssl.SSLWantReadError):
                self._object.do_handshake()
                return sealer

    async def path(self) -> bytes:
        """The path that is asked for next."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            try:
                head += self._object.read(_ROOM)
            except ssl.SSLWantReadError:
                self._in.write(await self._some())
        if self._asked:
            self._again()
        self._asked += 1
        return head.split(b" ", 2)[1]

    async def gone(self) -> None:
        while await self._reader.read(_ROOM):
            pass

    async def _some(self) -> bytes:
        if data := await self._reader.read(_ROOM):
            return data
        raise ConnectionResetError("the client is gone")


def key_updates(sealer: Sealer) -> Iterator[bytes]:
    """Changes of keys without end."""
    while True:
        yield sealer.key_update()


def key_updates_and_content(sealer: Sealer) -> Iterator[bytes]:
    """The same, each with a byte of a page."""
    yield sealer.content(_HEAD % _LENGTH)
    while True:
        yield sealer.key_update() + sealer.content(b"x")


def content_by_bytes(sealer: Sealer) -> Iterator[bytes]:
    """A page in records of a byte."""
    yield sealer.content(_HEAD % _LENGTH)
    while True:
        yield sealer.content(b"x")


def short_content_by_bytes(sealer: Sealer) -> Iterator[bytes]:
    """A page in records of a byte, short enough for a dozen on one connection."""
    yield sealer.content(_HEAD % 5000 + b"x" * 5000, 1)


def empty_records(sealer: Sealer) -> Iterator[bytes]:
    """A page of which 31 of 32 records are empty: OpenSSL refuses 32 such in a row."""
    yield sealer.content(_HEAD % _LENGTH)
    while True:
        yield b"".join(sealer.seal(CONTENT, b"") for _ in range(31)) + sealer.content(b"x")


def flooding(flood: Flood) -> Script:
    """1,000 links, each answered by ``flood``."""

    async def script(web: TLSWeb, peer: Peer) -> None:
        sealer = await peer.shake_hands(web.context)
        while True:
            path = await peer.path()
            if path == b"/":
                await peer.send(sealer.content(_HEAD % len(_LINKS) + _LINKS))
            elif not path[1:].isdigit():
                await peer.send(sealer.content(_NOTHING))
            else:
                await _send_all(peer, flood(sealer))

    return script


async def _send_all(peer: Peer, records: Iterator[bytes]) -> None:
    batch = b""
    for number, record in enumerate(records, 1):
        batch += record
        if number % _AT_ONCE == 0:
            await peer.send(batch)
            await asyncio.sleep(0)
            batch = b""
    await peer.send(batch)


async def long_modulus(web: TLSWeb, peer: Peer) -> None:
    """DHE alone, over a field that takes a client that offers it 0.9 s."""
    await peer.send(peer.flight(web.long_modulus))
    await peer.gone()


async def long_field(_: TLSWeb, peer: Peer) -> None:
    """Ask for a key over the longest field of TLS 1.3, which takes 0.1 s."""
    await peer.send(hello_retry(peer.hello, _FFDHE8192))
    await peer.gone()


async def dripped(web: TLSWeb, peer: Peer) -> None:
    """A handshake in records of a byte, of which a byte comes at a time."""
    for byte in by_bytes(peer.flight(web.context)):
        await peer.send(bytes([byte]))
        await asyncio.sleep(_DRIP)
    await peer.gone()


class TLSWeb:
    """All of them at one port; ``scripts`` by name, as of an Attack. ``asked`` counts connections,
    and each further request on one, by address."""

    def __init__(self, scripts: dict[str, Script], asked: Counter[str]):
        self._scripts = scripts
        self._asked = asked
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "secrets"
        self.context = _context()
        self.context.keylog_filename = str(self._log)
        self.context.num_tickets = 0
        self.long_modulus = _long_modulus(Path(self._folder.name) / "modulus.pem")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # uvloop has a RuntimeError for a transport that is closed.
        with suppress(OSError, RuntimeError, ssl.SSLError):
            if hello := await reader.read(_ROOM):
                found = _NAME.search(hello)
                name = found[0].decode() if found else ""
                count = partial(self._count, writer.get_extra_info("sockname")[0])
                count()
                await self._scripts[name](self, Peer(reader, writer, hello, self._log, count))
        writer.close()

    def _count(self, address: str) -> None:
        self._asked[address] += 1


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    authority.issue_cert("*.test", key_type=trustme.KeyType.RSA).configure_cert(context)
    return context


def _long_modulus(path: Path) -> ssl.SSLContext:
    # The first byte keeps it positive. Whether it is prime, nobody looks.
    modulus = b"\x00" + b"\xa7" * (_MODULUS_BITS // 8)
    numbers = b"\x02" + _length(modulus) + modulus + b"\x02\x01\x02"
    der = base64.encodebytes(b"\x30" + _length(numbers) + numbers)
    path.write_bytes(_BEGIN + der + _END)
    context = _context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("DHE-RSA-AES128-GCM-SHA256:@SECLEVEL=0")
    context.load_dh_params(path)
    return context


def _length(data: bytes) -> bytes:
    """Of DER, for more than 255 bytes."""
    return b"\x82" + len(data).to_bytes(2, "big")

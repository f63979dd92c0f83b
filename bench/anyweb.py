"""A web server that answers every request with a page of 77 links, as in ``bench.frontier``.

``python -m bench.anyweb HOSTS [NAMES]`` prints its port. NAMES is the pattern of the host names,
with {} for the number. A page has 38 kB. 16 of its links are new and lead to its own host. 4 are
new and lead to any of the HOSTS hosts. 57 were on earlier pages.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import deque

from bench.frontier import LINKS, NEW, OWN

_TEXT = (
    b"<p>" + b"Some words of a page of ordinary length, which says nothing new. " * 8 + b"</p>\n"
)
_PARAGRAPHS = 64


class Pages:
    """Makes the pages of the server."""

    def __init__(self, hosts: int, port: int, names: str | None):
        self._hosts = hosts
        self._port = port
        self._names = names
        self._chance = random.Random(1)
        self._recent: deque[str] = deque(maxlen=1000)

    def page(self, host: str) -> bytes:
        chance = self._chance
        new = [self._url(host) for _ in range(OWN)]
        for _ in range(NEW - OWN):
            number = chance.randrange(self._hosts)
            new.append(self._url(f"{self._name(number)}:{self._port}"))
        known = chance.choices(self._recent or new, k=LINKS - NEW)
        self._recent.extend(new)
        links = [f"<a href={url}>there</a>\n".encode() for url in [*new, *known]]
        body = [b"<!doctype html><title>A page</title>\n"]
        for number in range(max(_PARAGRAPHS, len(links))):
            body += links[number : number + 1]
            body += [_TEXT] if number < _PARAGRAPHS else []
        return b"".join(body)

    def _name(self, number: int) -> str:
        if self._names is None:
            return f"host{number}.example{number % 7}.com"
        return self._names.format(number)

    def _url(self, host: str) -> str:
        return f"http://{host}/section/{self._chance.randrange(10**9)}/page.html"


class _Connection(asyncio.Protocol):
    def __init__(self, pages: Pages):
        self._pages = pages
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            host = next(line[6:] for line in head.split(b"\r\n") if line[:6].lower() == b"host: ")
            body = self._pages.page(host.decode())
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )


async def serve(hosts: int, names: str | None = None) -> None:
    loop = asyncio.get_running_loop()
    pages: list[Pages] = []
    server = await loop.create_server(lambda: _Connection(pages[0]), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pages.append(Pages(hosts, port, names))
    print(port, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), *sys.argv[2:]))

"""Render the nodes of a graph as answers of a site."""

from __future__ import annotations

import struct
import zlib
from html import escape
from typing import TYPE_CHECKING

from tests.mockweb.nodes import GONE, Node, node
from tests.mockweb.reply import Reply, gzipped
from tests.mockweb.robots import robots

if TYPE_CHECKING:
    from tests.mockweb.graph import Graph
    from tests.mockweb.hrefs import Link

_CACHED = 8_000
"""Most rendered answers kept, of about 10 KB each. Then all are dropped."""

_PROSE = (
    "Most of the web is small: a village band, a price list, the minutes of a parish council. "
    "Nobody reads it twice, and some day somebody wants exactly that page back. "
)

_RETRY_AFTER = [("Retry-After", "1")]


class GraphSite:
    """Serves a graph whose `port` is known."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._cache: dict[tuple[str, str, int], Reply] = {}

    def answer(self, host: str, target: str, nth: int) -> Reply:
        """See `Site.answer`. The answer is 404 on a host that is not in the graph."""
        # After the refusals, at most two, the answer is always the same.
        key = (host, target, min(nth, 2))
        reply = self._cache.get(key)
        if reply is None:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            reply = self._cache[key] = self._render(*key)
        return reply

    def _render(self, host: str, target: str, nth: int) -> Reply:
        index = self._graph.index(host)
        if index is None:
            return _reply(GONE, host, target)
        if target == "/robots.txt":
            return _robots(self._graph, index, nth)
        found = node(self._graph, index, target)
        if nth < found.refusals:
            return Reply(found.busy, [*_TEXT, *_RETRY_AFTER], b"come back later\n")
        return _reply(found, host, target)


_TEXT = [("Content-Type", "text/plain; charset=utf-8")]


def _robots(graph: Graph, index: int, nth: int) -> Reply:
    found = robots(graph, index)
    if nth < found.refusals:
        return Reply(500, _TEXT, b"User-agent: *\nDisallow: /\n")
    if found.same_as is not None:
        return Reply(found.status, [("Location", graph.url(found.same_as, "/robots.txt"))])
    return Reply(found.status, _TEXT, found.text.encode())


def _reply(found: Node, host: str, target: str) -> Reply:
    headers = [("Content-Type", found.mime)]
    if found.location is not None:
        headers.append(("Location", found.location.href))
    body = _BODIES.get(found.mime, _html)(found, f"{target} of {host}")
    if found.coding == "gzip":
        headers.append(("Content-Encoding", "gzip"))
        body = gzipped(body)
    framing = found.coding if found.coding in ("chunked", "close") else "length"
    return Reply(found.status, headers, body, framing, latency=found.latency)


def _html(found: Node, name: str) -> bytes:
    base = f'<base href="{escape(found.base)}">' if found.base else ""
    refresh = "".join(
        f'<meta http-equiv="refresh" content="30; url={escape(link.href)}">'
        for link in found.links
        if link.tag == "refresh"
    )
    shown = [_shown(place, link) for place, link in enumerate((*found.links, *found.traps))]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f"<title>{escape(name)}</title>{base}{refresh}</head>\n<body><h1>{escape(name)}</h1>\n"
        + "\n".join(f"<p>{_PROSE}{link}</p>" for link in shown)
        + "\n</body></html>\n"
    ).encode()


def _shown(place: int, link: Link) -> str:
    href = escape(link.href)
    return {
        "area": f'<map><area href="{href}"></map>',
        "iframe": f'<iframe src="{href}"></iframe>',
        "refresh": "",
        "nofollow": f'<a rel="external nofollow" href="{href}">{place}</a>',
        "comment": f'<!-- <a href="{href}">{place}</a> -->',
        "script": f"<script>var s = '<a href=\"{link.href}\">{place}</a>';</script>",
    }.get(link.tag, f'<a href="{href}">{place}</a>')


def _text(found: Node, name: str) -> bytes:
    return f"{name}\n{_PROSE * 3}\nhttp://127.0.0.1:9/not-a-link\n".encode()


def _png(_found: Node, _name: str) -> bytes:
    """Make an image of one grey pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    pixel = zlib.compress(b"\0\x80")
    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    )


_BODIES = {"text/plain": _text, "image/png": _png}

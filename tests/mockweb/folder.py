"""Serve a folder of real HTML files as a web, and compute what a crawl of it reaches."""

from __future__ import annotations

import re
import zlib
from collections import deque
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urljoin

import lxml.etree
import lxml.html

from tests.mockweb.graph import Graph
from tests.mockweb.identity import identity
from tests.mockweb.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_ATTRIBUTE = re.compile(r"""(?i)(?<![\w-])((?:href|src)\s*=\s*)("[^"]*"|'[^']*'|[^\s>"']+)""")
_REFRESH = re.compile(
    r"""(?i)(<meta[^>]*content\s*=\s*["']?\s*[\d.]+\s*[;,]\s*url\s*=\s*)(['"]?[^"'>]+)"""
)

_HERE = "http://folder.invalid"
"""Base URL of the folder while links are resolved. The name is reserved: no page links to it."""

_NOWHERE = "#ext"
"""Replaces each link that leaves the folder: leads to the page itself."""


class FolderSite:
    """Serves the `*.html` files under `root`, each at its path on the one host that owns it.

    Links between the files become absolute URLs on their hosts `127.x.y.z`, without query. All
    other links become `#ext`. Bytes outside links are unchanged. There is no robots.txt.

    :raises ValueError: the folder has no page
    """

    def __init__(self, root: Path, hosts: int, port: int) -> None:
        self._graph = Graph(hosts, 1, 0, port=port)
        files = {
            f"/{quote(file.relative_to(root).as_posix())}": file
            for file in sorted(root.rglob("*.html"))
        }
        if not files:
            raise ValueError(f"no *.html file under {root}")
        self.urls = {path: self._graph.url(self._owner(path), path) for path in files}
        self._replies = {path: self._reply(path, file) for path, file in files.items()}

    def answer(self, host: str, target: str, nth: int) -> Reply:
        """See `Site.answer`. The answer is 404 on a host that does not own the page."""
        path = target.partition("?")[0]
        reply = self._replies.get(path)
        if reply is None or self._graph.index(host) != self._owner(path):
            return _MISSING
        return reply

    def seeds(self) -> list[str]:
        """Return the first page by path."""
        return [next(iter(self.urls.values()))]

    def body(self, path: str) -> bytes:
        """Return the bytes of a page as served."""
        return self._replies[path].body

    def _owner(self, path: str) -> int:
        return zlib.crc32(path.encode()) % self._graph.hosts

    def _reply(self, path: str, file: Path) -> Reply:
        # latin-1 keeps every byte of a page in any charset.
        text = file.read_bytes().decode("latin-1")
        text = _ATTRIBUTE.sub(lambda match: f'{match[1]}"{self._moved(path, match[2])}"', text)
        text = _REFRESH.sub(lambda match: match[1] + self._moved(path, match[2]), text)
        return Reply(200, [("Content-Type", "text/html")], text.encode("latin-1"))

    def _moved(self, path: str, written: str) -> str:
        href = unescape(written.strip("\"' \t\r\n"))
        if href.startswith("#"):
            return href.replace('"', "")
        try:
            url = urljoin(_HERE + path, href)
        except ValueError:
            return _NOWHERE
        found, _, fragment = url.partition("#")
        found = quote(unquote(found.removeprefix(_HERE).partition("?")[0]))
        found = f"{found}index.html" if found.endswith("/") else found
        if found not in self.urls:
            return _NOWHERE
        return f"{self.urls[found]}#{quote(fragment)}" if fragment else self.urls[found]


_MISSING = Reply(404, [("Content-Type", "text/plain")], b"no such page\n")


def folder_oracle(
    root: Path, hosts: int, port: int, seeds: Iterable[str] | None = None
) -> set[str]:
    """Return the URLs that a crawl reaches from ``seeds``, by default the first page by path.

    Links are read with lxml from the served pages.
    """
    site = FolderSite(root, hosts, port)
    paths = {url: path for path, url in site.urls.items()}
    queue = deque(site.seeds() if seeds is None else seeds)
    reached = set(queue)
    while queue:
        url = queue.popleft()
        for link in _links(site.body(paths[url]), url) if url in paths else ():
            if link not in reached:
                reached.add(link)
                queue.append(link)
    return reached


def _links(body: bytes, url: str) -> list[str]:
    try:
        page = lxml.html.document_fromstring(body)
    except lxml.etree.ParserError:  # an empty document
        return []
    robots = ",".join(_found(page, _ROBOTS)).lower().replace(" ", "").split(",")
    if "nofollow" in robots or "none" in robots:
        return []
    base = urljoin(url, next(iter(_found(page, "//base/@href")), ""))
    refreshes = (re.search(_TARGET, content) for content in _found(page, _REFRESHES))
    hrefs = [*_found(page, _HREFS), *(match[1] for match in refreshes if match)]
    hrefs += [link.get("href", "") for link in page.iter("link") if _is_followed(link)]
    urls = (identity(href, base) for href in hrefs if href.strip())
    return [link for link in urls if link is not None and link.startswith("http://127.")]


def _is_followed(link: lxml.html.HtmlElement) -> bool:
    relations = set(link.get("rel", "").lower().split())
    return (
        not relations.isdisjoint(_RELATIONS)
        and relations.isdisjoint({"nofollow", "stylesheet"})
        and "html" in link.get("type", "html").lower()
    )


_LOWER = "translate(@{}, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"
_FOLLOWED = f"[not(contains({_LOWER.format('rel')}, 'nofollow'))]/@href"
_HREFS = f"//a{_FOLLOWED} | //area{_FOLLOWED} | //frame/@src | //iframe/@src"
_RELATIONS = {
    *("next", "prev", "previous", "first", "last", "start", "up", "contents", "index", "chapter"),
    *("section", "subsection", "appendix", "glossary", "alternate", "collection", "item"),
    *("related", "bookmark"),
}
_ROBOTS = f"//meta[{_LOWER.format('name')}='robots']/@content"
_REFRESHES = f"//meta[{_LOWER.format('http-equiv')}='refresh']/@content"
_TARGET = r"(?i)url\s*=\s*['\"]?([^'\"]+)"


def _found(page: lxml.html.HtmlElement, path: str) -> list[str]:
    found = page.xpath(path)
    return [str(value) for value in found] if isinstance(found, list) else []

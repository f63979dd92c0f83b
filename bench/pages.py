"""The pages of the bench web, and their URLs: real HTML with its links rewritten into one web.

The web has far more pages than are kept in memory. A page is one of about 2,000 templates with a
comment at its end, which makes its bytes differ from those of all others.
"""

from __future__ import annotations

import random
import re
import zlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import lxml.html

from krowlspider.urls.page.headers import FOLLOWED
from tests.support.realdocs import documentation

if TYPE_CHECKING:
    from pathlib import Path

# Least and most bytes of the files used: 1,542 files of 40 kB on average. One of 2 MB would shift
# the average of a short run.
SIZES = (8_000, 250_000)
# The same for a small web: 766 files of 4.7 kB on average. With larger pages the CPU of one core,
# not the latency, limits 2,000 requests in flight.
SMALL_SIZES = (500, 6_000)
# Three of four links lead to the page's own host.
OWN = 0.75
# Share of the links within a page that stay as they are: so a page has 77 other links on average.
INSIDE = 0.4
# robots.txt disallows every twentieth page of a host.
PRIVATE = 20
ROBOTS = b"""\
# The web of a benchmark
User-agent: *
Disallow: /private/
Disallow: /search
Disallow: /*?print=
Allow: /search/about

User-agent: badbot
Disallow: /
"""
_LINK = re.compile(rb"""(<a\s[^>]*?\bhref\s*=\s*)("[^"]*"|'[^']*'|[^\s>"']+)""", re.IGNORECASE)
# nofollow, refresh and links of the head are removed: crawlers differ in how they treat them.
_REFUSALS = re.compile(rb"\bnofollow\b", re.IGNORECASE)
_REFRESH = re.compile(rb"<meta[^>]*http-equiv\s*=\s*.?refresh[^>]*>", re.IGNORECASE)
_RELATED = re.compile(
    rb"<link\s[^>]*\brel\s*=\s*.?(?:%b)\b[^>]*>" % "|".join(FOLLOWED).encode(), re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The parameters of a web.

    Each of ``hosts`` hosts has ``per_host`` pages. Hosts are addresses 127.x.y.z, or with ``names``
    names like www.site7.test. ``missing`` is the share of pages that are answered by 404,
    ``latency`` the seconds before each answer. ``small`` pages have few links, and a tenth of the
    bytes.
    """

    hosts: int = 2000
    per_host: int = 100
    tls: bool = False
    gzip: bool = False
    missing: float = 0.0
    names: bool = False
    latency: float = 0.0
    small: bool = False
    templates: int = 10_000
    port: int = 0

    def name(self, host: int) -> str:
        return f"www.site{host}.test" if self.names else address(host)

    def root(self, host: int) -> str:
        return f"{'https' if self.tls else 'http'}://{self.name(host)}:{self.port}"

    def url(self, number: int) -> str:
        """Return the URL of a page by its number. The pages of a host have successive numbers."""
        return self.root(number // self.per_host) + path(number % self.per_host)

    def seeds(self, count: int) -> list[str]:
        """Return the first page of each of the first ``count`` hosts."""
        return [self.url(host * self.per_host) for host in range(count)]

    @property
    def pages(self) -> int:
        return self.hosts * self.per_host

    def is_missing(self, number: int) -> bool:
        # The first page of a host is a seed, and never missing.
        return bool(number % self.per_host) and _mixed(number) % 1000 < self.missing * 1000


def address(host: int) -> str:
    """Return a host's address: 250 * 250 hosts for each second octet from 10 on.

    Hosts with consecutive numbers are in different /24 blocks, as strangers' hosts mostly are: what
    a block may have in flight does not limit the crawl.
    """
    rest = host % 62_500
    return f"127.{10 + host // 62_500}.{rest % 250}.{rest // 250 + 1}"


def path(page: int) -> str:
    return f"/{'private' if is_private(page) else 'documents'}/section-{page}/page.html"


def is_private(page: int) -> bool:
    return page % PRIVATE == PRIVATE - 1


def _mixed(number: int) -> int:
    return zlib.crc32(number.to_bytes(8, "big"))


class Template:
    """A file with its links rewritten.

    It has ``links`` links to other pages, of which ``distinct`` are different.
    """

    __slots__ = ("_crc", "_packed", "body", "distinct", "links")

    def __init__(self, body: bytes, links: list[str], *, gzip: bool):
        self.body = body
        self.links = len(links)
        self.distinct = len(set(links))
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        # A sync flush ends at a byte, so that more can follow.
        self._packed = packer.compress(body) + packer.flush(zlib.Z_SYNC_FLUSH) if gzip else b""
        self._crc = zlib.crc32(body)

    def page(self, number: int) -> bytes:
        return self.body + _mark(number)

    def packed(self, number: int) -> bytes:
        """Return the same page as gzip (RFC 1952). Its comment is a last, stored block."""
        mark = _mark(number)
        size = len(mark).to_bytes(2, "little")
        inverse = (len(mark) ^ 0xFFFF).to_bytes(2, "little")
        crc = zlib.crc32(mark, self._crc).to_bytes(4, "little")
        length = (len(self.body) + len(mark)).to_bytes(4, "little")
        head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
        return b"".join((head, self._packed, b"\x01", size, inverse, mark, crc, length))


def _mark(number: int) -> bytes:
    return b"<!-- page %d of the bench web -->\n" % number


class Pages:
    """All pages of a web, made from Debian's documentation.

    :raises RuntimeError: the documentation is not installed; the message says what to do
    """

    def __init__(self, shape: Shape):
        self.shape = shape
        folder = documentation()
        files = [file for file in sorted(folder.rglob("*.html")) if _fits(file, shape)]
        # Shuffle: the files of one package are similar in size.
        random.Random(1).shuffle(files)
        self.templates = [
            self._template(number, file) for number, file in enumerate(files[: shape.templates])
        ]

    def template(self, number: int) -> Template:
        return self.templates[_mixed(number) % len(self.templates)]

    def _template(self, number: int, file: Path) -> Template:
        chance = random.Random(number)
        own = chance.sample(range(self.shape.per_host), self.shape.per_host)
        links: list[str] = []

        def moved(match: re.Match[bytes]) -> bytes:
            if match[2].lstrip(b"\"'").startswith(b"#") and chance.random() < INSIDE:
                return match[0]
            link = self._link(chance, own)
            links.append(link)
            return b'%b"%b"' % (match[1], link.encode())

        body = _REFRESH.sub(b"", _REFUSALS.sub(b"noopener", file.read_bytes()))
        body = _RELATED.sub(b"", body)
        body = _LINK.sub(moved, body)
        return Template(body, links, gzip=self.shape.gzip)

    def _link(self, chance: random.Random, own: list[int]) -> str:
        if chance.random() < OWN:
            # Take the pages of the host in turn, so that few links come twice.
            own.append(own.pop(0))
            return path(own[-1])
        return self.shape.url(chance.randrange(self.shape.pages))

    def reachable(self, seeds: list[str]) -> tuple[set[int], set[int]]:
        """Return the numbers of the pages that a crawl from ``seeds`` fetches, and of those that
        robots.txt forbids.

        Links are read from the served bytes with lxml.
        """
        shape = self.shape
        numbers = {shape.url(number): number for number in range(shape.pages)}
        links = {id(template): _hrefs(template.body) for template in self.templates}
        queue = deque(numbers[seed] for seed in seeds)
        reached = set(queue)
        refused: set[int] = set()
        while queue:
            number = queue.popleft()
            if is_private(number % shape.per_host):
                refused.add(number)
                continue
            if shape.is_missing(number):
                continue
            url = shape.url(number)
            for href in links[id(self.template(number))]:
                found = numbers.get(urljoin(url, href))
                if found is not None and found not in reached:
                    reached.add(found)
                    queue.append(found)
        return reached - refused, refused


def _fits(file: Path, shape: Shape) -> bool:
    smallest, largest = SMALL_SIZES if shape.small else SIZES
    return smallest <= file.stat().st_size <= largest


def _hrefs(body: bytes) -> list[str]:
    found = lxml.html.document_fromstring(body).xpath("//a/@href")
    assert isinstance(found, list)
    return [str(href) for href in found if not str(href).startswith("#")]

"""The attacks: the hosts, links and answers of each."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import brotli

from bench.hostile import robots, tls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.hostile.tls import Flood, Script

# Sockets that keep the backlog of the black hole full.
BLACK_HOLE: list[Any] = []


@dataclass(frozen=True, slots=True)
class Web:
    """Ports of the server: of all hosts, of the black hole, of TLS, of the victim of port scans.

    The black hole completes no connection.
    """

    port: int
    hole: int
    tls: int
    victim: Sequence[int] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Request:
    """A request. ``address`` and ``port`` are those of the server."""

    host: str
    path: str
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Reply:
    """``data`` is sent after ``after`` seconds, then a ``drip`` piece every ``every`` seconds."""

    data: bytes
    after: float = 0.0
    drip: Sequence[bytes] = ()
    every: float = 0.0


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack.

    - ``what``: its description.
    - ``hosts``: addresses by name, as in KROWL_RESOLVE.
    - ``seeds``: the links on good pages that lead to it.
    - ``keep``: the share of its rate that a good host must keep.
    - ``tls``: handles connections to the TLS port, by the requested name; "" is no name.
    """

    what: str
    hosts: dict[str, str]
    seeds: Callable[[Web], list[str]]
    answer: Callable[[Request, Web], Reply | None]
    keep: float = 0.5
    settings: dict[str, object] = field(default_factory=dict)
    tls: dict[str, Script] = field(default_factory=dict)


def page(
    body: bytes, *, kind: bytes = b"text/html", status: bytes = b"200 OK", more: bytes = b""
) -> Reply:
    """Return a complete answer."""
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n"
    return Reply(head % (status, kind, more, len(body)) + body)


_NO_ROBOTS = page(b"", status=b"404 Not Found")
_SMALL = page(b"<!doctype html><title>x</title><p>x")


def _root(host: str) -> Callable[[Web], list[str]]:
    return lambda web: [f"http://{host}:{web.port}/"]


def _one(
    what: str,
    name: str,
    answers: dict[str, Reply],
    *,
    keep: float = 0.5,
    otherwise: Reply = _SMALL,
) -> Attack:
    """Return an attack by a single host, which answers by path."""

    def answer(request: Request, _: Web) -> Reply | None:
        if request.host != name:
            return None
        default = _NO_ROBOTS if request.path in ("/robots.txt", "/sitemap.xml") else otherwise
        return answers.get(request.path, default)

    return Attack(what, {name: "127.66.6.6"}, _root(name), answer, keep)


_UTF8 = b"text/html; charset=utf-8"


def _coded(body: bytes, coding: bytes, kind: bytes = b"text/html") -> Reply:
    return page(body, kind=kind, more=b"Content-Encoding: " + coding + b"\r\n")


def _links(urls: Sequence[str]) -> Reply:
    return page("\n".join(f"<a href={url}>x</a>" for url in urls).encode())


# --- robots.txt ---


def _costly(name: str, what: str) -> Attack:
    make, path = robots.COSTLY[name]
    body = _coded(brotli.compress(make()), b"br", b"text/plain")
    answers = {"/robots.txt": body, "/": _links(robots.links(path))}
    return _one(f"robots.txt of 2 kB of brotli and 1,000 links: {what}", f"{name}.test", answers)


# --- codings ---

# The order of code lengths in a deflate block: RFC 1951, section 3.2.7.
_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1)


def _empty_blocks() -> bytes:
    """Return eight empty deflate blocks with their own codes: 92 bytes that take long to decode."""
    bits: list[int] = []

    def put(value: int, count: int) -> None:
        bits.extend(value >> at & 1 for at in range(count))

    for _ in range(8):
        put(0b100, 3)
        put(0, 5 + 5)
        put(len(_ORDER) - 4, 4)
        for symbol in _ORDER:
            put({18: 1, 0: 2, 1: 2}.get(symbol, 0), 3)
        # 256 literals and lengths without a code, the end of the block, a distance, and the end.
        put(0, 1)
        put(138 - 11, 7)
        put(0, 1)
        put(118 - 11, 7)
        put(0b11, 2)
        put(0b11, 2)
        put(0, 1)
    blocks = bytearray(len(bits) // 8)
    for at, bit in enumerate(bits):
        blocks[at // 8] |= bit << at % 8
    return bytes(blocks)


def _deflated(body: bytes) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflater.compress(body) + deflater.flush()


def _layers(count: int) -> bytes:
    body = _empty_blocks() * 100_000
    for _ in range(count - 1):
        body = _deflated(body)
    return body


def _gzip(body: bytes) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
    return deflater.compress(body) + deflater.flush()


# --- URLs ---

_MARKS = "\u0301\u0316" * 100_000
_HREF = f"http://a{_MARKS}.test/"
_SITEMAP = (
    "<?xml version='1.0'?><urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>"
    + f"<url><loc>{_HREF}</loc></url>" * 4
    + "</urlset>"
).encode()


def _moved(location: bytes) -> Reply:
    return page(b"", status=b"302 Found", more=b"Location: " + location + b"\r\n")


# --- endless hosts ---


def _dead(what: str, host: str, targets: Callable[[Web], list[str]], reply: Reply | None) -> Attack:
    def answer(request: Request, web: Web) -> Reply | None:
        if request.host == host:
            return _NO_ROBOTS if request.path == "/robots.txt" else _links(targets(web))
        return reply if request.host.startswith("127.") else None

    return Attack(what, {host: "127.66.6.6"}, _root(host), answer, 0.3)


def _addresses(port: int, scheme: str = "http") -> list[str]:
    places = ((100 + n // 5000, n // 250, n % 250 + 1) for n in range(10_000))
    return [f"{scheme}://127.{a}.{b}.{c}:{port}/" for a, b, c in places]


_DRIP = Reply(
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000\r\n\r\n",
    drip=[b"x"] * 1000,
    every=10.0,
)
_NEVER = Reply(b"", after=3600.0)


def _wildcard(what: str, after: float) -> Attack:
    """Return an attack by 256 domains of endless names at 32 addresses."""
    hosts = {f"*.w{n}.test": f"127.7.0.{n % 32 + 1}" for n in range(256)}

    def seeds(web: Web) -> list[str]:
        return [f"http://hub{n}.w{n}.test:{web.port}/" for n in range(5)]

    def answer(request: Request, web: Web) -> Reply | None:
        if ".w" not in request.host:
            return None
        if request.path == "/robots.txt":
            return Reply(_NO_ROBOTS.data, after=0.0 if request.host.startswith("hub") else after)
        if request.host.startswith("hub"):
            at = int(request.host[3]) * 10_000
            names = (f"n{n}.w{n % 256}.test" for n in range(at, at + 10_000))
            return _links([f"http://{name}:{web.port}/" for name in names])
        return Reply(_SMALL.data, after=after)

    return Attack(what, hosts, seeds, answer, 0.3)


def _crowd(what: str, reply: Reply) -> Attack:
    """Return an attack by 5,000 domains at one address."""
    host = "crowd.test"

    def answer(request: Request, web: Web) -> Reply | None:
        if request.host == host:
            urls = [f"http://c{n}.co.uk:{web.port}/" for n in range(5000)]
            return _NO_ROBOTS if request.path == "/robots.txt" else _links(urls)
        return reply if request.host.endswith(".co.uk") else None

    hosts = {host: "127.66.6.6", "*.co.uk": "127.8.8.8"}
    return Attack(what, hosts, _root(host), answer)


def _ports() -> Attack:
    host = "scan.test"

    def answer(request: Request, web: Web) -> Reply | None:
        if request.host == host:
            ports = [22, 25, 6000, 6379, 6667, 10_250, *web.victim]
            urls = [f"http://victim.co.uk:{port}/" for port in ports]
            urls += [f"http://v{port}.co.uk:{port}/" for port in web.victim]
            return _NO_ROBOTS if request.path == "/robots.txt" else _links(urls)
        return _SMALL if request.address == "127.9.9.9" else None

    hosts = {host: "127.66.6.6", "*.co.uk": "127.9.9.9"}
    return Attack("links to 106 ports of one address", hosts, _root(host), answer)


def _chunked(after: float) -> Attack:
    """Return an attack by 300 hosts, each with a slow chunked body of 10 MiB."""
    host = "chunks.test"
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = Reply(head, drip=[chunk] * 159, every=after)

    def answer(request: Request, web: Web) -> Reply | None:
        if request.host == host:
            urls = [f"http://m{n}.co.uk:{web.port}/" for n in range(300)]
            return _NO_ROBOTS if request.path == "/robots.txt" else _links(urls)
        if not request.host.endswith(".co.uk"):
            return None
        return _NO_ROBOTS if request.path == "/robots.txt" else body

    hosts = {host: "127.66.6.6"}
    hosts |= {f"m{n}.co.uk": f"127.10.{n}.1" for n in range(256)} | {"*.co.uk": "127.11.1.1"}
    return Attack("300 chunked bodies of 10 MiB at a time", hosts, _root(host), answer, 0.3)


# --- TLS ---


def _secure(what: str, host: str, script: Script) -> Attack:
    def seeds(web: Web) -> list[str]:
        return [f"https://{host}:{web.tls}/"]

    return Attack(what, {host: "127.66.6.6"}, seeds, lambda *_: None, tls={host: script})


def _flood(what: str, host: str, flood: Flood) -> Attack:
    return _secure(f"TLS: 1,000 answers of {what}", host, tls.flooding(flood))


def _dripped() -> Attack:
    dead = _dead(
        "10,000 links to addresses whose TLS handshake comes a byte each 0.1 s",
        "handshake.test",
        lambda web: _addresses(web.tls, "https"),
        None,
    )
    return replace(dead, tls={"": tls.dripped})


ATTACKS: dict[str, Attack] = {
    "robots-agents": _one(
        "robots.txt of 145 kB: 5,000 times `user-agent: *`, then 5,000 rules",
        "agents.test",
        {"/robots.txt": page(robots.AGENTS, kind=b"text/plain")},
    ),
    "robots-repeated": _one(
        "the same group 19,000 times, 511 kB in 45 bytes of brotli",
        "repeated.test",
        {"/robots.txt": _coded(brotli.compress(robots.REPEATED), b"br", b"text/plain")},
    ),
    "robots-wildcards": _costly("wildcards", "1,150 rules of 81 wildcards and `$`"),
    "robots-near": _costly("near", "1,150 rules that nearly match at each place of the path"),
    "robots-prefixes": _costly("prefixes", "prefixes of all lengths up to 989, which all match"),
    "robots-escapes": _costly("escapes", "1,150 rules of 22 wildcards between escapes, and `$`"),
    "robots-groups": _costly(
        "groups", "1,150 groups of our name and everyone's, with wildcards and `$`"
    ),
    "codings-4": _one(
        "1,000 pages in four codings, of empty deflate blocks",
        "layers.test",
        {"/": _links([f"/{n}" for n in range(1000)])},
        otherwise=_coded(_layers(4), b"deflate, deflate, deflate, deflate"),
    ),
    "codings-2": _one(
        "1,000 pages in two codings, of empty deflate blocks",
        "two.test",
        {"/": _links([f"/{n}" for n in range(1000)])},
        otherwise=_coded(_layers(2), b"deflate, deflate"),
    ),
    "sitemap-blocks": _one(
        "a sitemap in two codings and gzip, of empty deflate blocks",
        "map.test",
        {"/sitemap.xml": _coded(_layers(3), b"deflate, deflate", b"application/xml")},
    ),
    "robots-blocks": _one(
        "robots.txt in two codings, of empty deflate blocks",
        "rblocks.test",
        {"/robots.txt": _coded(_layers(2), b"deflate, deflate", b"text/plain")},
    ),
    "long-href": _one(
        "a link of 400 kB, in 51 bytes of brotli",
        "href.test",
        {"/": _coded(brotli.compress(f"<a href='{_HREF}'>x</a>".encode()), b"br", _UTF8)},
    ),
    "long-location": _one(
        "a Location of 48 kB",
        "moved.test",
        {"/": _moved(f"http://a{_MARKS[:23_000]}.test/".encode())},
    ),
    "long-loc": _one(
        "a sitemap whose URLs have 400 kB",
        "loc.test",
        {"/sitemap.xml": page(_SITEMAP, kind=b"application/xml")},
    ),
    "dead-links": _dead(
        "10,000 links to addresses that do not answer",
        "dead.test",
        lambda web: _addresses(web.hole),
        None,
    ),
    "silent-links": _dead(
        "10,000 links to addresses that connect and say nothing",
        "silent.test",
        lambda web: _addresses(web.port),
        _NEVER,
    ),
    "slow-bodies": _dead(
        "10,000 links to bodies of a byte each 10 s",
        "drip.test",
        lambda web: _addresses(web.port),
        _DRIP,
    ),
    "wildcard-fast": _wildcard(
        "256 domains of endless names at 32 addresses, answers at once", 0.0
    ),
    "wildcard-slow": _wildcard("the same, answers after 20 s", 20.0),
    "crowd": _crowd("5,000 names at one address, which answers at once", _SMALL),
    "crowd-throttled": _crowd(
        "5,000 names at one address, all 429 with Retry-After: 3600",
        page(b"", status=b"429 Too Many Requests", more=b"Retry-After: 3600\r\n"),
    ),
    "ports": _ports(),
    "chunked": _chunked(0.05),
    "tls-keys": _flood("changes of keys without end", "keys.test", tls.key_updates),
    "tls-keys-content": _flood(
        "changes of keys without end, each with a byte of content",
        "keybytes.test",
        tls.key_updates_and_content,
    ),
    "tls-bytes": _flood(
        "records of a byte of content, without end", "bytes.test", tls.content_by_bytes
    ),
    "tls-bytes-short": _flood(
        "5,000 records of a byte of content", "short.test", tls.short_content_by_bytes
    ),
    "tls-empty": _flood(
        "empty records without end, 31 to a byte of content", "empty.test", tls.empty_records
    ),
    "tls-modulus": _secure(
        "TLS 1.2 with DHE alone, a modulus of 10,000 bits", "modulus.test", tls.long_modulus
    ),
    "tls-field": _secure("TLS 1.3 with a key over ffdhe8192 alone", "field.test", tls.long_field),
    "tls-dripped": _dripped(),
}

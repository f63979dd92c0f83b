"""A queued URL, and its format on disk."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from krowlspider.frontier.store.schema import host_in

_HEAD = Struct(">BH")
_TRIES = Struct(">BBBB")
_DUE = Struct(">d")
_LENGTH = Struct(">H")
_CHAIN_LENGTH = Struct(">I")
# Flags in the first byte of an entry: the fields that follow, and the scheme.
_BARE = 1
_DELAYED = 2
_TRIED = 4
_REQUEST = 8
_HTTPS = 16
_WHOLE = 32
_CHAINED = 64
_VIA = 128


@dataclass(slots=True, eq=False)
class Entry:
    """A queued URL, and what is known of it.

    - ``url``: fetched exactly as it is. ``depth``: its depth in the crawl; 0 for a seed.
    - ``redirects``, ``retries``, ``throttling``: redirects, failed and throttled tries so far.
    - ``strikes``: how often the process died while it worked on the page.
    - ``due``: the earliest time of the next try, in seconds of the job clock; 0 for at once.
    - ``bare``: a seed that was given without a scheme; it falls back from https to http.
    - ``request``: a whole serialised Scrapy request; empty for a page of the broad spider.
    - ``chain``: the URLs whose redirects led here, the first one first. A whole request has them in
      its meta instead.
    - ``via``: the URL of the page or sitemap that named it; ``hop``: how, L for a link and M for a
      sitemap. Both are empty where that is not kept.
    """

    url: str
    depth: int = 0
    redirects: int = 0
    retries: int = 0
    throttling: int = 0
    strikes: int = 0
    due: float = 0.0
    bare: bool = False
    request: bytes = b""
    chain: tuple[str, ...] = ()
    via: str = ""
    hop: str = ""

    def encode(self, host: str) -> bytes:
        """Return the entry as it is stored under a key of its host.

        Flags and depth come first, then the fields that differ from their defaults. Of a URL on the
        host, only the part behind the host is stored: URLs fill most of the disk.
        """
        is_https, path = _split(self.url, host)
        flags = is_https * _HTTPS | (path is None) * _WHOLE | self.bare * _BARE
        fields = []
        if self.redirects or self.retries or self.throttling or self.strikes:
            flags |= _TRIED
            counts = (self.redirects, self.retries, self.throttling, self.strikes)
            fields.append(_TRIES.pack(*(min(count, 0xFF) for count in counts)))
        if self.due:
            flags |= _DELAYED
            fields.append(_DUE.pack(self.due))
        if self.chain:
            flags |= _CHAINED
            chain = "\n".join(_shorten(url, host) for url in self.chain).encode()
            fields += [_CHAIN_LENGTH.pack(len(chain)), chain]
        if self.via:
            flags |= _VIA
            via = f"{self.hop[:1] or ' '}{_shorten(self.via, host)}".encode()
            fields += [_LENGTH.pack(len(via)), via]
        url = (self.url if path is None else path).encode()
        if self.request:
            flags |= _REQUEST
            fields.append(_LENGTH.pack(len(url)))
        return b"".join((_HEAD.pack(flags, min(self.depth, 0xFFFF)), *fields, url, self.request))

    @classmethod
    def decode(cls, data: bytes, host: str) -> Entry:
        """Return the entry that `encode` stored under a key of ``host``."""
        flags, depth = _HEAD.unpack_from(data)
        at, end = _HEAD.size, len(data)
        entry = cls("", depth, bare=bool(flags & _BARE))
        if flags & _TRIED:
            counts = _TRIES.unpack_from(data, at)
            entry.redirects, entry.retries, entry.throttling, entry.strikes = counts
            at += _TRIES.size
        if flags & _DELAYED:
            (entry.due,) = _DUE.unpack_from(data, at)
            at += _DUE.size
        if flags & _CHAINED:
            chain, at = _read_text(data, at, _CHAIN_LENGTH)
            entry.chain = tuple(_lengthen(text, host) for text in chain.split("\n"))
        if flags & _VIA:
            via, at = _read_text(data, at, _LENGTH)
            entry.hop, entry.via = via[0].strip(), _lengthen(via[1:], host)
        if flags & _REQUEST:
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            end = at + length
            entry.request = data[end:]
        url = data[at:end].decode()
        if not flags & _WHOLE:
            url = f"{'https' if flags & _HTTPS else 'http'}://{host}{url}"
        entry.url = url
        return entry


def _read_text(data: bytes, at: int, length: Struct) -> tuple[str, int]:
    """Return the text behind its length, and where it ends."""
    start = at + length.size
    end = start + int(length.unpack_from(data, at)[0])
    return data[start:end].decode(), end


def _split(url: str, host: str) -> tuple[bool, str | None]:
    """Return whether a URL is https, and what follows the host; None if it is on another host."""
    scheme, _, rest = url.partition("://")
    length = len(host)
    is_here = rest.startswith(host) and rest[length : length + 1] == "/"
    return scheme == "https", rest[length:] if is_here else None


def _shorten(url: str, host: str) -> str:
    """Return a URL as chains store it: for one on ``host``, a digit and what follows the host."""
    is_https, path = _split(url, host)
    return url if path is None else f"{is_https:d}{path}"


def _lengthen(text: str, host: str) -> str:
    """Return the URL that `_shorten` has shortened; no whole URL begins with a digit."""
    return f"http{'s' * (text[0] == '1')}://{host}{text[1:]}" if text[0] in "01" else text


def entry_of(key: bytes, value: bytes) -> Entry:
    """Return the entry under a queue or poison key."""
    return Entry.decode(value, host_in(key))

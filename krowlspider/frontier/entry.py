"""A queued URL, and its format on disk."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from krowlspider.frontier.store.schema import host_in

_ENTRY_HEAD = Struct(">BH")
_TRIES = Struct(">BBBB")
_DUE = Struct(">d")
_LENGTH = Struct(">H")
_CHAIN_LENGTH = Struct(">I")
# Flags in an entry's first byte: which fields follow.
_BARE = 1
_DELAYED = 2
_TRIED = 4
_REQUEST = 8
_HTTPS = 16
_WHOLE = 32
_CHAINED = 64
_LED = 128
# In a chain, a digit replaces scheme and host of a URL on the entry's own host. No URL begins with
# a digit.
_HERE = {"0": "http", "1": "https"}


@dataclass(slots=True, eq=False)
class Entry:
    """A queued URL, and what is known of it.

    - ``url``: fetched exactly as it is.
    - ``depth``: its depth in the crawl; 0 for a seed.
    - ``redirects``, ``retries``, ``throttling``: redirects, failed tries and throttled tries so
      far.
    - ``strikes``: how often the process died while it worked on the page.
    - ``due``: the earliest time of the next try, in seconds of the job clock; 0 for at once.
    - ``bare``: a seed that was given without a scheme; it falls back from https to http.
    - ``request``: a whole serialised Scrapy request; empty for a page of the broad spider.
    - ``chain``: the URLs whose redirects led here, the first one first. A whole request has them in
      its meta instead.
    - ``via``: the URL of the page or sitemap that named it. ``hop``: one letter for how (L for a
      link, M for a sitemap). Both are empty where that is not kept.
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
        """Return the entry as it is stored under a key of its host: a flag byte, the depth, and the
        fields that differ from the default.

        Of a URL that begins with the host, only the rest is stored: URLs fill most of the disk.
        """
        scheme, path = _parted(self.url, host)
        url = (self.url if path is None else path).encode()
        tried = self.redirects or self.retries or self.throttling or self.strikes
        if not (tried or self.bare or self.due or self.request or self.chain or self.via):
            # The short way: nearly all entries are so.
            flags = (scheme == "https") * _HTTPS | (path is None) * _WHOLE
            return _ENTRY_HEAD.pack(flags, min(self.depth, 0xFFFF)) + url
        parts = [
            _ENTRY_HEAD.pack(
                self.bare * _BARE
                | bool(self.due) * _DELAYED
                | bool(tried) * _TRIED
                | bool(self.request) * _REQUEST
                | (scheme == "https") * _HTTPS
                | (path is None) * _WHOLE
                | bool(self.chain) * _CHAINED
                | bool(self.via) * _LED,
                min(self.depth, 0xFFFF),
            )
        ]
        if tried:
            counts = (self.redirects, self.retries, self.throttling, self.strikes)
            parts.append(_TRIES.pack(*(min(count, 0xFF) for count in counts)))
        if self.due:
            parts.append(_DUE.pack(self.due))
        if self.chain:
            chain = "\n".join(_shortened(url, host) for url in self.chain).encode()
            parts += [_CHAIN_LENGTH.pack(len(chain)), chain]
        if self.via:
            via = f"{self.hop[:1] or ' '}{_shortened(self.via, host)}".encode()
            parts += [_LENGTH.pack(len(via)), via]
        if self.request:
            parts.append(_LENGTH.pack(len(url)))
        return b"".join([*parts, url, self.request])

    @classmethod
    def decode(cls, data: bytes, host: str) -> Entry:
        """Return the entry that `encode` stored under a key of ``host``."""
        flags, depth = _ENTRY_HEAD.unpack_from(data)
        at = _ENTRY_HEAD.size
        if not flags & ~_HTTPS:
            # The short way: nearly all entries are so.
            return cls(f"{'https' if flags else 'http'}://{host}{data[at:].decode()}", depth)
        entry = cls("", depth, bare=bool(flags & _BARE))
        if flags & _TRIED:
            counts = _TRIES.unpack_from(data, at)
            entry.redirects, entry.retries, entry.throttling, entry.strikes = counts
            at += _TRIES.size
        if flags & _DELAYED:
            (entry.due,) = _DUE.unpack_from(data, at)
            at += _DUE.size
        if flags & _CHAINED:
            (length,) = _CHAIN_LENGTH.unpack_from(data, at)
            at += _CHAIN_LENGTH.size
            links = data[at : at + length].decode().split("\n")
            entry.chain = tuple(_lengthened(link, host) for link in links)
            at += length
        if flags & _LED:
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            via = data[at : at + length].decode()
            entry.hop, entry.via = via[0].strip(), _lengthened(via[1:], host)
            at += length
        end = len(data)
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


def _parted(url: str, host: str) -> tuple[str, str | None]:
    """Return the scheme of a URL, and what follows the host; None in its place if the host is not
    ``host``."""
    scheme, _, rest = url.partition("://")
    length = len(host)
    here = rest.startswith(host) and rest[length : length + 1] == "/"
    return scheme, rest[length:] if here else None


def _shortened(url: str, host: str) -> str:
    """Return a URL as a chain stores it: on ``host``, without scheme and host."""
    scheme, path = _parted(url, host)
    return url if path is None else f"{'1' if scheme == 'https' else '0'}{path}"


def _lengthened(text: str, host: str) -> str:
    """Return the URL that `_shortened` has shortened."""
    scheme = _HERE.get(text[0])
    return text if scheme is None else f"{scheme}://{host}{text[1:]}"


def entry_of(key: bytes, value: bytes) -> Entry:
    """Return the entry under a queue or poison key."""
    return Entry.decode(value, host_in(key))

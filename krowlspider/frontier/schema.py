"""Keys and values of the frontier's store: format 2.

=======================================  ==================================================================
key                                      value
=======================================  ==================================================================
``c``                                    counters of the job, JSON ``{name: number}``
``d``                                    present after a clean close: JSON of the gauges, see ``Frontier.close``
``h`` host                               host record, see ``Host.encode``
``k``                                    the job clock at the last commit, 8-byte float of epoch seconds
``g`` domain                             URLs that count against the domain's budget, 8 bytes big-endian
``n`` sequence                           the 8-byte keys that one batch marked seen, in a row: replayed into a saved filter
``p`` host ``00`` priority sequence      poison: the queue entry of a URL whose processing killed the process three times
``q`` host ``00`` priority sequence      queue entry, see ``Entry.encode``
``r`` authority                          robots.txt record
``s`` host ``00`` key                    empty; the seen mark of one identity
``u`` host                               empty; a host that is put off
``t`` due host                           empty; one for each host that has entries: the heap by next-fetch time
=======================================  ==================================================================

``due`` is 8 bytes big-endian, microseconds of the job clock. ``host`` is UTF-8 without a zero byte, ``priority`` 4 bytes big-endian so that higher priorities sort first,
``sequence`` 8 bytes big-endian counting up per host and priority, ``key`` the 8 bytes of an identity. All that
belongs to a host lies in one range per kind, so that a host can be handed over or forgotten as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from struct import Struct

FORMAT = 2

COUNTERS = b"c"
CLEAN = b"d"
HOST = b"h"
QUEUE = b"q"
ROBOTS = b"r"
SEEN = b"s"
DUE = b"t"
NEW_KEYS = b"n"
PUT_OFF = b"u"
CLOCK = b"k"
POISON = b"p"
BUDGET = b"g"

# Scrapy priorities are any int; beyond ±2^31 they are cut to it.
PRIORITY_LIMIT = 2**31 - 1

_QUEUE_TAIL = Struct(">IQ")
# A zero byte, then priority and sequence, follow the host.
_TAIL = 1 + _QUEUE_TAIL.size
_ENTRY_HEAD = Struct(">BH")
_TRIES = Struct(">BBBB")
_DUE = Struct(">d")
_LENGTH = Struct(">H")
# What an entry's first byte says of the rest.
_BARE = 1
_DELAYED = 2
_TRIED = 4
_REQUEST = 8
_HTTPS = 16
_WHOLE = 32


def after_all(prefix: bytes) -> bytes:
    """The first key after all that have the prefix, which does not end in ff."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def host_key(host: str) -> bytes:
    return HOST + host.encode()


def queue_prefix(host: str) -> bytes:
    return b"%b%b\0" % (QUEUE, host.encode())


def queue_key(prefix: bytes, priority: int, sequence: int) -> bytes:
    return prefix + _QUEUE_TAIL.pack(PRIORITY_LIMIT - priority, sequence)


def poison_prefix(host: str) -> bytes:
    return b"%b%b\0" % (POISON, host.encode())


def host_in(key: bytes) -> str:
    """The host of a queue or poison key."""
    return key[1:-_TAIL].decode()


def split_queue_key(key: bytes) -> tuple[str, int, int]:
    """Host, priority and sequence of a queue or poison key: the inverse of `queue_key`."""
    inverse, sequence = _QUEUE_TAIL.unpack(key[-_QUEUE_TAIL.size :])
    return host_in(key), PRIORITY_LIMIT - inverse, sequence


def seen_prefix(host: str) -> bytes:
    return b"%b%b\0" % (SEEN, host.encode())


def new_keys_key(sequence: int) -> bytes:
    return NEW_KEYS + sequence.to_bytes(8, "big")


def split_new_keys_key(key: bytes) -> int:
    return int.from_bytes(key[1:], "big")


def due_key(due: float, host: str) -> bytes:
    """The place of a host in the heap on disk; ``due`` in seconds of the job clock."""
    return b"%b%b%b" % (DUE, due_bytes(due), host.encode())


def due_bytes(due: float) -> bytes:
    return round(due * 1e6).to_bytes(8, "big")


def whole_microseconds(due: float) -> float:
    """A time as the heap on disk keeps it: never earlier than ``due``."""
    return ceil(due * 1e6) / 1e6


def split_due_key(key: bytes) -> tuple[float, str]:
    """Due time and host of a key of the heap on disk."""
    return int.from_bytes(key[1:9], "big") / 1e6, key[9:].decode()


def put_off_key(host: str) -> bytes:
    return PUT_OFF + host.encode()


def robots_key(authority: str) -> bytes:
    return ROBOTS + authority.encode()


@dataclass(slots=True, eq=False)
class Entry:
    """A queued URL and how it was come by.

    ``url`` is fetched as it stands. ``redirects``, ``retries`` and ``distress`` count hops and tries so far,
    ``strikes`` how often the process died while it worked on the page. ``due`` is the earliest time of the next
    try in seconds of the job clock, 0 for at once. ``bare`` marks a seed given without a scheme, which falls back
    from https to http. ``request`` is empty for a page of the broad spider, else a whole serialised Scrapy request.
    """

    url: str
    depth: int = 0
    redirects: int = 0
    retries: int = 0
    distress: int = 0
    strikes: int = 0
    due: float = 0.0
    bare: bool = False
    request: bytes = b""

    def encode(self, host: str) -> bytes:
        """As it is kept under a key of its host: a flag byte, the depth, and what is not as usual. Of a URL that
        begins with the host, only the rest is kept: it is most of what is on disk."""
        scheme, _, rest = self.url.partition("://")
        short = rest.startswith(host) and rest[len(host) : len(host) + 1] == "/"
        url = (rest[len(host) :] if short else self.url).encode()
        tried = self.redirects or self.retries or self.distress or self.strikes
        parts = [
            _ENTRY_HEAD.pack(
                self.bare * _BARE
                | bool(self.due) * _DELAYED
                | bool(tried) * _TRIED
                | bool(self.request) * _REQUEST
                | (scheme == "https") * _HTTPS
                | (not short) * _WHOLE,
                min(self.depth, 0xFFFF),
            )
        ]
        if tried:
            counts = (self.redirects, self.retries, self.distress, self.strikes)
            parts.append(_TRIES.pack(*(min(count, 0xFF) for count in counts)))
        if self.due:
            parts.append(_DUE.pack(self.due))
        if self.request:
            parts.append(_LENGTH.pack(len(url)))
        return b"".join([*parts, url, self.request])

    @classmethod
    def decode(cls, data: bytes, host: str) -> Entry:
        flags, depth = _ENTRY_HEAD.unpack_from(data)
        at = _ENTRY_HEAD.size
        entry = cls("", depth, bare=bool(flags & _BARE))
        if flags & _TRIED:
            counts = _TRIES.unpack_from(data, at)
            entry.redirects, entry.retries, entry.distress, entry.strikes = counts
            at += _TRIES.size
        if flags & _DELAYED:
            (entry.due,) = _DUE.unpack_from(data, at)
            at += _DUE.size
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


def entry_of(key: bytes, value: bytes) -> Entry:
    """The entry of a queue or poison key."""
    return Entry.decode(value, host_in(key))

"""Keys and values of the frontier's store: format 4.

=======================================  ==================================================================
key                                      value
=======================================  ==================================================================
``a``                                    hosts of the last commit that acknowledged any entries, JSON list
``b``                                    the job that it belongs to: seed of its identities, 8 bytes big-endian, and its place in a cluster
``c``                                    counters of the job, JSON ``{name: number}``
``d``                                    present after a clean close: JSON of what else is known then, see ``Frontier.close``
``e`` host                               a host that was handed over, whose keys the saved filter may still know: empty,
                                         or ``01`` while its seen marks are being removed
``h`` host                               how often the host has held the event loop, and with what: see ``holds``
``i`` host ``00`` transfer               chunks that have come of a host's hand-over, 4 bytes big-endian
``j``                                    present when seen marks may stand for several identities: empty
``k``                                    the last commit: job clock and monotonic clock, 8-byte floats of seconds, and
                                         the id of the machine's run; before, the job clock alone
``l`` host name                          the port in a range of KROWL_PORTS that links lead to there, 2 bytes big-endian
``f``                                    what the host records say together, see ``Tally``; gone where it is to be counted anew
``g`` domain                             URLs that count against the domain's budget, 8 bytes big-endian
``n`` sequence                           the 8-byte keys that one batch marked seen, in a row: replayed into a saved filter
``m``                                    sequence of the last ``n`` that is in the saved filter, 8 bytes big-endian
``o`` owner ``00`` sequence              outbox: the host of a foreign URL, ``00``, and the message for its owner
``p`` host ``00`` priority sequence      poison: the queue entry of a URL whose processing killed the process three times
``q`` host ``00``                        host record, see ``Host.encode``
``q`` host ``00`` priority sequence      queue entry: the URL and what is known of the page, see ``Entry.encode``
``r`` authority                          robots.txt record
``r`` ``ff``                             empty, so that a search for an authority that has none ends here, and does not
                                         go through all seen marks that were deleted
``s`` host ``00`` key                    the seen mark of one identity; the value are the keys of more, in a row, that the same
                                         batch marked seen. After ``>`` and the id of another node, in place of a host: those
                                         of URLs that were put into the outbox for it
``u`` host                               empty; a host that is deferred
``t`` due host                           empty; one for each host that has entries: the heap by next-fetch time
``v``                                    URLs queued by domain, JSON, of the domains that have most of them
=======================================  ==================================================================

``due`` is 8 bytes big-endian, microseconds of the job clock. ``host`` is UTF-8 without a zero byte, ``priority`` 4
bytes big-endian so that higher priorities sort first, ``sequence`` 8 bytes big-endian, the lane and a number counting
up in it (see ``hosts``), ``key`` the 8 bytes of an identity, ``transfer`` 8 bytes. All that belongs to a host lies in one
range per kind, so that a host can be handed over or forgotten as a whole.
"""

from __future__ import annotations

from math import ceil
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT = 4

ACKNOWLEDGED = b"a"
OWNER = b"b"
COUNTERS = b"c"
CLEAN = b"d"
QUEUE = b"q"
ROBOTS = b"r"
SEEN = b"s"
DUE = b"t"
NEW_KEYS = b"n"
SAVED = b"m"
DEFERRED = b"u"
CLOCK = b"k"
POISON = b"p"
ROBOTS_END = ROBOTS + b"\xff"
TALLY = b"f"
BUDGET = b"g"
GONE = b"e"
ARRIVING = b"i"
JOINED = b"j"
LINKED = b"l"
OUTBOX = b"o"
HOLD = b"h"
LOAD = b"v"

# Bytes of an identity.
KEY_SIZE = 8
# Scrapy priorities are any int; beyond ±2^31 they are cut to it.
PRIORITY_LIMIT = 2**31 - 1

_QUEUE_TAIL = Struct(">IQ")


def after_all(prefix: bytes) -> bytes:
    """The first key after all that have the prefix, which does not end in ff."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def host_key(host: str) -> bytes:
    """The key of a host's record, and what the keys of its queue entries begin with: a record and the head of its queue
    are one place on the disk."""
    return b"q%b\0" % host.encode()


def is_record(key: bytes) -> bool:
    """Whether a key of the queues is that of a host record."""
    return key.index(b"\0") == len(key) - 1


def queue_key(prefix: bytes, priority: int, sequence: int) -> bytes:
    return prefix + _QUEUE_TAIL.pack(PRIORITY_LIMIT - priority, sequence)


def poison_prefix(host: str) -> bytes:
    return b"%b%b\0" % (POISON, host.encode())


def host_in(key: bytes) -> str:
    """The host of a record's, queue or poison key."""
    return key[1 : key.index(b"\0")].decode()


def split_queue_key(key: bytes) -> tuple[str, int, int]:
    """Host, priority and sequence of a queue or poison key: the inverse of `queue_key`."""
    inverse, sequence = _QUEUE_TAIL.unpack(key[-_QUEUE_TAIL.size :])
    return host_in(key), PRIORITY_LIMIT - inverse, sequence


def seen_prefix(host: str) -> bytes:
    return b"%b%b\0" % (SEEN, host.encode())


def split_keys(keys: bytes) -> Iterator[bytes]:
    """The identities that stand in a row."""
    return (keys[at : at + KEY_SIZE] for at in range(0, len(keys), KEY_SIZE))


def marked_by(marks: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """The identities that seen marks, keys and values, stand for."""
    for name, others in marks:
        yield name[-KEY_SIZE:]
        if others:
            yield from split_keys(others)


def new_keys_key(sequence: int) -> bytes:
    return NEW_KEYS + sequence.to_bytes(8, "big")


def split_new_keys_key(key: bytes) -> int:
    return int.from_bytes(key[1:], "big")


def due_key(due: float, host: str) -> bytes:
    """The place of a host in the heap on disk; ``due`` in seconds of the job clock."""
    return b"t%b%b" % (round(due * 1e6).to_bytes(8, "big"), host.encode())


def due_bytes(due: float) -> bytes:
    return round(due * 1e6).to_bytes(8, "big")


def whole_microseconds(due: float) -> float:
    """A time as the heap on disk keeps it: never earlier than ``due``."""
    whole = ceil(due * 1e6)
    # Of an epoch time neither the product nor the quotient is exact.
    return whole / 1e6 if whole / 1e6 >= due else (whole + 1) / 1e6


def split_due_key(key: bytes) -> tuple[float, str]:
    """Due time and host of a key of the heap on disk."""
    return int.from_bytes(key[1:9], "big") / 1e6, key[9:].decode()


def deferred_key(host: str) -> bytes:
    return DEFERRED + host.encode()


def robots_key(authority: str) -> bytes:
    return ROBOTS + authority.encode()


def authorities_of(host: str) -> tuple[str, str]:
    """Those of a host: each may have a robots.txt."""
    return f"http://{host}", f"https://{host}"


def linked_key(name: str) -> bytes:
    """``name`` is a host without its port."""
    return LINKED + name.encode()


def hold_key(host: str) -> bytes:
    return HOLD + host.encode()


def gone_key(host: str) -> bytes:
    return GONE + host.encode()


def arriving_prefix(host: str) -> bytes:
    return b"%b%b\0" % (ARRIVING, host.encode())


def outbox_prefix(owner: str) -> bytes:
    return b"%b%b\0" % (OUTBOX, owner.encode())


def outbox_key(prefix: bytes, sequence: int) -> bytes:
    return prefix + sequence.to_bytes(8, "big")


def split_outbox_key(key: bytes) -> tuple[str, int]:
    """Owner and sequence of a key of the outbox."""
    return key[1:-9].decode(), int.from_bytes(key[-8:], "big")

"""Keys and values of the frontier's store: format 5.

===========================  =======================================================================
key                          value
===========================  =======================================================================
``A``                        present while hosts of orders that have ended go on: JSON list of rules
``A`` rule                   a block, see ``StandingOrder``: JSON ``[stamp, note, seconds, ended]``
``B`` name                   a delay of a name that a person has set: as a block
``a``                        hosts of the last commit that acknowledged entries: JSON list
``b``                        the job: seed of its identities, 8 bytes; then its place in a cluster
``c``                        counters of the job: JSON ``{name: number}``
``d``                        present after a clean close: JSON, see ``Frontier.close``
``e`` host                   a host that was handed over, which the saved filter may still know:
                             empty; ``01`` until its seen marks are removed
``f``                        sums over all host records, see ``Tally``; absent: count them anew
``g`` domain                 URLs that count against the domain's budget, 8 bytes
``h`` host                   how often the host has held the event loop, see ``Hold``
``i`` host ``00`` transfer   number of chunks that have arrived in a host's hand-over, 4 bytes
``j``                        present while seen marks may stand for several identities: empty
``k``                        the last commit: job clock and monotonic clock, 8-byte floats in
                             seconds; then the id of the machine's run
``l`` name                   the port, of a range in KROWL_PORTS, that links may lead to, 2 bytes
``m``                        sequence of the last ``n`` that is in the saved filter, 8 bytes
``n`` sequence               identities that one batch marked seen, in a row: the saved filter is
                             brought up to date from them
``o`` owner ``00`` sequence  outbox: host of a foreign URL, ``00``, message for its owner; until
                             the owner has acknowledged it
``p`` host ``00`` place      poison: entry of a page that killed the process three times
``q`` host ``00``            host record, see ``Host.encode``
``q`` host ``00`` place      queue entry, see ``Entry.encode``
``r`` authority              robots.txt record, see ``RobotsRecord``
``r`` ``ff``                 empty: ends the search for a missing record before the deleted marks
``s`` host ``00`` identity   seen mark: identities that the same batch marked, in a row. For foreign
                             URLs, ``>`` and the id of the owner stand in place of the host
``t`` due host               the heap by next-fetch time, for hosts that have entries: empty
``u`` host                   a deferred host: empty
``v``                        URLs queued by domain, of the largest domains: JSON
``w``                        the open WARC file at the last commit: JSON ``[name, synced bytes,
                             synced records]``
``x`` sequence               entries that one commit removed while that file was open: msgpack, see
                             ``OpenWarcNote``
``y``                        present while a person has paused the crawl: empty
``z``                        what the URLFrontier service keeps of URLs and queues, see
                             ``krowlspider/rpc/urlfrontier/records.py``
``C``                        counts of the answers to pages and of seeds: JSON ``{name: number}``
``D`` URL                    a seed, or a URL at which one goes on: JSON ``[outcome, status,
                             location]``; empty while it is queued
``E`` source number          a line that gave a seed: JSON ``[text, URL, error]``; ``source`` has 2
                             bytes, ``number`` 4
``F``                        the sources of seeds: JSON ``[[name, lines], ...]``
``G`` name                   a pause of a name: as a block
``H`` position host          index of hosts by ring position, see ``HostPositions``: a tag
``I`` identity               the URL, with a ``D``, whose identity is another text; here the
                             identity is that text
``J`` finder                 what has arrived of the URLs that another node forwards, see
                             ``Finders``: JSON ``[stream, number, last]``
``K``                        hosts that ask for a price: JSON ``{host: [price, answers]}``
``L`` key                    what limits have left out of a seed: JSON ``{reason: URLs}``, see
                             ``SeedLimits``; ``key`` as in ``V``
``M`` key                    the words of a seed: JSON, see ``WordedSeeds``; ``key`` as in ``V``
``N`` key                    what was fetched from a seed with words: JSON, as ``M``
``O`` host                   what its pages say by headers about their use, see ``HeaderTerms``:
                             JSON ``{term: URL}``
``P`` host ``00`` identity   the row of a page that was fetched, see ``PageRow.encode``
``Q``                        the pass over these rows, see ``RecrawlPass``: JSON
``R`` host                   what the validators of a host are worth, see ``Trust``
``S`` tick number            pages that are due again, see ``Planner``: msgpack ``{host:
                             identities}``; ``tick`` has 4 bytes, ``number`` 8
``T``                        how far due pages are queued, see ``DuePages``: JSON
``U``                        the threshold of a crawl that goes on, see ``Demand``
``U`` host                   demand and changes of a host, see ``HostDemand``
``V`` key                    the URL of a seed whose pages have led to others, see ``SeedNames``;
                             ``key`` has 6 bytes
``W`` host                   what hints about the pages of a host are worth, see ``Precisions``
``X`` host                   texts into which its pages have changed, see ``SoftNotFound``
``Y`` host ``00`` sheet      what the host has used of the limits of a sheet, see ``Quotas``: pages,
                             bytes and epoch seconds; without a host, what all of the sheet have
``Z`` limit ``00`` sheet     what this node may use of a limit of all nodes, see ``Grants``
``0``                        number of ``0`` server, 8 bytes
``0`` server                 the certificate of a Gemini server, which is host and port, see
                             ``Certificates``
===========================  =======================================================================

Numbers are big-endian. ``place`` is 4 bytes of priority, so that higher priorities sort first, and
8 of sequence: the lane, then a number that counts up in it (see ``hosts``). ``due`` is 8 bytes,
microseconds of the job clock. ``host`` is UTF-8 without a zero byte. ``identity``, ``transfer`` and
``position`` have 8 bytes. What belongs to a host is one range in each kind, so that a host can be
handed over or forgotten as a whole.
"""

from __future__ import annotations

from math import ceil
from struct import Struct
from typing import TYPE_CHECKING

from krowlspider.urls.canonical import port_of
from krowlspider.urls.gemini import authority_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT = 5

BLOCK = b"A"
DELAY = b"B"
ACKNOWLEDGED = b"a"
OWNER = b"b"
COUNTERS = b"c"
CLEAN = b"d"
GONE = b"e"
TALLY = b"f"
BUDGET = b"g"
HOLD = b"h"
ARRIVING = b"i"
JOINED = b"j"
CLOCK = b"k"
LINKED = b"l"
SAVED = b"m"
NEW_KEYS = b"n"
OUTBOX = b"o"
POISON = b"p"
QUEUE = b"q"
ROBOTS = b"r"
ROBOTS_END = ROBOTS + b"\xff"
SEEN = b"s"
DUE = b"t"
DEFERRED = b"u"
LOAD = b"v"
OPEN_WARC = b"w"
OPEN_WARC_ENTRIES = b"x"
CRAWL_PAUSED = b"y"
SERVED = b"z"
OUTCOMES = b"C"
TERMS = b"O"
PRICES = b"K"
SEED = b"D"
SEED_LINE = b"E"
SEED_SOURCES = b"F"
PAUSE = b"G"
POSITION = b"H"
SEED_IDENTITY = b"I"
FINDER = b"J"
SEED_LEFT = b"L"
SEED_WORDS = b"M"
SEED_FETCHED = b"N"
PAGES = b"P"
RECRAWL_PASS = b"Q"
TRUST = b"R"
DUE_AGAIN = b"S"
DUE_PLACE = b"T"
DEMAND = b"U"
SEED_NAME = b"V"
HINTS = b"W"
SOFT_NOT_FOUND = b"X"
QUOTA = b"Y"
GRANT = b"Z"
CERTIFICATE = b"0"

# Bytes of an identity.
KEY_SIZE = 8
# Bytes of the identity of a seed that are its key. In one of 500 jobs with a million seeds, two of
# these share a key.
SEED_SIZE = 6
# Scrapy's priorities have no limit; greater ones are cut to this.
PRIORITY_LIMIT = 2**31 - 1

_PLACE = Struct(">IQ")
_LINE = Struct(">HI")
_TICK = Struct(">IQ")


def after_all(prefix: bytes) -> bytes:
    """Return the first key behind all keys of a prefix, which must not end in ff."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def host_key(host: str) -> bytes:
    """Return the key of a host's record, which is the prefix of its queue entries too."""
    return b"q%b\0" % host.encode()


def position_prefix(position: int) -> bytes:
    return POSITION + position.to_bytes(8)


def is_record(key: bytes) -> bool:
    """Return whether a key of the queues is that of a host record."""
    return key.index(b"\0") == len(key) - 1


def queue_key(prefix: bytes, priority: int, sequence: int) -> bytes:
    return prefix + _PLACE.pack(PRIORITY_LIMIT - priority, sequence)


def poison_prefix(host: str) -> bytes:
    return b"p%b\0" % host.encode()


def host_in(key: bytes) -> str:
    """Return the host of a record's, queue or poison key."""
    return key[1 : key.index(b"\0")].decode()


def split_queue_key(key: bytes) -> tuple[int, int]:
    """Return priority and sequence of a queue or poison key."""
    inverse, sequence = _PLACE.unpack(key[-_PLACE.size :])
    return PRIORITY_LIMIT - inverse, sequence


def seen_prefix(host: str) -> bytes:
    return b"s%b\0" % host.encode()


def page_prefix(host: str) -> bytes:
    return b"P%b\0" % host.encode()


def trust_key(host: str) -> bytes:
    return TRUST + host.encode()


def demand_key(host: str) -> bytes:
    return DEMAND + host.encode()


def hints_key(host: str) -> bytes:
    return HINTS + host.encode()


def seed_name_key(key: bytes) -> bytes:
    return SEED_NAME + key


def seed_left_key(key: bytes) -> bytes:
    return SEED_LEFT + key


def seed_words_key(key: bytes) -> bytes:
    return SEED_WORDS + key


def seed_fetched_key(key: bytes) -> bytes:
    return SEED_FETCHED + key


def soft_not_found_key(host: str) -> bytes:
    return SOFT_NOT_FOUND + host.encode()


def quota_key(host: str, sheet: str) -> bytes:
    return QUOTA + b"%b\0%b" % (host.encode(), sheet.encode())


def terms_key(host: str) -> bytes:
    return TERMS + host.encode()


def grant_key(sheet: str, reason: str) -> bytes:
    return GRANT + b"%b\0%b" % (reason.encode(), sheet.encode())


def certificate_key(server: str) -> bytes:
    return CERTIFICATE + server.encode()


def due_again_key(tick: int, number: int = 0) -> bytes:
    return DUE_AGAIN + _TICK.pack(tick, number)


def tick_of(key: bytes) -> int:
    """Return the tick in a key of `due_again_key`."""
    tick: int = _TICK.unpack_from(key, 1)[0]
    return tick


def host_of_page(key: bytes) -> str:
    """Return the host of the key of a page's row, whose identity may have zero bytes."""
    return key[1 : -KEY_SIZE - 1].decode()


def split_keys(keys: bytes) -> Iterator[bytes]:
    """Yield the identities that stand in a row."""
    return (keys[at : at + KEY_SIZE] for at in range(0, len(keys), KEY_SIZE))


def marked_by(marks: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Yield the identities of seen marks, given as keys and values."""
    for name, others in marks:
        yield name[-KEY_SIZE:]
        if others:
            yield from split_keys(others)


def new_keys_key(sequence: int) -> bytes:
    return NEW_KEYS + sequence.to_bytes(8, "big")


def split_new_keys_key(key: bytes) -> int:
    """Return the sequence in a key of `new_keys_key`."""
    return int.from_bytes(key[1:], "big")


def due_key(due: float, host: str) -> bytes:
    """Return a host's key in the heap on disk; ``due`` is in seconds of the job clock."""
    return b"t%b%b" % (round(due * 1e6).to_bytes(8, "big"), host.encode())


def split_due_key(key: bytes) -> tuple[float, str]:
    """Return due time and host of a key of the heap on disk."""
    return int.from_bytes(key[1:9], "big") / 1e6, key[9:].decode()


def whole_microseconds(due: float) -> float:
    """Return a time as the heap on disk keeps it, which is never earlier than ``due``."""
    whole = ceil(due * 1e6)
    # For an epoch time neither the product nor the quotient is exact.
    return whole / 1e6 if whole / 1e6 >= due else (whole + 1) / 1e6


def deferred_key(host: str) -> bytes:
    return DEFERRED + host.encode()


def robots_key(authority: str) -> bytes:
    return ROBOTS + authority.encode()


def web_authorities_of(host: str) -> tuple[str, str]:
    """Return the http and the https authority of a host; each may have a robots.txt."""
    return f"http://{host}", f"https://{host}"


def authorities_of(host: str) -> tuple[str, ...]:
    """Return all authorities of a host. One with a port may be a Gemini server."""
    web = web_authorities_of(host)
    return web if port_of(host) is None else (*web, authority_at(host))


def linked_key(name: str) -> bytes:
    """Return the key of the linked port of a host name, which has no port itself."""
    return LINKED + name.encode()


def hold_key(host: str) -> bytes:
    return HOLD + host.encode()


def gone_key(host: str) -> bytes:
    return GONE + host.encode()


def arriving_prefix(host: str) -> bytes:
    return b"i%b\0" % host.encode()


def seed_line_key(source: int, number: int) -> bytes:
    return SEED_LINE + _LINE.pack(source, number)


def split_seed_line_key(key: bytes) -> tuple[int, int]:
    """Return source and number of a line."""
    source, number = _LINE.unpack_from(key, 1)
    return source, number


def finder_key(finder: str) -> bytes:
    return FINDER + finder.encode()


def outbox_prefix(owner: str) -> bytes:
    return b"o%b\0" % owner.encode()


def outbox_key(prefix: bytes, sequence: int) -> bytes:
    return prefix + sequence.to_bytes(8, "big")


def split_outbox_key(key: bytes) -> tuple[str, int]:
    """Return owner and sequence of a key of the outbox."""
    return key[1:-9].decode(), int.from_bytes(key[-8:], "big")

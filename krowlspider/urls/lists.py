"""Lists of domains that others publish, as seeds: Tranco, Majestic Million, zone files, plain."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.urls.seeds import BadSeed, Seed, parse_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    # Returns the seed in a line of a file, read in their order; None if the line is good and has
    # none. Raises BadSeed for a line of another format.
    ReadLine = Callable[[bytes], Seed | None]

# Lines by which a format is recognised, blank lines and comments not counted.
_LOOK = 10
_BOM = b"\xef\xbb\xbf"


def ranked(line: bytes) -> Seed | None:
    """Return the seed of a line ``rank,domain``. Cisco Umbrella's list has this format too."""
    rank, _, domain = line.partition(b",")
    if not rank.isdigit() or b"," in domain:
        raise BadSeed("not of the form rank,domain")
    return _named(domain)


class Majestic:
    """Comma-separated fields, below a header that names one of them Domain."""

    def __init__(self) -> None:
        self._column: int | None = None

    def seed(self, line: bytes) -> Seed | None:
        if self._column is None:
            names = [_unquoted(each).lower() for each in line.split(b",")]
            if not {b"globalrank", b"domain"} <= set(names):
                raise BadSeed("there is no header line with GlobalRank and Domain before it")
            self._column = names.index(b"domain")
            return None
        fields = line.split(b",", self._column + 1)
        if len(fields) <= self._column:
            raise BadSeed(f"fewer than {self._column + 1} fields")
        return _named(fields[self._column])


class Zone:
    """Records ``name TTL IN type data`` of a zone, as the CZDS publishes them.

    The seeds are the delegated names directly below the apex. The NS records of a name follow each
    other. The apex is the owner of the SOA record, or the last label of the first delegated name.
    """

    def __init__(self) -> None:
        self._apex = b""
        self._last = b""

    def seed(self, line: bytes) -> Seed | None:
        if line.startswith((b";", b"$")):
            return None
        fields = line.split(None, 4)
        if len(fields) < 5 or fields[2].upper() != b"IN" or not fields[1].isdigit():
            raise BadSeed("not of the form name TTL IN type data")
        kind = fields[3].upper()
        if kind not in (b"NS", b"SOA"):
            return None
        name = fields[0].lower().rstrip(b".")
        if kind == b"SOA":
            self._apex = name
            return None
        self._apex = self._apex or name.rpartition(b".")[2]
        if name == self._last or name.partition(b".")[2] != self._apex:
            return None
        self._last = name
        return _named(name)


# What reads a file, by the names of --format. The order is that of recognition: `parse_seed` takes
# lines of Tranco's too.
FORMATS: dict[str, Callable[[], ReadLine]] = {
    "tranco": lambda: ranked,
    "majestic": lambda: Majestic().seed,
    "czds": lambda: Zone().seed,
    "plain": lambda: parse_seed,
}


def content(line: bytes) -> bytes:
    """Return a line without what surrounds its text; empty for a blank line or a comment."""
    text = line.removeprefix(_BOM).strip()
    return b"" if text.startswith(b"#") else text


def recognise(lines: Iterable[bytes]) -> str | None:
    """Return the name of the format of the first line that has one, or None."""
    for line in islice(filter(None, map(content, lines)), _LOOK):
        for name, begin in FORMATS.items():
            with suppress(BadSeed):
                begin()(line)
                return name
    return None


def seed_text(seed: Seed) -> str:
    """Return a seed as a line of a file of seeds, which is read as the same seed."""
    if not seed.bare:
        return seed.url
    host, _, path = seed.url.removeprefix("https://").partition("/")
    return f"{host}/{path}" if path else host


def _named(field: bytes) -> Seed:
    seed = parse_seed(_unquoted(field))
    if seed is None:
        raise BadSeed("no domain")
    return seed


def _unquoted(field: bytes) -> bytes:
    return field.strip().strip(b'"')

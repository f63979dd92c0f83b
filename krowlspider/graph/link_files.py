"""Links between hosts in files: one of each WARC file, merged into one of the whole graph.

A file has a line of JSON, then the names of its hosts, sorted, a line each, then its links. A link
is a number of 64 bits, little endian: the places of source and target among the names, 32 bits
each. Links are sorted too, each there once. Names keep their order when files are merged, and so do
the links of each file. So a range of links of the result comes from a range of each file, and the
memory for it is bounded whatever the number of links.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Self

import msgspec
import numpy as np

from krowlspider.archive.disk import write_durably
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    Keys = NDArray[np.uint64]
    Ids = NDArray[np.int64]

SUFFIX = ".links"
# Files that are merged at once, and links that are in memory meanwhile.
PARTS_AT_ONCE = 32
LINKS_AT_ONCE = 1 << 22
# Names that are in memory at once, of which each 1,024th is looked at first.
NAMES_AT_ONCE = 1 << 18
_SAMPLED = 1_024
# Vertices of a graph: places have 31 bits.
VERTICES_MAX = 2**31 - 1
_HEAD_MAX = 4_096
_FORMAT = 1
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """The first line. ``size`` is that of the WARC file."""

    format: int
    names: int
    name_bytes: int
    links: int
    size: int = 0


class LinkFile:
    """A file of links that is read.

    :raises KrowlError: it is damaged, or of another version
    :raises OSError: it cannot be read
    """

    def __init__(self, path: Path):
        self.path = path
        with path.open("rb") as file:
            line = file.readline(_HEAD_MAX)
            whole = os.fstat(file.fileno()).st_size
        try:
            head = msgspec.json.decode(line, type=_Head)
        except msgspec.DecodeError:
            head = _Head(0, 0, 0, 0)
        self._begin = len(line)
        self._links_begin = self._begin + head.name_bytes
        if head.format != _FORMAT or whole != self._links_begin + 8 * head.links:
            raise KrowlError(
                f"{path} is damaged, or of another version: remove it, and run the same command"
                " again"
            )
        self.size, self.names, self.links = head.size, head.names, head.links

    def read_names(self) -> Iterator[bytes]:
        """Yield the names with their newlines."""
        with self.path.open("rb") as file:
            file.seek(self._begin)
            yield from islice(file, self.names)

    def text(self) -> bytes:
        """Return all names, each with its newline."""
        with self.path.open("rb") as file:
            file.seek(self._begin)
            return file.read(self._links_begin - self._begin)

    def keys(self) -> Keys:
        """Return the links, mapped: what is not looked at takes no memory."""
        if not self.links:
            return np.zeros(0, np.uint64)
        return np.memmap(self.path, "<u8", "r", self._links_begin, (self.links,))


class Gathered:
    """Links of a WARC file in memory. Beyond ``most`` they go into drafts beside ``path``, and
    `finish` merges these into it. Closing removes the drafts."""

    def __init__(self, path: Path, size: int, most: int = LINKS_AT_ONCE // 4):
        self._path = path
        self._size = size
        self._most = most
        self._targets: dict[str, set[str]] = {}
        self._count = 0
        self._drafts: list[Path] = []

    def add(self, source: str, targets: Iterable[str]) -> None:
        """Take the links of a page of ``source``; links to itself are left out."""
        known = self._targets.setdefault(source, set())
        before = len(known)
        known.update(targets)
        known.discard(source)
        # A source takes memory too.
        self._count += len(known) - before + (before == 0)
        if self._count >= self._most:
            self._put_away()

    def _put_away(self) -> None:
        draft = self._path.with_name(f"{self._path.name}.{len(self._drafts)}{DRAFT}")
        write(draft, self._targets, self._size)
        self._drafts.append(draft)
        self._targets, self._count = {}, 0

    def finish(self) -> LinkFile:
        """Write the file durably, and return it."""
        if self._drafts:
            self._put_away()
            merge([LinkFile(draft) for draft in self._drafts], self._path, self._size)
        else:
            write(self._path, self._targets, self._size)
        return LinkFile(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for draft in self._drafts:
            draft.unlink(missing_ok=True)


DRAFT = ".part"


def write(path: Path, targets: Mapping[str, Iterable[str]], size: int = 0) -> None:
    """Write a file of these links, targets by source, durably."""
    names = sorted({*targets}.union(*targets.values()))
    places = {name: place for place, name in enumerate(names)}
    ends = [
        (places[source] << 32) | places[target]
        for source, others in targets.items()
        for target in others
    ]
    write_sorted(path, names, np.sort(np.array(ends, np.uint64)), size)


def write_sorted(path: Path, names: Sequence[str], keys: Keys, size: int = 0) -> None:
    """Write a file of sorted names and the sorted links between them, durably."""
    text = "".join(f"{name}\n" for name in names).encode()
    head = _Head(_FORMAT, len(names), len(text), len(keys), size)
    with write_durably(path) as file:
        file.write(msgspec.json.encode(head) + b"\n" + text)
        keys.astype("<u8").tofile(file)


def merge(parts: Sequence[LinkFile], path: Path, size: int = 0) -> LinkFile:
    """Write a file of the links of all ``parts`` durably, and return it. At most PARTS_AT_ONCE are
    merged at once; drafts beside ``path`` take the rest.

    :raises KrowlError: there are over VERTICES_MAX hosts
    """
    with ExitStack() as stack:
        level = 0
        while len(parts) > PARTS_AT_ONCE:
            groups = [
                parts[begin : begin + PARTS_AT_ONCE]
                for begin in range(0, len(parts), PARTS_AT_ONCE)
            ]
            made = []
            for number, group in enumerate(groups):
                draft = path.with_name(f"{path.name}.merge{level}-{number}{DRAFT}")
                stack.callback(draft.unlink, missing_ok=True)
                made.append(_merge(group, draft, size))
            parts, level = made, level + 1
        return _merge(parts, path, size)


def _merge(parts: Sequence[LinkFile], path: Path, size: int) -> LinkFile:
    names = path.with_name(f"{path.name}.names{DRAFT}")
    links = path.with_name(f"{path.name}.keys{DRAFT}")
    try:
        with names.open("wb") as file:
            maps = _merge_names(parts, file)
            count, name_bytes = max((int(each[-1]) + 1 for each in maps if len(each)), default=0), 0
            name_bytes = file.tell()
        with links.open("wb") as file:
            for keys in _merge_links(parts, maps, count):
                keys.astype("<u8").tofile(file)
            head = _Head(_FORMAT, count, name_bytes, file.tell() // 8, size)
        with write_durably(path) as file:
            file.write(msgspec.json.encode(head) + b"\n")
            for each in (names, links):
                _append(each, file)
    finally:
        names.unlink(missing_ok=True)
        links.unlink(missing_ok=True)
    return LinkFile(path)


def _append(path: Path, to: BinaryIO) -> None:
    with path.open("rb") as file:
        while block := file.read(LINKS_AT_ONCE):
            to.write(block)


def _merge_names(parts: Sequence[LinkFile], file: BinaryIO) -> list[Ids]:
    """Write the names of all parts in their order; return for each part the places of its names.

    Names between two of a sample are in memory at once.
    """
    maps: list[Ids] = [np.empty(part.names, np.int64) for part in parts]
    taken = [0] * len(parts)
    pivots = _pivots(parts)
    ranges = [_split(part.read_names(), pivots) for part in parts]
    count = 0
    for blocks in zip(*ranges, strict=True):
        names = sorted(set().union(*blocks))
        places = dict(zip(names, range(count, count + len(names)), strict=True))
        count += len(names)
        if count > VERTICES_MAX:
            raise KrowlError(f"the graph has over {VERTICES_MAX:,} hosts: give fewer JOBDIRs")
        for number, block in enumerate(blocks):
            end = taken[number] + len(block)
            maps[number][taken[number] : end] = [places[name] for name in block]
            taken[number] = end
        file.writelines(names)
    return maps


def _pivots(parts: Sequence[LinkFile]) -> list[bytes]:
    """Return names between which all parts together have about NAMES_AT_ONCE names."""
    sample = (name for part in parts for name in islice(part.read_names(), 0, None, _SAMPLED))
    return sorted(sample)[:: max(NAMES_AT_ONCE // _SAMPLED, 1)]


def _split(names: Iterable[bytes], pivots: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the names before each of the pivots, and the last ones."""
    block: list[bytes] = []
    rest = iter(names)
    name = next(rest, None)
    for pivot in pivots:
        while name is not None and name < pivot:
            block.append(name)
            name = next(rest, None)
        yield block
        block = []
    yield [] if name is None else [name, *rest]


def _merge_links(parts: Sequence[LinkFile], maps: Sequence[Ids], count: int) -> Iterator[Keys]:
    """Yield the links of all parts with the places of the merged names, sorted, each once."""
    keys = [part.keys() for part in parts]
    for low, high in _ranges(keys, maps, count):
        found = []
        for each, places in zip(keys, maps, strict=True):
            first, last = np.searchsorted(places, [low, high]).astype(np.uint64) << _HALF
            # A number past the last source would not fit into 32 bits.
            begin, end = np.searchsorted(each, [first, last])
            part = np.asarray(each[begin:end])
            sources, targets = places[part >> _HALF], places[part & _LOW]
            found.append(sources.astype(np.uint64) << _HALF | targets.astype(np.uint64))
        yield found[0] if len(found) == 1 else np.unique(np.concatenate(found))


def _ranges(keys: Sequence[Keys], maps: Sequence[Ids], count: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of sources that have about LINKS_AT_ONCE links together."""
    out = np.zeros(count + 1, np.int64)
    for each, places in zip(keys, maps, strict=True):
        for begin in range(0, len(each), LINKS_AT_ONCE):
            part = np.asarray(each[begin : begin + LINKS_AT_ONCE])
            sources = (part >> _HALF).astype(np.int64)
            out[places] += np.bincount(sources, minlength=len(places))
    ends = np.cumsum(out)
    low = 0
    while low < count:
        before = int(ends[low - 1]) if low else 0
        high = int(np.searchsorted(ends, before + LINKS_AT_ONCE, side="right"))
        high = min(max(high, low + 1), count)
        yield low, high
        low = high

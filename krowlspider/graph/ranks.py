"""The ranks of hosts, as a search looks them up.

A line of the file is a host, its harmonic centrality and its PageRank, with tabs between. Lines are
sorted by host as bytes, so a host is found in the mapped file by halving: memory does not grow with
the number of hosts.
"""

from __future__ import annotations

import mmap
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from krowlspider.archive.disk import write_durably
from krowlspider.errors import KrowlError
from krowlspider.graph.hosts import GEMINI_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# The name of the file in the folder of a search index.
FILE = "ranks.tsv"
# Bytes of the file that are checked at once, hosts whose ranks are in memory, and bytes of a line.
_BLOCK = 4 * 1024 * 1024
_REMEMBERED = 16_384
_LINE_MAX = 1_000
_NUMBER = rb"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?"
_LINE = re.compile(rb"[^\t\n\r]{1,300}\t%b\t%b\n" % (_NUMBER, _NUMBER))
_LINES = re.compile(rb"(?:[^\t\n\r]{1,300}\t%b\t%b\n)*+" % (_NUMBER, _NUMBER))
_NONE = (0.0, 0.0)


class HostRanks:
    """The ranks in a file of `write`. A file that replaces it is seen by a new `open` only."""

    def __init__(self, content: mmap.mmap | bytes):
        self._content = content
        self._find = lru_cache(maxsize=_REMEMBERED)(self._find_each)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a file, and check all its lines.

        :raises KrowlError: there is none, or a line is wrong; the message has its number
        """
        try:
            with path.open("rb") as file:
                _check(path)
                # An empty file cannot be mapped.
                content = b"" if not path.stat().st_size else _mapped(file.fileno())
        except OSError as error:
            raise KrowlError(
                f"{path} cannot be read: {error.strerror}; make it by scrapy graph --into"
            ) from error
        return cls(content)

    def harmonic(self, host: str) -> float:
        """Return the harmonic centrality of a host, 0.0 of one that has no rank."""
        return self._find(host)[0]

    def pagerank(self, host: str) -> float:
        """Return the PageRank of a host, 0.0 of one that has no rank."""
        return self._find(host)[1]

    def close(self) -> None:
        if isinstance(self._content, mmap.mmap):
            self._content.close()

    def _find_each(self, host: str) -> tuple[float, float]:
        for name in names_for(host):
            if (line := self._line_of(name.encode(errors="replace") + b"\t")) is not None:
                harmonic, pagerank = line.split(b"\t")[1:]
                return float(harmonic), float(pagerank)
        return _NONE

    def _line_of(self, key: bytes) -> bytes | None:
        """Return the line that begins with ``key``."""
        content, low, high = self._content, 0, len(self._content)
        while low < high:
            middle = (low + high) // 2
            start = content.rfind(b"\n", low, middle) + 1 or low
            line = content[start : content.find(b"\n", middle)]
            if line.startswith(key):
                return line
            if line < key:
                low = start + len(line) + 1
            else:
                high = start
        return None


def names_for(host: str) -> list[str]:
    """Return the names by which the graph may know a host of the crawl, the narrowest first.

    The graph leaves out "www" and the ports of the web. A Gemini server is known by its port.
    """
    name, colon, port = host.partition(":")
    bare = name.removeprefix("www.")
    bare = bare if "." in bare else name
    if not colon:
        return [bare]
    ported = f"{bare}:{port}"
    return [ported] if port == GEMINI_PORT else [ported, bare]


def write(path: Path, ranks: Iterable[tuple[str, float, float]]) -> int:
    """Replace the file by these hosts with their harmonic centralities and PageRanks, in any order.
    Return their number. Raises OSError, which leaves the file as it was."""
    lines = sorted(f"{host}\t{near:.8g}\t{rank:.8g}\n".encode() for host, near, rank in ranks)
    with write_durably(path) as file:
        file.writelines(lines)
    return len(lines)


def _mapped(number: int) -> mmap.mmap:
    return mmap.mmap(number, 0, access=mmap.ACCESS_READ)


def _check(path: Path) -> None:
    """:raises KrowlError: a line has another form, or is before the one in front of it"""
    number, last = 0, b""
    with path.open("rb") as file:
        while block := file.readlines(_BLOCK):
            lines = [last, *block] if last else block
            if _LINES.fullmatch(b"".join(block)) is None or sorted(lines) != lines:
                _refuse(path, block, number, last)
            number += len(block)
            last = block[-1]


def _refuse(path: Path, lines: list[bytes], before: int, last: bytes) -> None:
    way = "make the file again by scrapy graph --into"
    for number, line in enumerate(lines, before + 1):
        shown = line[:60].decode(errors="replace").strip()
        if _LINE.fullmatch(line) is None:
            whole = line.endswith(b"\n")
            fault = "is not host, tab, number, tab, number" if whole else "is cut off"
            raise KrowlError(f"{path}: line {number} {fault} ({shown!r}): {way}")
        if line < last:
            raise KrowlError(f"{path}: line {number} is not sorted by host ({shown!r}): {way}")
        last = line

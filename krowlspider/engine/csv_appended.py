"""A CSV file that a feed appends to: its header, and its last row, which a kill may have cut."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import os
import re
from codecs import getincrementaldecoder
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# What Scrapy's post-processing may have made of a feed, by the first bytes of the file.
_PACKED: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
# Characters of a header that are read.
_HEADER_MAX = 65_536
# Bytes at the end of a file that are read: a look at all of a large one would hold up the crawl.
_TAIL = 1 << 20
_UNREADABLE = (OSError, EOFError, UnicodeError, csv.Error, lzma.LZMAError)


@dataclass(frozen=True, slots=True)
class Appended:
    """A file that has content; ``is_packed`` if it is compressed."""

    path: Path
    is_packed: bool

    @property
    def name(self) -> str:
        return str(self.path)

    def header(self, encoding: str, form: Mapping[str, Any]) -> list[str]:
        """Return the cells of the first line, which is written in the ``form`` that `csv` knows;
        none if it cannot be read."""
        try:
            with self._opened() as file:
                # A spreadsheet that has saved the file may have put the mark in front.
                reading = "utf-8-sig" if encoding.lower() in {"utf-8", "utf8"} else encoding
                with TextIOWrapper(file, encoding=reading, newline="") as text:
                    return next(csv.reader(iter(lambda: text.readline(_HEADER_MAX), ""), **form))
        except (*_UNREADABLE, StopIteration):
            return []

    def end_row(self, encoding: str, form: Mapping[str, Any]) -> str:
        """Return what ends the last row of the file, "" if it is whole.

        A kill cuts the row anywhere. Within quotes, all that follows would be text of its cell.
        Bytes of a character that was cut are removed from the file.
        """
        if self.is_packed:
            return ""
        size = self.path.stat().st_size
        # A multiple of the bytes of a character.
        start = max(0, size - _TAIL) // 4 * 4
        decoder = getincrementaldecoder(encoding)("replace")
        with self.path.open("rb") as file:
            file.seek(start)
            text = decoder.decode(file.read())
        if torn := len(decoder.getstate()[0]):
            os.truncate(self.path, size - torn)
        if form.get("doublequote", True) and not form.get("escapechar"):
            quote = form.get("quotechar", '"')
            separator = form.get("delimiter", ",")
            if _ends_within_quotes(text, quote, separator, is_whole=not start):
                return f"{quote}\r\n"
        return "" if text.endswith(("\r", "\n")) else "\r\n"

    def _opened(self) -> Any:
        with self.path.open("rb") as file:
            start = file.read(6)
        unpack = next((how for magic, how in _PACKED.items() if start.startswith(magic)), None)
        return self.path.open("rb") if unpack is None else unpack(self.path)


def appended_to(file: IO[bytes]) -> Appended | None:
    """Return the file on disk that an open file appends to; None for an empty one, and for one that
    is no file."""
    # Scrapy's post-processing wraps the file that it writes to.
    file = getattr(file, "file", file)
    name = getattr(file, "name", None)
    if not isinstance(name, str | os.PathLike):
        return None
    path = Path(name)
    try:
        if not (path.is_file() and os.fstat(file.fileno()).st_size):
            return None
        with path.open("rb") as content:
            start = content.read(6)
    except OSError:
        return None
    return Appended(path, start.startswith(tuple(_PACKED)))


def _ends_within_quotes(text: str, quote: str, separator: str, *, is_whole: bool) -> bool:
    """Return whether the end of a CSV file is within a quoted cell.

    A text that is not the whole file may begin within one: then quotes tell, which stand only at
    the ends of cells, and in pairs within them.
    """
    faults, is_within = _quotes(text, quote, separator, is_within=False)
    if is_whole or not faults:
        return is_within
    other, is_within_then = _quotes(text, quote, separator, is_within=True)
    return is_within_then if other < faults else is_within


def _quotes(text: str, quote: str, separator: str, *, is_within: bool) -> tuple[int, bool]:
    """Return how many quotes stand where none may, and whether the text ends within quotes, if it
    begins within them or not."""
    around, faults = {separator, "\r", "\n", ""}, 0
    for run in re.finditer(f"{re.escape(quote)}+", text):
        before, after = text[max(0, run.start() - 1) : run.start()], text[run.end() : run.end() + 1]
        was_within = is_within
        is_within ^= len(run[0]) % 2 == 1
        faults += not was_within and before not in around
        faults += not is_within and after not in around
    return faults, is_within

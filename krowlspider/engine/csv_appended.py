"""A CSV file that a feed appends to: its header, and whether it ends with a whole line."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import os
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
_UNREADABLE = (OSError, EOFError, UnicodeError, csv.Error, lzma.LZMAError)


@dataclass(frozen=True, slots=True)
class Appended:
    """A file that has content. ``is_cut`` is whether its last line has no end."""

    path: Path
    is_cut: bool

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
            content.seek(-1, os.SEEK_END)
            is_whole = content.read(1) in {b"\n", b"\r"}
    except OSError:
        return None
    return Appended(path, not is_whole and not start.startswith(tuple(_PACKED)))

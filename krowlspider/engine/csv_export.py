"""CSV feeds that keep their columns across kills, and are safe to open in a spreadsheet.

Cells hold text of strangers. It stays text and never becomes a formula.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import logging
import lzma
import os
import re
from codecs import getincrementaldecoder
from collections.abc import Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from itemadapter import ItemAdapter
from scrapy.exporters import CsvItemExporter as ScrapyCsvItemExporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from scrapy.crawler import Crawler

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


logger = logging.getLogger(__name__)

# Control characters but tab, line feed and carriage return, which a quoted cell may hold.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# The start of a formula, in full width too, or what a spreadsheet skips before one. A number with
# its sign is none.
_NUMBER = r"[+-](?=[.,]?[0-9])[0-9]*(?:[.,][0-9]+)*(?:[eE][+-]?[0-9]+)?%?\Z"
_FORMULA = re.compile(rf"(?!{_NUMBER})\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")


class CsvItemExporter(ScrapyCsvItemExporter):
    """Scrapy's exporter with fixed columns, one header a file, and harmless text in the cells.

    The columns are, in this order: those that the user has set; those of the file, if it is
    appended to; the ``item_fields`` of the spider, if the first item is of this kind, and the other
    fields of the first item. ``item_fields`` says of each field whether all items have it.

    Control characters become U+FFFD. Text that would be a formula gets an apostrophe in front.
    """

    def __init__(self, file: IO[bytes], *args: Any, **kwargs: Any):
        self._appended = appended_to(file)
        super().__init__(file, *args, **kwargs)  # type: ignore[arg-type]
        self.csv_writer = _HarmlessWriter(self.csv_writer.writerow)  # type: ignore[assignment]
        self._item_fields: Mapping[str, bool] = {}
        # The columns once there are some, while no item has had another field.
        self._columns: frozenset[str] | None = None
        self._begun = False

    @classmethod
    def from_crawler(cls, crawler: Crawler, file: IO[bytes], **kwargs: Any) -> Self:
        exporter = cls(file, **kwargs)
        exporter._item_fields = getattr(crawler.spider, "item_fields", {})
        return exporter

    def export_item(self, item: Any) -> None:
        if not self._begun:
            self._begun = True
            self._begin(ItemAdapter(item))
        elif self._columns is not None and not self._columns.issuperset(ItemAdapter(item)):
            self._warn_of_fields(ItemAdapter(item))
        super().export_item(item)

    def _begin(self, first: ItemAdapter) -> None:
        """Decide on the columns, and whether the file gets a header."""
        appended, is_set = self._appended, bool(self.fields_to_export)
        if not is_set:
            self.fields_to_export = self._found(first)
        if appended is None:
            return
        self.stream.write(appended.end_row(self.encoding or "utf-8", self._kwargs))
        if not (self.include_headers_line and (header := self._header(appended))):
            return
        if not is_set:
            self.fields_to_export = [_field(cell) for cell in header]
            self._warn_of_fields(first)
        self.include_headers_line = list(map(harmless, self._titles())) != header
        if self.include_headers_line:
            logger.warning(
                "%s has other columns than FEED_EXPORT_FIELDS: the new rows begin with a header of"
                " their own; give another file, or the old columns",
                appended.name,
            )

    def _found(self, first: ItemAdapter) -> list[str]:
        """Return the columns for items such as the first one."""
        declared, own = self._item_fields, list(first.field_names())
        if not all(name in first for name, is_always in declared.items() if is_always):
            declared = {}
        self._columns = frozenset([*declared, *own])
        return list(dict.fromkeys([*declared, *own]))

    def _titles(self) -> list[str]:
        fields = self.fields_to_export or ()
        return list(fields.values() if isinstance(fields, Mapping) else fields)

    def _header(self, appended: Appended) -> list[str]:
        return appended.header(self.encoding or "utf-8", self._kwargs)

    def _warn_of_fields(self, item: ItemAdapter) -> None:
        """Warn once of fields that have no column."""
        columns = frozenset(self.fields_to_export or ())
        if missing := [name for name in item if name not in columns]:
            where = "the CSV feed" if self._appended is None else self._appended.name
            logger.warning(
                "%s has no column for %s of an item: set FEED_EXPORT_FIELDS, or give a new file",
                where,
                ", ".join(missing),
            )
        self._columns = None if missing else columns


class _HarmlessWriter:
    def __init__(self, write: Callable[[list[Any]], Any]):
        self._write = write

    def writerow(self, row: Iterable[Any]) -> None:
        self._write([harmless(cell) if isinstance(cell, str) else cell for cell in row])


def harmless(text: str) -> str:
    """Return text without control characters, which a spreadsheet does not take for a formula."""
    text = _CONTROL.sub("\ufffd", text)
    return f"'{text}" if _FORMULA.match(text) else text


def _field(cell: str) -> str:
    """Return the field of a cell of a header."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell[1:]) else cell

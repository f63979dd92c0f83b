"""CSV feeds that are safe to open in a spreadsheet.

Cells hold text of strangers. It stays text and never becomes a formula.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scrapy.exporters import CsvItemExporter as ScrapyCsvItemExporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Control characters but tab, line feed and carriage return, which a quoted cell may hold.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# The start of a formula, in full width too, or what a spreadsheet skips before one. A number with
# its sign is none.
_NUMBER = r"[+-](?=[.,]?[0-9])[0-9]*(?:[.,][0-9]+)*(?:[eE][+-]?[0-9]+)?%?\Z"
_FORMULA = re.compile(rf"(?!{_NUMBER})\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")


class CsvItemExporter(ScrapyCsvItemExporter):
    """Scrapy's exporter with harmless text in the cells.

    Control characters become U+FFFD. Text that would be a formula gets an apostrophe in front.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.csv_writer = _HarmlessWriter(self.csv_writer.writerow)  # type: ignore[assignment]


class _HarmlessWriter:
    def __init__(self, write: Callable[[list[Any]], Any]):
        self._write = write

    def writerow(self, row: Iterable[Any]) -> None:
        self._write([_harmless(cell) if isinstance(cell, str) else cell for cell in row])


def _harmless(text: str) -> str:
    text = _CONTROL.sub("\ufffd", text)
    return f"'{text}" if _FORMULA.match(text) else text

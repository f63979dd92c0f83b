"""CSV feeds that are safe to open in a spreadsheet.

Cells hold text of strangers. It stays text and never becomes a formula.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scrapy.exporters import CsvItemExporter as ScrapyCsvItemExporter

if TYPE_CHECKING:
    from collections.abc import Iterable

# Control characters but tab, line feed and carriage return, which a quoted cell may hold.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# The start of a formula, in full width too, or what a spreadsheet skips before one.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")


class CsvItemExporter(ScrapyCsvItemExporter):
    """Scrapy's exporter with harmless text in the cells.

    Control characters become U+FFFD. Text that would be a formula gets an apostrophe in front.
    """

    def _build_row(self, values: Iterable[Any]) -> Iterable[Any]:
        for value in super()._build_row(values):
            yield _harmless(value) if isinstance(value, str) else value


def _harmless(text: str) -> str:
    text = _CONTROL.sub("\ufffd", text)
    return f"'{text}" if _FORMULA.match(text) else text

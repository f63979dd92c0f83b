"""CSV feeds that a spreadsheet may open: what strangers wrote in a cell is text there, and never a
formula."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scrapy.exporters import CsvItemExporter as ScrapyCsvItemExporter

if TYPE_CHECKING:
    from collections.abc import Iterable

# All but tab, line feed and carriage return, which a quoted cell may have inside.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# How a formula begins, in full width too, or what a spreadsheet skips before one.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")


class CsvItemExporter(ScrapyCsvItemExporter):
    """Scrapy's own, but control characters in text become U+FFFD, and an apostrophe goes before
    what would be a formula."""

    def _build_row(self, values: Iterable[Any]) -> Iterable[Any]:
        for value in super()._build_row(values):
            yield _harmless(value) if isinstance(value, str) else value


def _harmless(text: str) -> str:
    text = _CONTROL.sub("\ufffd", text)
    return f"'{text}" if _FORMULA.match(text) else text

"""CSV feeds that keep their columns, and are safe to open in a spreadsheet.

Cells hold text of strangers. It stays text and never becomes a formula.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

from itemadapter import ItemAdapter
from scrapy.exporters import CsvItemExporter as ScrapyCsvItemExporter

from krowlspider.engine.csv_appended import appended_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.engine.csv_appended import Appended

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
        self.include_headers_line = list(map(_harmless, self._titles())) != header
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
        self._write([_harmless(cell) if isinstance(cell, str) else cell for cell in row])


def _harmless(text: str) -> str:
    text = _CONTROL.sub("\ufffd", text)
    return f"'{text}" if _FORMULA.match(text) else text


def _field(cell: str) -> str:
    """Return the field of a cell of a header."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell[1:]) else cell

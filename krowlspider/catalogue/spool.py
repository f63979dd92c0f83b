"""Rows on their way into PostgreSQL, as files in the text format of its COPY.

A connection that is lost is tried again with the same files, and no transaction stays open while a
WARC file is read.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from datetime import datetime
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Self

from krowlspider.catalogue.statements import KEYS, cleaned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from krowlspider.catalogue.sinks import Row

# Bytes of a URL: PostgreSQL takes keys of 2,704 bytes, and a file name goes with it.
URL_MAX = 2_400
_BLOCK = 1 << 18
_SPECIAL = re.compile(r"[\\\t\n\r]")
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


class RowSpool:
    """The rows of one WARC file, each table in a file of its own. Closing it removes them.

    ``rows`` counts them. ``left_out`` counts those with a URL that no index takes.

    :raises OSError: there is no room on the disk
    """

    def __init__(self, rows: Iterable[tuple[str, Row]]) -> None:
        self.rows = self.left_out = 0
        self._files: dict[str, IO[bytes]] = {}
        with ExitStack() as stack:
            for table, row in rows:
                if table not in self._files:
                    self._files[table] = stack.enter_context(TemporaryFile())
                self._put(table, row)
            self._open = stack.pop_all()

    def _put(self, table: str, row: Row) -> None:
        url = row.get("url")
        if isinstance(url, str) and len(url.encode(errors="replace")) > URL_MAX:
            self.left_out += 1
            return
        self._files[table].write(copy_line(cleaned(row, table)))
        self.rows += 1

    @property
    def tables(self) -> list[str]:
        """The tables that have rows, always in the same order."""
        return [name for name in KEYS if name in self._files]

    def blocks(self, table: str) -> Iterator[bytes]:
        """Yield the rows of a table, from the first one on."""
        file = self._files[table]
        file.seek(0)
        while block := file.read(_BLOCK):
            yield block

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()


def copy_line(values: Iterable[object]) -> bytes:
    """Return a row as a line of COPY's text format."""
    return ("\t".join(map(_field, values)) + "\n").encode()


def _field(value: object) -> str:
    if value is None:
        return r"\N"
    if isinstance(value, str):
        return _SPECIAL.sub(lambda each: _ESCAPES[each[0]], value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bool):
        return "t" if value else "f"
    return str(value)

"""What keeps the rows of a catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

# A value of a row: JSON is text, a timestamp is an aware datetime in UTC.
Value = str | int | float | bool | None
Row = dict[str, "Value | datetime"]


class Sink(Protocol):
    """Keeps the rows of WARC files, those of a file all or not at all."""

    def done(self) -> set[str]:
        """Return the names of the WARC files whose rows are in it."""

    def write(self, name: str, rows: Iterable[tuple[str, Row]]) -> None:
        """Take all rows of a file, pairs of table and row, and keep them durably.

        They replace what an earlier try of the same file left, so each row is in it once. Nothing
        of the file is `done` if ``rows`` raises.

        :raises KrowlError: they cannot be kept now; the message has the way out
        """

    def close(self) -> None:
        """Give back what is open. Nothing is written."""

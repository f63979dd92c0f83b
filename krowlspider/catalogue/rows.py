"""The rows of one WARC file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from krowlspider.catalogue.sinks import Row


def rows_of(path: Path, tables: frozenset[str]) -> Iterator[tuple[str, Row]]:
    """Yield pairs of table and row of a finished WARC file; the same file gives the same rows."""
    raise NotImplementedError

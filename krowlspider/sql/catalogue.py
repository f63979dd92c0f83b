"""Find the Parquet files of a crawl's catalogue, and the WARC files that are not in it yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.catalogue.columns import TABLES

if TYPE_CHECKING:
    from pathlib import Path

NAME = "catalogue"


def catalogue_in(path: Path) -> Path | None:
    """Return the catalogue in a JOBDIR, or the one that a path is itself; None without one."""
    for folder in (path / NAME, path):
        if any(next((folder / table).glob("crawl=*"), None) for table in TABLES):
            return folder
    return None


def files_of(catalogue: Path, table: str) -> list[Path]:
    """Return the Parquet files of a table, by name. Drafts have other names."""
    found = (catalogue / table).glob("crawl=*/**/*.parquet")
    return sorted(path.absolute() for path in found if not path.name.startswith("."))

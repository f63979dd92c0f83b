"""Find the Parquet files of a crawl's catalogue, and count what is not in it yet."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from krowlspider.archive.finished import finished
from krowlspider.catalogue.parquet import MARKERS

if TYPE_CHECKING:
    from pathlib import Path

NAME = "catalogue"


def catalogue_in(path: Path) -> Path | None:
    """Return the catalogue in a JOBDIR, or the one that a path is itself; None without one."""
    return next((each for each in (path / NAME, path) if (each / MARKERS).is_dir()), None)


def crawl_of(path: Path) -> str:
    """Return the name of a crawl: the one that its catalogue has, or that of its JOBDIR."""
    catalogue = catalogue_in(path)
    found = {part.name for part in catalogue.glob("*/crawl=*")} if catalogue else set()
    return unquote(found.pop().partition("=")[2]) if len(found) == 1 else path.resolve().name


def files_of(catalogue: Path, table: str) -> list[Path]:
    """Return the Parquet files of a table, by name. Drafts have other names."""
    found = (catalogue / table).glob("crawl=*/**/*.parquet")
    return sorted(path.absolute() for path in found if not path.name.startswith("."))


def missing(jobdir: Path, catalogue: Path) -> int:
    """Return how many finished WARC files of a crawl are not in its catalogue."""
    return sum(not (catalogue / MARKERS / path.name).exists() for path in finished(jobdir))

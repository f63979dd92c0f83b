"""The note in JOBDIR of where the live page of the running crawl is."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "live-page"


def note_page(jobdir: Path, url: str) -> None:
    """Note the URL of the page. Without room for it, `scrapy top` must be given the URL."""
    with suppress(OSError):
        (jobdir / _NAME).write_text(f"{url}\n", encoding="ascii")


def forget_page(jobdir: Path) -> None:
    (jobdir / _NAME).unlink(missing_ok=True)


def noted_page(jobdir: Path) -> str | None:
    """Return the URL that the last crawl has noted; None without a note.

    After a kill the note is still there, and another crawl may have the address: ask the page.
    """
    with suppress(OSError, UnicodeDecodeError):
        url = (jobdir / _NAME).read_text(encoding="ascii").strip()
        return url if url.startswith("http://") else None
    return None

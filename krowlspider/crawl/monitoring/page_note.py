"""Notes in JOBDIR of where the live page and the metrics of the running crawl are."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# The names of the notes.
PAGE, METRICS = "live-page", "metrics-page"


def note_url(jobdir: Path, note: str, url: str) -> None:
    """Note a URL. On a full disk there is no note, and `scrapy top` must be given the URL."""
    with suppress(OSError):
        (jobdir / note).write_text(f"{url}\n", encoding="ascii")


def forget_urls(jobdir: Path) -> None:
    for note in (PAGE, METRICS):
        (jobdir / note).unlink(missing_ok=True)


def noted_url(jobdir: Path, note: str) -> str | None:
    """Return the URL that the last crawl has noted; None without a note.

    After a kill the note is still there, and another crawl may have the address: ask the page.
    """
    with suppress(OSError, UnicodeDecodeError):
        url = (jobdir / note).read_text(encoding="ascii").strip()
        return url if url.startswith("http://") else None
    return None

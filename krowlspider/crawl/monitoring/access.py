"""Files in JOBDIR by which people reach a running crawl: URLs of its pages, and secrets."""

from __future__ import annotations

from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING

from krowlspider.crawl.folder import write_private

if TYPE_CHECKING:
    from pathlib import Path

# The names of the notes of URLs, and those of the files of secrets.
PAGE, METRICS = "live-page", "metrics-page"
CONTROL_TOKEN = "control-token"  # noqa: S105
TELNET_PASSWORD = "telnet-password"  # noqa: S105


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


class Secret:
    """A secret that is ``given``, or else a new one, which is never logged."""

    def __init__(self, given: str):
        self.text = given or token_hex(16)
        self._is_new = not given
        self._file: Path | None = None

    def keep(self, file: Path) -> str:
        """Write a new secret to a file that only its owner can read. Return where a person finds
        it; "" for one that was given."""
        if not self._is_new:
            return ""
        write_private(file, self.text)
        self._file = file
        return f"in {file}"

    def forget(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

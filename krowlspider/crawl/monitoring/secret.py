"""What a person must know to give orders to a crawl: the token over HTTP, the telnet password."""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING

from krowlspider.crawl.folder import write_private

if TYPE_CHECKING:
    from pathlib import Path

# Their files in JOBDIR.
CONTROL_TOKEN = "control-token"  # noqa: S105
TELNET_PASSWORD = "telnet-password"  # noqa: S105


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

"""The token of a person who gives orders to a crawl over HTTP."""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING

from krowlspider.crawl.folder import write_private

if TYPE_CHECKING:
    from pathlib import Path

FILE = "control-token"


class ControlToken:
    """A token that is ``given``, or else a new one in a file of the job folder that only its owner
    can read.

    ``where`` says where a person finds it, in words; empty for one that is given.
    """

    def __init__(self, given: str, folder: Path):
        self.text = given or token_hex(16)
        self._file = None if given else folder / FILE
        self.where = []
        if self._file is not None:
            write_private(self._file, self.text)
            self.where = [f"token of its buttons in {self._file}"]

    def forget(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

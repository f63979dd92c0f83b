"""Show what the processes write to standard error above a live line."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK = 65_536


class Relay:
    """A pipe for processes to write to: ``end`` is theirs. ``show`` gets whole lines.

    A line without an end is shown when it has 64 KiB, or at the `close`.
    """

    def __init__(self, show: Callable[[str], None]):
        self._show = show
        self._rest = b""
        self._source, self.end = os.pipe()
        os.set_blocking(self._source, False)
        asyncio.get_running_loop().add_reader(self._source, self._read)

    def _read(self) -> bool:
        """Show what is there; return whether there was anything."""
        try:
            data = os.read(self._source, _CHUNK)
        except BlockingIOError:
            return False
        lines, found, self._rest = (self._rest + data).rpartition(b"\n")
        if len(self._rest) >= _CHUNK:
            lines, found, self._rest = lines + found + self._rest, b"\n", b""
        self._pass_on(lines + found)
        return bool(data)

    def _pass_on(self, lines: bytes) -> None:
        if lines:
            self._show(lines.decode(errors="replace"))

    def close(self) -> None:
        """Show what is left. The processes have ended."""
        asyncio.get_running_loop().remove_reader(self._source)
        os.close(self.end)
        while self._read():
            pass
        self._pass_on(self._rest and self._rest + b"\n")
        os.close(self._source)

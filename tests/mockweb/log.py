"""The request log: one JSON object a line, in the order in which the requests ended."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FLUSH_S = 0.2
"""Most seconds until an entry is written."""


@dataclass(slots=True, eq=False)
class Entry:
    """One request.

    - `start`: when its first byte was read, in seconds of `time.monotonic()`.
    - `end`: just before the last bytes of the answer went to the transport, or when the connection
      was lost.
    - `host`: the Host header in lower case, port included.
    - `status`, `bytes`, `sha1`: of the bytes sent; 0, 0 and "" if there are none.
    - `complete`: whether the whole answer was sent.
    - `retry_after`: seconds of that header, 0 without it.
    - `address`: the server address that was asked.
    """

    start: float
    end: float
    host: str
    path: str
    method: str
    status: int
    bytes: int
    sha1: str
    ua: str
    conn: int
    peer: str
    tls: bool
    complete: bool
    retry_after: float
    address: str = ""

    @property
    def url(self) -> str:
        """The requested URL."""
        return f"{'https' if self.tls else 'http'}://{self.host}{self.path}"


class LogWriter:
    """Appends entries to a file in batches."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, entry: Entry) -> None:
        """Add an entry; it is in the file within FLUSH_S. This needs a running loop."""
        self._lines.append(json.dumps(asdict(entry)))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)

    def flush(self) -> None:
        """Write the entries added."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lines:
            self._file.write("\n".join(self._lines) + "\n")
            self._file.flush()
            self._lines.clear()

    def close(self) -> None:
        """Write the entries added and close the file."""
        self.flush()
        self._file.close()


def read_log(path: Path) -> list[Entry]:
    """Return the entries of a log by start time, without a last line that a kill cut short."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return sorted((Entry(**json.loads(line)) for line in lines), key=lambda entry: entry.start)

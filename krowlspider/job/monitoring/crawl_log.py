"""``crawl.log``: a line for each fetch, in the columns of Heritrix's log of the same name."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.archive.payload import digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from krowlspider.fetch.errors import Exchange, FetchError
    from krowlspider.fetch.memory import StoredResponse
    from krowlspider.job.in_flight import InFlight

    _Body = bytes | StoredResponse | None

logger = logging.getLogger(__name__)

# Seconds between two writes.
_INTERVAL = 1.0
# Lines that wait to be written, and bytes of bodies that wait for their digests.
_LINES_MAX = 50_000
_BODIES_MAX = 16_000_000
# Files, the current one included.
_FILES = 10
# What would break a column, or is no printable ASCII.
_UNFIT = re.compile(r"[^!-~]")
# Heritrix's codes for fetches without an answer, by the beginnings of our kinds of failure.
_CODES = {
    "dns_": -1,
    **dict.fromkeys(("connect_", "network_", "tls", "proxy", "address_", "port"), -2),
    **dict.fromkeys(("disconnect", "no_close_notify", "reset", "protocol"), -3),
    **dict.fromkeys(("first_byte_", "total_", "too_slow"), -4),
}
_OTHER_CODE = -5

# The columns before the digest, the body, and the columns behind it.
_Line = tuple[str, "_Body", str]


class _Answer(NamedTuple):
    """Columns of an answer: bytes, media type, start and duration; and its body."""

    size: str = "-"
    media_type: str = ""
    took: str = "-"
    body: _Body = None
    body_size: int = 0


class CrawlLog:
    """Appends to the file at ``path``, in a thread. Its last ``most`` bytes are kept, in ten files:
    ``path`` itself, and older ones with .1 to .9 behind its name.

    ``node`` stands in the column of the thread. A disk that takes no lines costs these lines.
    """

    def __init__(
        self,
        path: Path,
        most: int,
        *,
        algorithm: str,
        node: str,
        wall: Callable[[], float] = time.time,
    ):
        self._path = path
        self._file_max = max(1, most // _FILES)
        self._algorithm = algorithm
        self._node = node or "-"
        self._wall = wall
        self._lines: list[_Line] = []
        self._body_bytes = 0
        self._lost = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        # A process that was killed, or a full disk, may have left half a line.
        self._is_begun = False

    def fetched(self, in_flight: InFlight, exchange: Exchange, error: str = "") -> None:
        """Log an exchange, with the kind of error that ended it, if any."""
        times = exchange.times
        start = datetime.fromtimestamp(times.started, UTC)
        took = f"{start:%Y%m%d%H%M%S}{start.microsecond // 1000:03d}+{times.duration * 1000:.0f}"
        media_type = next(
            (value for name, value in exchange.headers if name.lower() == b"content-type"), b""
        )
        kind = media_type.partition(b";")[0].strip().decode("latin-1")
        size, stored = str(exchange.response_size), exchange.stored
        if stored is None:
            answer = _Answer(size, kind, took, exchange.body, len(exchange.body))
        else:
            answer = _Answer(size, kind, took, stored, stored.body_size)
        self._log(in_flight, exchange.status, answer, error)

    def failed(self, in_flight: InFlight, error: FetchError) -> None:
        """Log a fetch that failed."""
        if error.exchange is not None:
            self.fetched(in_flight, error.exchange, error.kind)
            return
        code = next((c for start, c in _CODES.items() if error.kind.startswith(start)), _OTHER_CODE)
        self._log(in_flight, code, _Answer(), error.kind)

    def _log(self, in_flight: InFlight, status: int, answer: _Answer, error: str) -> None:
        if len(self._lines) >= _LINES_MAX:
            self._lost += 1
            return
        body = answer.body
        if body is not None:
            if self._body_bytes + answer.body_size > _BODIES_MAX:
                body = None
            else:
                self._body_bytes += answer.body_size
        path, via, notes = _found(in_flight)
        now = datetime.fromtimestamp(self._wall(), UTC)
        head = (
            f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z {status:5} {answer.size:>10}"
            f" {_fit(in_flight.url)} {path} {_fit(via)} {_fit(answer.media_type)} {self._node}"
            f" {answer.took}"
        )
        notes += [error] if error else []
        self._lines.append((head, body, f"- {','.join(notes) or '-'}\n"))
        if self._timer is None and self._writing is None:
            self._plan()

    def _plan(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._begin)

    def _begin(self) -> None:
        self._timer = None
        lines, self._lines, self._body_bytes = self._lines, [], 0
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(None, self._write, lines)
        self._writing.add_done_callback(self._written)

    def _written(self, _: asyncio.Future[None]) -> None:
        self._writing = None
        if self._lines:
            self._plan()

    async def close(self) -> None:
        """Write what waits."""
        if self._writing is not None:
            await self._writing
        if self._timer is not None:
            self._timer.cancel()
        if self._lines:
            await asyncio.to_thread(self._write, self._lines)

    def _write(self, lines: list[_Line]) -> None:
        text = "".join(f"{head} {self._digest(body)} {tail}" for head, body, tail in lines).encode()
        lost, self._lost = self._lost, 0
        try:
            self._rotate(len(text))
            with self._path.open("ab") as file:
                file.write(text)
        except OSError as error:
            # The disk may have taken a part of them.
            self._is_begun = False
            logger.warning("%s: lines lost: %d (%s)", self._path, len(lines), error.strerror)
        if lost:
            logger.warning("%s: lines lost: %d (its disk is too slow)", self._path, lost)

    def _digest(self, body: _Body) -> str:
        if body is None:
            return "-"
        try:
            return digest(body if isinstance(body, bytes) else body.mapped()[1], self._algorithm)
        except OSError:
            return "-"

    def _rotate(self, more: int) -> None:
        """Make room for ``more`` bytes, and end a line that was cut short."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if size and size + more > self._file_max:
            older = [self._path.with_name(f"{self._path.name}.{at}") for at in range(1, _FILES)]
            for newer, old in reversed(list(zip([self._path, *older], older, strict=False))):
                if newer.exists():
                    newer.replace(old)
        elif size and not self._is_begun:
            with self._path.open("r+b") as file:
                file.seek(-1, 2)
                if file.read(1) != b"\n":
                    file.write(b"\n")
        self._is_begun = True


def _fit(text: str) -> str:
    """Return a text as a column: without blanks and control characters, "-" if it is empty."""
    if _UNFIT.search(text):
        text = _UNFIT.sub(lambda found: "".join(f"%{b:02X}" for b in found[0].encode()), text)
    return text or "-"


def _found(in_flight: InFlight) -> tuple[str, str, list[str]]:
    """Return how a URL was found, the URL that led there, and annotations.

    How is the last letter of Heritrix's discovery path: L link, R redirect, M sitemap, E requisite,
    P robots.txt or an opt-out file, - for a seed. M, E and, for opt-out files, P are kept with
    metadata in KROWL_WARC_ALSO only.
    """
    if in_flight.lease is None:
        return "P", "", []
    entry = in_flight.lease.entry
    notes = [f"depth:{entry.depth}"] if entry.depth else []
    if tries := entry.retries + entry.throttling:
        notes.append(f"{tries + 1}t")
    if entry.chain:
        return "R", entry.chain[-1], notes
    if entry.redirects:
        return "R", entry.via, notes
    return entry.path[-1:] or ("L" if entry.depth else "-"), entry.via, notes

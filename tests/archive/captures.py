"""Captures to archive: one plain page, and the odd kinds of responses on the web."""

from __future__ import annotations

import os
import re
import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from krowlspider.archive.reading import GzipMember
from krowlspider.archive.write.composer import PayloadIndex
from krowlspider.archive.write.records import Capture, RecordIds, Wire
from krowlspider.archive.write.series import MAX_AGE, SeriesOptions, WarcSeries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import FrameType

    from fastwarc.warc import WarcRecord

ROOT = Path(__file__).parents[2]
REQUEST = b"GET /page HTTP/1.1\r\nHost: example.org\r\nUser-Agent: test\r\n\r\n"
CONDITIONAL = REQUEST[:-2] + b"If-None-Match: x\r\n\r\n"
# 2026-01-01T00:00:00.250000Z
STARTED = 1767225600.25
_IDS = RecordIds()


@dataclass(frozen=True)
class Odd:
    """A response as sent, and its payload."""

    response: bytes
    payload: bytes
    truncated: str = ""


CHUNKED = Odd(
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6;name=value\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n",
    b"hello world",
)
ODD = {
    "latin-1 header": Odd(b"HTTP/1.1 200 OK\r\nX-Name: caf\xe9\xff\r\n\r\nbody", b"body"),
    "empty body": Odd(b"HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n", b""),
    "binary": Odd(
        b"HTTP/1.1 200 OK\r\nContent-Length: 256\r\n\r\n" + bytes(range(256)), bytes(range(256))
    ),
    "no reason phrase": Odd(b"HTTP/1.1 200\r\nServer: x\r\n\r\nbody", b"body"),
    "no header": Odd(b"HTTP/1.0 200 OK\r\n\r\nbody", b"body"),
    "folded header": Odd(b"HTTP/1.1 200 OK\r\nX-Fold: a\r\n b\r\n\r\nbody", b"body"),
    "looks like a record": Odd(
        b"HTTP/1.1 200 OK\r\n\r\n\r\n\r\nWARC/1.1\r\nWARC-Type: response\r\n\r\n\r\n\r\n",
        b"\r\n\r\nWARC/1.1\r\nWARC-Type: response\r\n\r\n\r\n\r\n",
    ),
    "cut off": Odd(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhal", b"hal", "disconnect"),
    "too long": Odd(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhal", b"hal", "length"),
    "too slow": Odd(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhal", b"hal", "time"),
    "large": Odd(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(300_000), bytes(300_000)),
}
ALL_ODD = {**ODD, "chunked with trailers": CHUNKED}


def capture(
    number: int = 0,
    odd: Odd | None = None,
    *,
    url: str | None = None,
    address: str = "192.0.2.7",
    request: bytes | None = None,
) -> Capture:
    """Return a capture of page ``number``, with a plain response that contains the number, or
    ``odd``. Without a ``request``, a 304 answers a conditional one."""
    body = b"<p>page %d</p>" % number
    odd = odd or Odd(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body, body)
    end = odd.response.find(b"\r\n\r\n")
    found = re.search(rb"\r\nContent-Type: ([^\r]*)", odd.response[: max(end, 0)])
    status = status_of(odd.response)
    return Capture(
        identity=_IDS.new(),
        url=url or f"http://example.org/page/{number}",
        request_bytes=(CONDITIONAL if status == 304 else REQUEST) if request is None else request,
        response_bytes=odd.response,
        head=end + 4 if end >= 0 else 0,
        payload=odd.payload,
        status=status,
        media_type=found[1].decode() if found else "",
        started=STARTED,
        truncated=odd.truncated,
        wire=Wire(address),
    )


def mapped(odd: Odd, number: int) -> Capture:
    """Return a capture whose response is in a file, which is read when it is written."""
    whole = capture(number, odd)
    payload = odd.payload if odd is CHUNKED else memoryview(odd.response)[whole.head :]
    return replace(
        whole,
        response_bytes=b"",
        payload=b"",
        stored=lambda: (memoryview(odd.response), payload),
        stored_size=len(odd.response),
    )


def parsed(record: bytes) -> WarcRecord:
    """Return a record as fastwarc reads it."""
    return GzipMember(0, len(record), record).record()


def status_of(response: bytes) -> int:
    """Return the status of a response, 0 without a status line."""
    found = re.match(rb"HTTP/1\.[01] (\d{3})", response)
    return int(found[1]) if found else 0


def options(
    *,
    prefix: str = "test",
    hostname: str = "here",
    max_size: int = 10**9,
    info: Mapping[str, str] = MappingProxyType({"software": "test/1"}),
    max_age: float = MAX_AGE,
    digest: str = "sha1",
    compression: str = "isal-1",
) -> SeriesOptions:
    """Return the options of a series: the given ones, and usual values for the others."""
    return SeriesOptions(prefix, hostname, max_size, info, max_age, digest, compression)


def series(directory: Path, *, max_size: int = 10**9) -> WarcSeries:
    """Return a series of files in ``directory``."""
    return WarcSeries(directory, options(max_size=max_size))


def written(directory: Path, captures: Iterable[Capture], *, max_size: int = 10**9) -> list[Path]:
    """Write ``captures``; return the finished files."""
    files = series(directory, max_size=max_size)
    for each in captures:
        files.append(each)
    files.close()
    return finished(directory)


@contextmanager
def deduplicating(directory: Path, **given: Any) -> Iterator[WarcSeries]:
    """Yield a series in which a payload that is there already becomes a revisit."""
    directory.mkdir(exist_ok=True)
    with (
        TemporaryDirectory() as folder,
        closing(PayloadIndex(Path(folder), most=1000, warn=pytest.fail)) as payloads,
    ):
        files = WarcSeries(directory, options(**given), payloads)
        yield files
        files.close()


def finished(directory: Path) -> list[Path]:
    """Return the finished files in ``directory``, in the order in which they were begun."""
    return sorted(directory.glob("*.warc.gz"))


def durable_steps(act: Callable[[], object]) -> list[str]:
    """Return the calls of write, fsync, rename and unlink that ``act`` makes, in order."""
    steps: list[str] = []

    def note(frame: FrameType, event: str, called: object) -> None:
        if event == "c_call" and called in (os.write, os.fsync, os.rename, os.unlink):
            steps.append(called.__name__)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return steps


def undamaged(warc: Path, error: Exception) -> None:
    """Fail because of a damaged file."""
    raise AssertionError(warc) from error

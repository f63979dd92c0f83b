"""The archive writers that `bench.archive` measures, and the captures that they write.

All make the same records with the same digests: block and payload of the response, block of the
request. warcio and fastwarc compress by their defaults, with zlib's level 9.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from io import BytesIO
from statistics import fmean
from typing import TYPE_CHECKING, Any, Protocol

from fastwarc.stream_io import GzipWriter
from fastwarc.warc import WarcRecord, WarcRecordType
from warcio.warcwriter import WARCWriter

from krowlspider.archive.write.composer import PayloadIndex
from krowlspider.archive.write.records import Capture, Wire, record_id, warc_date
from krowlspider.archive.write.series import SeriesOptions, WarcSeries
from krowlspider.archive.write.writer import WarcWriter
from tests.support.realdocs import documentation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE_SIZE = 39_000
PAGES = 300
# Pairs made durable together: as with a commit a second at 100 pages a second.
BATCH = 100
OPTIONS = SeriesOptions("bench", "here", 10**9, {"software": "bench"})
REQUEST = (
    b"GET /%b HTTP/1.1\r\nHost: docs.example.org\r\n"
    b"User-Agent: krowlspider (+https://example.org/bot)\r\n"
    b"Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nAccept-Encoding: gzip, br\r\n\r\n"
)
RESPONSE = (
    b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
    b"Content-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\nConnection: keep-alive\r\n"
    b'ETag: "%d"\r\n\r\n'
)


class Contender(Protocol):
    """A writer of captures. Its class name is its name in the figures."""

    def write(self, batch: list[Capture]) -> None:
        """Write captures and make them durable."""

    def close(self) -> None: ...


class Warcio:
    def __init__(self, folder: Path) -> None:
        self._file = (folder / "warcio.warc.gz").open("wb")
        self._writer = WARCWriter(self._file, gzip=True, warc_version="1.1")

    def write(self, batch: list[Capture]) -> None:
        for capture in batch:
            request = self._record(capture, "request", capture.request_bytes)
            response = self._record(capture, "response", capture.response_bytes)
            self._writer.write_request_response_pair(request, response)
        os.fsync(self._file.fileno())

    def _record(self, capture: Capture, kind: str, block: bytes) -> Any:
        return self._writer.create_warc_record(
            capture.url,
            kind,
            payload=BytesIO(block),
            length=len(block),
            warc_headers_dict={
                "WARC-Date": warc_date(capture.started),
                "WARC-IP-Address": capture.wire.address,
            },
        )

    def close(self) -> None:
        self._file.close()


class Fastwarc:
    def __init__(self, folder: Path) -> None:
        self._file = (folder / "fastwarc.warc.gz").open("wb")
        self._stream = GzipWriter(self._file)

    def write(self, batch: list[Capture]) -> None:
        for capture in batch:
            response = self._record(capture, WarcRecordType.response, capture.response_bytes)
            # fastwarc digests the payload of parsed records only.
            response.parse_http()
            self._write(response)
            request = self._record(capture, WarcRecordType.request, capture.request_bytes)
            request.headers["WARC-Concurrent-To"] = response.headers["WARC-Record-ID"]
            self._write(request)
        self._file.flush()
        os.fsync(self._file.fileno())

    def _record(self, capture: Capture, kind: WarcRecordType, block: bytes) -> WarcRecord:
        record = WarcRecord()
        record.init_headers(kind)
        record.headers["WARC-Target-URI"] = capture.url
        record.headers["WARC-Date"] = warc_date(capture.started)
        record.headers["WARC-IP-Address"] = capture.wire.address
        record.set_bytes_content(block)
        record.is_http = True
        return record

    def _write(self, record: WarcRecord) -> None:
        record.write(self._stream, checksum_data=True)
        self._stream.finish()

    def close(self) -> None:
        self._stream.close()
        self._file.close()


class Ours:
    def __init__(self, folder: Path) -> None:
        self._payloads = payloads_in(folder)
        self._series = WarcSeries(folder, OPTIONS, self._payloads)

    def write(self, batch: list[Capture]) -> None:
        for capture in batch:
            self._series.append(capture)
        self._series.sync()

    def close(self) -> None:
        self._series.close()
        self._payloads.close()


class OursInThread:
    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._writer = WarcWriter(folder, OPTIONS, payloads=payloads_in(folder))
        self._writer.open(self._loop)

    def write(self, batch: list[Capture]) -> None:
        self._loop.run_until_complete(self._write(batch))

    async def _write(self, batch: list[Capture]) -> None:
        for written in [self._writer.write(capture) for capture in batch]:
            await written
        await self._writer.sync()

    def close(self) -> None:
        self._loop.run_until_complete(self._writer.close())
        self._loop.close()


CONTENDERS: tuple[type[Warcio | Fastwarc | Ours | OursInThread], ...] = (
    Warcio,
    Fastwarc,
    Ours,
    OursInThread,
)


@dataclass(frozen=True)
class Web:
    """Real pages, from which any number of captures is made."""

    pages: list[bytes]

    @classmethod
    def read(cls) -> Web:
        """Read PAGES different pages of similar size, PAGE_SIZE on average."""
        pages = sorted({path.read_bytes() for path in documentation().rglob("*.html")}, key=_size)
        _, first = min(
            (abs(fmean(map(len, pages[at : at + PAGES])) - PAGE_SIZE), at)
            for at in range(max(len(pages) - PAGES, 0) + 1)
        )
        return cls(pages[first : first + PAGES])

    def batches(self, pairs: int) -> Iterator[list[Capture]]:
        for first in range(0, pairs, BATCH):
            yield [self._capture(number) for number in range(first, min(first + BATCH, pairs))]

    def _capture(self, number: int) -> Capture:
        body = self.pages[number % len(self.pages)] + b"<!-- %d -->" % number
        path = f"manual/section-{number % 97}/page-{number}.html"
        head = RESPONSE % (len(body), number)
        return Capture(
            identity=record_id(os.urandom(16)),
            url=f"https://docs.example.org/{path}",
            request_bytes=REQUEST % path.encode(),
            response_bytes=head + body,
            head=len(head),
            payload=body,
            status=200,
            media_type="text/html; charset=utf-8",
            started=1767225600.25 + number / 100,
            truncated="",
            wire=Wire("192.0.2.7", tls=("TLSv1.3", "TLS_AES_256_GCM_SHA384")),
        )


def _size(page: bytes) -> tuple[int, bytes]:
    """Return a sort key that orders pages of the same size always in the same way."""
    return len(page), page


def payloads_in(folder: Path) -> PayloadIndex:
    """Return an empty payload index of the usual size."""
    return PayloadIndex(folder / "payloads", warn=print)

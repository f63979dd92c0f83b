"""WARC files as other tools write them."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from backports.zstd import ZstdCompressor, train_dict

from krowlspider.archive.payload import digest
from krowlspider.archive.write.records import record_id

if TYPE_CHECKING:
    from pathlib import Path

URLS = [f"http://other.test/{number}" for number in range(3)]
DATE = "2026-01-01T00:00:0{}Z"
SKIPPABLE = b"\x5d\x2a\x4d\x18"


def records(version: str = "WARC/1.0") -> list[bytes]:
    """Return a warcinfo record, a page, a chunked page, a revisit of it, and its request.

    They are as warcio and wget write them: the chunks have the payload digest, the URL of the
    request is in angle brackets.
    """
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>one"
    body = b"3\r\ntwo\r\n0\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    profile = "http://netpreserve.org/warc/1.0/revisit/identical-payload-digest"
    payload = ("WARC-Payload-Digest", digest(body))
    return [
        _record(version, 0, "warcinfo", None, b"software: other\r\n"),
        _record(version, 1, "response", URLS[0], page, ("WARC-Payload-Digest", digest(b"<p>one"))),
        _record(version, 2, "response", URLS[1], chunked, payload),
        _record(
            version,
            3,
            "revisit",
            URLS[2],
            b"HTTP/1.1 200 OK\r\nX: 1\r\n\r\n",
            payload,
            ("WARC-Profile", profile),
            ("WARC-Refers-To-Target-URI", URLS[1]),
            ("WARC-Refers-To-Date", DATE.format(2)),
        ),
        _record(
            version,
            4,
            "request",
            f"<{URLS[1]}>",
            b"GET /1 HTTP/1.1\r\nHost: other.test\r\n\r\n",
            ("WARC-Concurrent-To", record_id(bytes([2] * 16))),
        ),
    ]


def _record(
    version: str, number: int, kind: str, url: str | None, block: bytes, *more: tuple[str, str]
) -> bytes:
    http = {"warcinfo": "application/warc-fields", "request": "application/http; msgtype=request"}
    fields = [
        ("WARC-Type", kind),
        ("WARC-Record-ID", record_id(bytes([number] * 16))),
        ("WARC-Date", DATE.format(number)),
        *([("WARC-Target-URI", url)] if url else []),
        *([] if url is None else [("WARC-Warcinfo-ID", record_id(bytes(16)))]),
        *more,
        ("WARC-Block-Digest", digest(block)),
        ("Content-Type", http.get(kind, "application/http; msgtype=response")),
        ("Content-Length", str(len(block))),
    ]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"{version}\r\n{head}\r\n".encode() + block + b"\r\n\r\n"


def gzipped(path: Path, version: str = "WARC/1.0") -> Path:
    path.write_bytes(b"".join(gzip.compress(each, mtime=0) for each in records(version)))
    return path


def plain(path: Path, version: str = "WARC/1.0") -> Path:
    path.write_bytes(b"".join(records(version)))
    return path


def in_zstandard(path: Path, version: str = "WARC/1.0", *, dictionary: bool = False) -> Path:
    known = train_dict([b"%b%d" % (each, number) for each in records() for number in range(9)], 999)
    content = b""
    if dictionary:
        content = SKIPPABLE + len(known.dict_content).to_bytes(4, "little") + known.dict_content
    for each in records(version):
        packer = ZstdCompressor(zstd_dict=known if dictionary else None)
        content += packer.compress(each, ZstdCompressor.FLUSH_FRAME)
    path.write_bytes(content)
    return path

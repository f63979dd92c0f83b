"""Files with every kind of record, and small indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from krowlspider.archive.cdxj import line
from krowlspider.archive.payload import header
from krowlspider.archive.reading import Location
from krowlspider.archive.write.records import Capture, dns_resource, warc_date
from tests.archive.captures import ALL_ODD, STARTED, Odd, capture, deduplicating, finished

if TYPE_CHECKING:
    from pathlib import Path


TYPED = Odd(
    b"HTTP/1.1 404 Not Found\r\nServer: x\r\nContent-Type: Text/HTML; charset=utf-8\r\n"
    b"Content-Type: text/plain\r\n\r\nnone",
    b"none",
)
FOLDED = Odd(b"HTTP/1.1 200 OK\r\nContent-Type: text/css;\r\n x=y\r\n\r\na", b"a")
EMPTY_TYPE = Odd(b"HTTP/1.1 200 OK\r\nContent-Type:\r\nServer: x\r\n\r\n7", b"7")
UNCHANGED = Odd(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", b"")


def typed(each: Capture) -> Capture:
    """Return a capture with the media type in its head."""
    return replace(each, media_type=header(each.response_bytes, "Content-Type"))


def every_kind(directory: Path, algorithm: str = "sha1") -> Path:
    """Write one file of odd responses, revisits and a DNS answer."""
    odd = [*ALL_ODD.values(), TYPED, FOLDED, EMPTY_TYPE, UNCHANGED]
    with deduplicating(directory, digest=algorithm) as files:
        for number, response in enumerate([*odd, TYPED, FOLDED]):
            url = f"http://www.Example.org/{number}/?b=2&a={'é' if number % 2 else 'x'}".lower()
            files.append(typed(capture(number, response, url=url.replace("é", "%C3%A9"))))
        files.append(capture(1, url="https://192.0.2.1:8443/A%20b"))
        files.resource(dns_resource("example.org", STARTED, [("192.0.2.7", 60.0)]))
    [path] = finished(directory)
    return path


def small_index(path: Path, keys: list[str], filename: str | None = None) -> Path:
    """Write an index with one capture a second, each at the root of a host."""
    lines = [
        line(
            Location(filename or path.name.replace(".cdxj", ".warc.gz"), number, 1),
            url=f"http://{key}/",
            date=warc_date(STARTED + number),
            mime="text/html",
            status="200",
            digest="sha1:X",
        )
        for number, key in enumerate(keys)
    ]
    path.write_text("".join(sorted(lines)))
    return path

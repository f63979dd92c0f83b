"""WARC files of given fetches, with metadata records, and their rows."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from krowlspider.archive.write.records import FetchNote
from krowlspider.catalogue.columns import TABLES
from krowlspider.catalogue.rows import FileOrigin, rows_of
from tests.archive.captures import STARTED, Odd, capture, deduplicating, finished

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from krowlspider.archive.write.records import Capture

ALL = frozenset(TABLES)
_number = count(1)


def fetch(
    url: str,
    body: bytes = b"<p>Text",
    *headers: bytes,
    minute: int = 0,
    status: bytes = b"200 OK",
    mime: bytes = b"text/html",
    request: bytes | None = None,
    tag: str = "",
) -> Capture:
    fields = b"".join(b"\r\n%b" % each for each in (b"Content-Type: %b" % mime, *headers))
    message = b"HTTP/1.1 %b%b\r\n\r\n%b" % (status, fields, body)
    made = capture(odd=Odd(message, body), url=url)
    identity = f"<urn:uuid:{next(_number):08}-0000-4000-8000-000000000000>"
    made = replace(made, started=STARTED + 60 * minute, identity=identity, tag=tag)
    return made if request is None else replace(made, request_bytes=request)


def note(made: Capture, *fields: tuple[str, str]) -> FetchNote:
    return FetchNote(made.url, made.started, list(fields), made.identity)


def archived(folder: Path, *files: Iterable[Capture | FetchNote]) -> list[Path]:
    """Write a WARC file for each of ``files``, in which known payloads are revisits."""
    folder.mkdir(parents=True, exist_ok=True)
    for records in files:
        with deduplicating(folder) as series:
            for each in records:
                if isinstance(each, FetchNote):
                    series.note(each)
                else:
                    series.append(each)
    return finished(folder)


def rows(path: Path, *tables: str, earlier: Sequence[Path] = ()) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a file by table."""
    found: dict[str, list[dict[str, Any]]] = {table: [] for table in tables or ALL}
    for table, row in rows_of(path, frozenset(found), FileOrigin("autumn", "0", earlier)):
        found[table].append(row)
    return found

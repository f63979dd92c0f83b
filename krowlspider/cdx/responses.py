"""The answer to a query: it is looked up, and written in its form. Calls block on the disk."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import gmtime, strftime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin

from krowlspider.archive.cdxj import key_of
from krowlspider.archive.disk import OPEN, ArchiveError, RecordError
from krowlspider.archive.payload import header
from krowlspider.archive.reading import read_record
from krowlspider.cdx.choosing import chosen
from krowlspider.cdx.forms import media_type, texts
from krowlspider.cdx.paging import blocks_of, count_of, page_of
from krowlspider.cdx.query import CdxQuery, Dialect, query_of
from krowlspider.cdx.xml_form import MEDIA_TYPE, XmlQuery, xml_query_of, xml_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from krowlspider.cdx.archives import Archives, IndexPart, IndexView
    from krowlspider.cdx.capture import CaptureLine
    from krowlspider.cdx.pace import ClientWork
    from krowlspider.cdx.ranges import Range

# Characters of an answer that are made at a time.
_PIECE = 32 * 1024
# Bytes of a record in which its Location is looked for.
_HEAD_MAX = 64 * 1024
_BROKEN = "a line of an index is broken{}: scrapy warc index makes it again"


class CdxResponse(NamedTuple):
    """What is answered: its media type, its key, whether it is never compressed, and pieces of it.

    The pieces raise ArchiveError, OSError and ClientGone.
    """

    media_type: str
    key: str
    is_plain: bool
    pieces: Iterator[bytes]


def read(given: Mapping[str, str], filters: list[str], dialect: Dialect) -> CdxQuery | XmlQuery:
    """Return the query of the parameters of a URL. Raises QueryError."""
    return xml_query_of(given) if "q" in given else query_of(given, filters, dialect)


def answer(archives: Archives, query: CdxQuery | XmlQuery, work: ClientWork) -> CdxResponse:
    """Return the answer to a query, made as the work for one client.

    :raises QueryError: it asks for a page that there is not
    :raises OSError: an index cannot be read
    :raises ClientGone: the client has gone
    """
    view = archives.look(work)
    if isinstance(query, XmlQuery):
        found = xml_texts(view.lines(query.ranges), query, strftime("%Y%m%d%H%M%S", gmtime()))
        return CdxResponse(
            MEDIA_TYPE, query.key, is_plain=False, pieces=_pieces(found, view, query)
        )
    ranges: Sequence[Range] = query.ranges
    if query.paging.is_used:
        blocks: Sequence[IndexPart] = blocks_of(view, ranges)
        if query.paging.is_count:
            return _count(blocks, query)
        if query.paging.page is not None:
            blocks, ranges = page_of(blocks, query.paging, ranges)
        if query.paging.is_list:
            return _made(query, view, (_listed(query, *each) for each in enumerate(blocks, 1)))
    judge = partial(_is_self_redirect, archives.folders)
    return _made(query, view, texts(chosen(view.lines(ranges), query, judge), query.form))


def _made(query: CdxQuery, view: IndexView, found: Iterable[str]) -> CdxResponse:
    pieces = _pieces(found, view, query)
    return CdxResponse(media_type(query.form), query.key, query.form.is_plain, pieces)


def _count(blocks: Sequence[IndexPart], query: CdxQuery) -> CdxResponse:
    counted = count_of(blocks, query.paging)
    if query.dialect is Dialect.OUTBACK:
        # As the CDX server of OpenWayback.
        text, kind = f"{counted['pages']}\n", "text/plain"
    else:
        text, kind = json.dumps(counted) + "\n", "application/json"
    return CdxResponse(kind, query.key, query.form.is_plain, iter([text.encode()]))


def _listed(query: CdxQuery, number: int, block: IndexPart) -> str:
    """Return the line of a block as in the secondary index of ZipNum."""
    key, time = block.line.decode().split(" ", 2)[:2]
    values = {
        "urlkey": f"{key} {time}",
        "part": block.file,
        "offset": block.offset,
        "length": block.length,
        "lineno": number,
    }
    if query.form.name == "json":
        return json.dumps(values) + "\n"
    return "\t".join(map(str, values.values())) + "\n"


def _pieces(found: Iterable[str], view: IndexView, query: CdxQuery | XmlQuery) -> Iterator[bytes]:
    """Yield texts in pieces of about _PIECE characters."""
    piece: list[str] = []
    size = 0
    try:
        for text in found:
            piece.append(text)
            size += len(text)
            if size >= _PIECE:
                yield "".join(piece).encode(errors="replace")
                piece, size = [], 0
    except ValueError as error:
        place = view.broken_line(query.ranges)
        raise ArchiveError(_BROKEN.format(f" ({place})" if place else "")) from error
    yield "".join(piece).encode(errors="replace")


def _is_self_redirect(folders: Sequence[Path], capture: CaptureLine) -> bool:
    """Return whether a capture is a redirect to its own key, which leads a wayback back to itself.

    Index lines do not have the target, so the record is read. One that cannot be read is none.
    Raises OSError.
    """
    status = capture.text("status")
    if not (len(status) == 3 and status.startswith("3")) or status == "304":
        return False
    target = capture.text("redirect").removeprefix("-") or _location(folders, capture)
    with suppress(ValueError):
        return bool(target) and key_of(urljoin(capture.text("url"), target)) == capture.text(
            "urlkey"
        )
    return False


def _location(folders: Sequence[Path], capture: CaptureLine) -> str:
    # Only the name of the file: an index must not lead out of the folder.
    name, offset = Path(capture.text("filename")).name, capture.text("offset")
    if not name or not offset.isdecimal():
        return ""
    for folder in folders:
        for path in (folder / name, folder / name.removesuffix(OPEN)):
            with suppress(FileNotFoundError, RecordError):
                return header(read_record(path, int(offset), _HEAD_MAX)[1], "Location")
    return ""

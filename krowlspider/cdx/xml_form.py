"""The XML by which OpenWayback and pywb ask a remote index: a query ``q=type:urlquery url:...``.

Pure, but for the date of today, which is given. The elements are those of OutbackCDX.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus
from xml.sax.saxutils import escape

from krowlspider.cdx.capture import MISSING, CaptureLine
from krowlspider.cdx.choosing import seconds_of
from krowlspider.cdx.errors import QueryError
from krowlspider.cdx.query import latest_moment
from krowlspider.cdx.ranges import Range, ranges_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MEDIA_TYPE = "application/xml; charset=utf-8"
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<wayback>'
# Results by default, and those that are counted at most.
_LIMIT = 10_000
_COUNTED_MAX = 10_000
_NUMBER = re.compile("[0-9]{1,9}")
_DATE = re.compile("[0-9]{4,14}")
# Bytes that XML 1.0 cannot have.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FIRST_DATE = "19960101000000"
# The elements of a result, and the field of each.
_ELEMENTS = {
    "compressedoffset": "offset",
    "compressedendoffset": "length",
    "mimetype": "mime",
    "file": "filename",
    "redirecturl": "redirect",
    "urlkey": "urlkey",
    "digest": "digest",
    "httpresponsecode": "status",
    "robotflags": "robotflags",
    "url": "url",
    "capturedate": "timestamp",
}


@dataclass(frozen=True, slots=True)
class XmlQuery:
    """``kind`` is ``urlquery`` or ``prefixquery``, or another one, which is answered by an error.
    ``date`` is empty or has 14 digits."""

    kind: str
    key: str
    ranges: tuple[Range, ...]
    date: str
    offset: int
    limit: int


def xml_query_of(given: Mapping[str, str]) -> XmlQuery:
    """Return the query of ``q``, ``count`` and ``start_page``. Raises QueryError."""
    asked: dict[str, str] = {}
    for part in given["q"].split():
        name, colon, value = part.partition(":")
        if not colon:
            raise QueryError(f"q={part[:40]}: give NAME:VALUE, as in type:urlquery")
        asked[unquote_plus(name)] = unquote_plus(value)
    if "url" not in asked:
        raise QueryError("q= has no url:")
    kind = asked.get("type", "urlquery").lower()
    ranges = ranges_of(asked["url"], "prefix" if kind == "prefixquery" else "exact")
    date = asked.get("date", "")
    if date and not _DATE.fullmatch(date):
        raise QueryError(f"q=date:{date[:20]}: give up to 14 digits")
    limit = _number(given.get("count") or asked.get("limit") or str(_LIMIT), "count")
    page = given.get("start_page")
    offset = _number(asked.get("offset") or "0", "offset")
    if page is not None:
        offset = limit * max(_number(page, "start_page") - 1, 0)
    key = ranges[0].begin.decode().rstrip(" ")
    return XmlQuery(kind, key, ranges, latest_moment(date), offset, limit)


def xml_texts(lines: Iterable[bytes], query: XmlQuery, today: str) -> Iterator[str]:
    """Yield the texts of the answer. Raises ValueError for a broken line."""
    found = (CaptureLine(line.rstrip()) for line in lines)
    if query.kind == "urlquery":
        results, kind = _captures(found, query), "resultstypecapture"
    elif query.kind == "prefixquery":
        results, kind = _urls(found), "resultstypeurl"
    else:
        about = "The requested query type is unknown to the index."
        yield f"{_HEAD}{_error('Unsupported query type', about)}</wayback>\n"
        return
    yield _HEAD
    returned = counted = 0
    for number, result in enumerate(results):
        if number >= query.offset + query.limit and number >= _COUNTED_MAX:
            break
        counted += 1
        if query.offset <= number < query.offset + query.limit:
            yield "<results>" if not returned else ""
            yield f"<result>{result}</result>\n"
            returned += 1
    if not returned:
        about = "The Resource you requested is not in this archive."
        yield f"{_error('Resource Not In Archive', about)}</wayback>\n"
        return
    request = {
        "startdate": _FIRST_DATE,
        "enddate": today,
        "type": query.kind,
        "firstreturned": query.offset,
        "url": query.key,
        "resultsrequested": query.limit,
        "resultstype": kind,
        "numreturned": returned,
        "numresults": counted,
    }
    yield f"</results><request>{_elements(request)}</request></wayback>\n"


def _captures(found: Iterable[CaptureLine], query: XmlQuery) -> Iterator[str]:
    """Yield the elements of each capture. The one closest to the date of the query says so."""
    moment = seconds_of(query.date) if query.date else None
    before: CaptureLine | None = None
    for each in found:
        if before is not None:
            is_closest = moment is not None and _distance(before, moment) < _distance(each, moment)
            yield _capture(before, is_closest=is_closest)
            moment = None if is_closest else moment
        before = each
    if before is not None:
        yield _capture(before, is_closest=moment is not None)


def _distance(capture: CaptureLine, moment: float) -> float:
    return abs(seconds_of(capture.timestamp) - moment)


def _capture(capture: CaptureLine, *, is_closest: bool) -> str:
    values = {name: capture.text(field) or MISSING for name, field in _ELEMENTS.items()}
    return _elements(values | ({"closest": "true"} if is_closest else {}))


def _urls(found: Iterable[CaptureLine]) -> Iterator[str]:
    """Yield the elements of each URL: how many captures and versions it has."""
    first = last = None
    captures = versions = 0
    for each in found:
        if first is not None and last is not None and each.key != first.key:
            yield _url(first, last, captures, versions)
            first = last = None
            captures = versions = 0
        versions += last is None or last.text("digest") != each.text("digest")
        first, last, captures = first or each, each, captures + 1
    if first is not None and last is not None:
        yield _url(first, last, captures, versions)


def _url(first: CaptureLine, last: CaptureLine, captures: int, versions: int) -> str:
    return _elements(
        {
            "urlkey": last.text("urlkey"),
            "originalurl": last.text("url"),
            "numversions": versions,
            "numcaptures": captures,
            "firstcapturets": first.timestamp,
            "lastcapturets": last.timestamp,
        }
    )


def _elements(values: Mapping[str, object]) -> str:
    texts = ((name, escape(_NOT_XML.sub("�", str(value)))) for name, value in values.items())
    return "".join(f"<{name}>{text}</{name}>" for name, text in texts)


def _error(title: str, message: str) -> str:
    return f"<error>{_elements({'title': title, 'message': message})}</error>"


def _number(text: str, name: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise QueryError(f"{name}={text[:20]}: give a number")
    return int(text)

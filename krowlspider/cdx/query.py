"""A query, as it is read from the parameters of a URL. Pure.

The two dialects have the same parameters, but not the same filters and forms: see `Dialect`.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from krowlspider.archive.surt import RequestQuery
from krowlspider.cdx.capture import CDX_9, CDX_11, ORIGINAL, own_name
from krowlspider.cdx.errors import QueryError
from krowlspider.cdx.filters import FILTERS_MAX, Filter, collapse_of, outback_filter, pywb_filter
from krowlspider.cdx.ranges import Range, expanded, ranges_of, ranges_of_key

if TYPE_CHECKING:
    from collections.abc import Mapping

# Most captures that are put into another order than that of the index: they are in memory.
SORTED_MAX = 10_000
# Blocks of a page by default, and most of them; a block is about `krowlspider.cdx.paging.BLOCK`
# bytes of an index.
PAGE_SIZE = 5
PAGE_SIZE_MAX = 100
_FIELDS_MAX = 50
_SORTS = ("default", "reverse", "closest")
_NUMBER = re.compile("[0-9]{1,15}")
_DATE = re.compile("[0-9]{1,20}")
_FIELD = re.compile(r"[\w.-]{1,100}")


class Dialect(Enum):
    """Whose parameters are read where the two differ: their filters, and the forms of answers."""

    PYWB = "pywb"
    OUTBACK = "OutbackCDX"


# The forms of each dialect, the default first: what is asked for, and the form.
_FORMS = {
    Dialect.PYWB: {
        "cdxj": "cdxj",
        "json": "json",
        "text": "cdx",
        "cdx": "cdx",
        "cdx9": "cdx",
        "jsondict": "jsondict",
        "jsonarray": "jsonarray",
    },
    Dialect.OUTBACK: {
        "cdx": "cdx",
        "text": "cdx",
        "cdx9": "cdx",
        "json": "jsonarray",
        "jsondict": "jsondict",
        "cdxj": "cdxj",
        "jsonarray": "jsonarray",
    },
}


@dataclass(frozen=True, slots=True)
class CdxChoice:
    """Which captures of the ranges are chosen. The dates have 14 digits; empty without a limit.

    ``collapse`` is a field, and how many of its characters count, None for all: of captures in a
    row that equal in it, the first is chosen, or the last one. ``collapse_time`` is for the
    timestamp and the status together.
    """

    begin: str = ""
    end: str = ""
    filters: tuple[Filter, ...] = ()
    collapse: tuple[str, int | None] | None = None
    collapse_to_last: bool = False
    collapse_time: int = 0
    resolve_revisits: bool = False
    omit_self_redirects: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """``sort`` is one of ``default``, ``reverse`` and ``closest``; that is to the date ``closest``,
    of 14 digits. ``limit`` is the most captures; None without one."""

    sort: str = "default"
    closest: str = ""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Paging:
    """Which page of ``size`` blocks is asked for, None for all; or the number of pages, or the
    list of blocks."""

    page: int | None = None
    size: int = PAGE_SIZE
    is_count: bool = False
    is_list: bool = False

    @property
    def is_used(self) -> bool:
        return self.page is not None or self.is_count or self.is_list


@dataclass(frozen=True, slots=True)
class Form:
    """The form of an answer. Without ``fields``, it has all of a capture; ``names`` are what the
    answer calls them. ``is_plain`` answers are never compressed."""

    name: str = "cdxj"
    fields: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()
    is_plain: bool = False


@dataclass(frozen=True, slots=True)
class CdxQuery:
    """A whole query. ``key`` is the one at which its ranges begin."""

    dialect: Dialect
    key: str
    ranges: tuple[Range, ...]
    choice: CdxChoice
    order: Order
    paging: Paging
    form: Form


def query_of(
    given: Mapping[str, str], filters: list[str], dialect: Dialect = Dialect.PYWB
) -> CdxQuery:
    """Return the query of the parameters ``given``, and all values of ``filter``.

    :raises QueryError: a parameter is wrong, or one is missing
    """
    ranges = _ranges(given)
    choice, form = _choice(given, filters, dialect), _form(given, dialect)
    key = ranges[0].begin.decode().rstrip(" ")
    return CdxQuery(dialect, key, ranges, choice, _order(given), _paging(given), form)


def _ranges(given: Mapping[str, str]) -> tuple[Range, ...]:
    url, key, match = given.get("url"), given.get("urlkey"), given.get("matchType", "")
    match = "" if match == "default" else match
    if (url is None) == (key is None):
        raise QueryError("give one of url= and urlkey=")
    if key is not None:
        if not (key.isascii() and key.isprintable()):
            raise QueryError("urlkey= is not a key of an index: give url=")
        return ranges_of_key(key.replace(" ", "%20"), match or "exact")
    assert url is not None
    url, match = expanded(url.strip(), match)
    method = given.get("method", "GET").upper()
    if method not in {"", "GET", "HEAD"}:
        url = RequestQuery(method, given.get("requestBody", "")).added_to(url)
    return ranges_of(url, match)


def _choice(given: Mapping[str, str], filters: list[str], dialect: Dialect) -> CdxChoice:
    if len(filters) > FILTERS_MAX:
        raise QueryError(f"give at most {FILTERS_MAX} filters")
    make = pywb_filter if dialect is Dialect.PYWB else outback_filter
    first = given.get("collapseToFirst") or given.get("collapse")
    last = given.get("collapseToLast")
    collapse = first or last
    return CdxChoice(
        begin=_date(given.get("from") or given.get("from_ts", ""), "from", "00000101000000"),
        end=_date(given.get("to", ""), "to", "99999999999999"),
        filters=tuple(map(make, filters)),
        collapse=collapse_of(collapse) if collapse else None,
        collapse_to_last=not first and bool(last),
        collapse_time=_number(given, "collapseTime", 0, least=0, most=14),
        resolve_revisits=_flag(given, "resolveRevisits"),
        omit_self_redirects=_flag(given, "omitSelfRedirects"),
    )


def _order(given: Mapping[str, str]) -> Order:
    sort = given.get("sort") or "default"
    if sort not in _SORTS:
        raise QueryError(f"sort={sort[:20]}: give one of {', '.join(_SORTS)}")
    # pywb asks with an empty date for the newest capture.
    closest = latest_moment(_date(given.get("closest", ""), "closest", ""))
    if closest:
        sort = "closest"
    elif sort == "closest":
        sort = "default"
    if sort == "default" and _flag(given, "reverse"):
        sort = "reverse"
    limit = _number(given, "limit", 0, least=1) or None
    if sort != "default" and (limit or 0) > SORTED_MAX:
        raise QueryError(f"limit={limit}: with sort={sort}, give at most {SORTED_MAX:,}")
    return Order(sort, closest, limit)


def _paging(given: Mapping[str, str]) -> Paging:
    return Paging(
        page=_number(given, "page", 0) if given.get("page") else None,
        size=_number(given, "pageSize", PAGE_SIZE, least=1, most=PAGE_SIZE_MAX),
        is_count=_flag(given, "showNumPages"),
        is_list=_flag(given, "showPagedIndex"),
    )


def _form(given: Mapping[str, str], dialect: Dialect) -> Form:
    forms = _FORMS[dialect]
    output = given.get("output") or next(iter(forms))
    if output not in forms:
        # The words are pywb's.
        raise QueryError(f"output={output[:20]} not supported")
    asked = given.get("fields") or given.get("fl") or ""
    names = tuple(asked.split(",")) if asked else ()
    fields = tuple(map(own_name, names)) or None
    if not all(map(_FIELD.fullmatch, names)):
        raise QueryError(f"fields={asked[:80]}: give names, with commas between them")
    if len(fields or ()) > _FIELDS_MAX:
        raise QueryError(f"fields=: give at most {_FIELDS_MAX}")
    # Lines of columns have the same ones throughout.
    if fields is None and forms[output] != "cdxj" and forms[output] != "json":
        original = ORIGINAL if _flag(given, "resolveRevisits") else ()
        fields = (*(CDX_9 if output == "cdx9" else CDX_11), *original)
        names = tuple("redirecturl" if name == "redirect" else name for name in fields)
    is_plain = "gzip" in given and not _flag(given, "gzip")
    return Form(forms[output], fields, names, is_plain)


def _date(text: str, name: str, padding: str) -> str:
    """Return 14 digits; empty for no date."""
    if not text:
        return ""
    if not _DATE.fullmatch(text):
        raise QueryError(f"{name}={text[:20]}: give up to 14 digits, as in 20260131120000")
    return text[:14] + padding[len(text[:14]) :]


def latest_moment(date: str) -> str:
    """Return the last 14 digits of a part of a date, as pywb; empty for no date."""
    if len(date) == len("202602") and "01" <= date[4:] <= "12" and date >= "0001":
        date += str(monthrange(int(date[:4]), int(date[4:]))[1])
    return date and date + "99991231235959"[len(date) :]


def _number(
    given: Mapping[str, str], name: str, usual: int, *, least: int = 0, most: int = 10**15
) -> int:
    text = given.get(name, "")
    if not text:
        return usual
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        upper = f" to {most:,}" if most < 10**15 else " or more"
        raise QueryError(f"{name}={text[:20]}: give {least}{upper}")
    return int(text)


def _flag(given: Mapping[str, str], name: str) -> bool:
    # As pywb reads them.
    return given.get(name, "").lower() not in {"", "0", "false", "f", "off"}

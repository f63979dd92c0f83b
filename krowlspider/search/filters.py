"""Filters of a query: what else a page must have, such as its host or size."""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

# Greatest size of a filter: tantivy's numbers have 64 bits.
_SIZE_MAX = 2**63 - 1
# Its dates are nanoseconds since 1970 in as many bits; no page is of a time outside of these years.
_FIRST, _LAST = datetime(1700, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)

_SIZE = re.compile(r"(?P<number>[0-9]{1,15}(?:\.[0-9]{0,6})?|\.[0-9]{1,6})(?P<unit>[a-z]{0,5})")
_UNITS = {
    **dict.fromkeys(("", "b", "byte"), 1),
    **{unit: 1000**power for power, unit in enumerate("kmgt", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("kmgt", 1)},
}
_DATE = re.compile(r"([0-9]{4})(?:-?([0-9]{2})(?:-?([0-9]{2}))?)?")
_HOST = re.compile(r"[\w.-]{1,253}(?::[0-9]{1,5})?|\[[0-9a-f:.]{2,45}\](?::[0-9]{1,5})?")
_LANG = re.compile(r"[a-z]{2,3}")
_TYPE = re.compile(r"[\w.+-]{1,64}(?:/[\w.+*-]{0,64})?")
_SCHEMES = ("http", "https", "gemini")


@dataclass(frozen=True, slots=True)
class Span:
    """A range of sizes, or of times: ``low`` is in it, ``high`` is not. None is no limit."""

    low: int | datetime | None = None
    high: int | datetime | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """What a page must have, or must not have if ``is_negative``: a value of ``name``, which is
    site, host, type, lang, scheme, size or date."""

    name: str
    value: str | Span
    is_negative: bool = False


def read_filter(name: str, given: str) -> Filter:
    """Return the filter of a value.

    :raises ValueError: it is none; the message names it, and what to give
    """
    value = given.strip().lower()
    shown = f"{name}:{given[:40]}"
    if name in ("site", "host"):
        # A part of the URL is often given with it.
        value = value.partition("://")[2] or value
        value = value.partition("/")[0].removeprefix("*.").rstrip(".")
        if not value.isascii():
            value = _ascii(value)
        if not _HOST.fullmatch(value):
            raise ValueError(f"{shown} is no host: give the name of one, such as example.org")
    elif name == "lang":
        value = re.split("[-_]", value)[0]
        if not _LANG.fullmatch(value):
            raise ValueError(f"{shown} is no language: give the code of one, such as en")
    elif name == "scheme":
        if value not in _SCHEMES:
            raise ValueError(f"{shown} is no scheme: give one of {', '.join(_SCHEMES)}")
    elif name == "type":
        value = value.rstrip("*")
        if not _TYPE.fullmatch(value):
            raise ValueError(f"{shown} is no media type: give one, such as text/html, or html")
    elif name == "size":
        return Filter(name, _sizes(value, shown))
    else:
        given_since = {"since": f">={value}", "until": f"<={value}"}
        return Filter("date", _dates(given_since.get(name, value), shown))
    return Filter(name, value)


def _ascii(name: str) -> str:
    """Return an international name as it stands in URLs; "" if it is none."""
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return ""


def _sizes(value: str, shown: str) -> Span:
    low, high = _ends(value)
    sizes = [None if end is None else _size(end, shown) for end in (low[1], high[1])]
    if sizes == [None, None]:
        raise ValueError(f"{shown} is no size: give size:>10k, size:<2MiB or size:1k..5k")
    # Whole bytes: "more than" begins at the next one.
    least, most = sizes
    if least is not None and low[0] == ">":
        least += 1
    if most is not None and high[0] != "<":
        most += 1
    return Span(least, most)


def _size(text: str, shown: str) -> int:
    found = _SIZE.fullmatch(text)
    unit = (found["unit"] if found else "").removesuffix("s")
    if len(unit) > 1 and unit.endswith("b"):
        unit = unit[:-1]
    if found is None or unit not in _UNITS:
        raise ValueError(f"{shown} is no size: give size:>10k, size:<2MiB or size:1k..5k")
    return min(int(float(found["number"]) * _UNITS[unit]), _SIZE_MAX - 1)


def _dates(value: str, shown: str) -> Span:
    wrong = f"{shown} is no date: give a year, month or day, such as 2026, 2026-11 or 2026-11-05"
    low, high = _ends(value)
    if low[1] is None and high[1] is None:
        raise ValueError(wrong)
    try:
        begin = None if low[1] is None else _days(low[1])[low[0] == ">"]
        end = None if high[1] is None else _days(high[1])[high[0] != "<"]
    except (ValueError, OverflowError):
        raise ValueError(wrong) from None
    return Span(_kept(begin), _kept(end))


def _kept(end: datetime | None) -> datetime | None:
    """Return the end of a range as tantivy can have it, which is the same for all pages."""
    return None if end is None else min(max(end, _FIRST), _LAST)


def _days(text: str) -> tuple[datetime, datetime]:
    """Return the first moment of a year, month or day, and the first one after it."""
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError
    year, month, day = (int(each) if each else 0 for each in found.groups())
    begin = datetime(year, month or 1, day or 1, tzinfo=UTC)
    if day:
        return begin, begin + timedelta(days=1)
    last = monthrange(year, month or 12)[1]
    return begin, datetime(year, month or 12, last, tzinfo=UTC) + timedelta(days=1)


_End = tuple[str, str | None]


def _ends(value: str) -> tuple[_End, _End]:
    """Return the two ends of a range, each with its sign."""
    if ".." in value:
        low, _, high = value.partition("..")
        return (">=", low or None), ("<=", high or None)
    for sign in (">=", "<=", ">", "<"):
        if value.startswith(sign):
            end = value.removeprefix(sign)
            return ((sign, end), ("", None)) if sign[0] == ">" else (("", None), (sign, end))
    return (">=", value or None), ("<=", value or None)

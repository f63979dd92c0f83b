"""Read Retry-After: RFC 9110, section 10.2.3, and what servers send in its place.

No value that names a time yields a shorter wait than it says; `RETRY_AFTER_MAX` bounds it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# A number, as the RFC has it or with a fraction or an exponent, and a unit: without one, seconds.
_NUMBER = r"([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:e[+-]?[0-9]++)?)[ \t]*+"
_UNIT = (
    r"(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)\.?"
)
_DURATION = re.compile(rf"{_NUMBER}(?:{_UNIT})?", re.IGNORECASE)
# "1 hour, 30 minutes" and "1h30m": parts of one duration.
_PARTS = re.compile(rf"(?:{_NUMBER}{_UNIT}(?:,|[ \t]|and\b)*+)+", re.IGNORECASE)
_PART = re.compile(_NUMBER + _UNIT, re.IGNORECASE)
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_BLANK = " \t\"'"
# RFC 9110, section 5.6.7, in all three forms; ISO 8601.
_DATES: tuple[Callable[[str], datetime], ...] = (parsedate_to_datetime, datetime.fromisoformat)


def longest_retry_after(values: Iterable[bytes], now: float) -> float | None:
    """Return the seconds that the headers of an answer ask for, the longest of several.

    Return None if there is no valid value. ``now`` is in epoch seconds.
    """
    asked = (parse_retry_after(value.decode("latin-1"), now) for value in values)
    return max((wait for wait in asked if wait is not None), default=None)


def parse_retry_after(value: str, now: float) -> float | None:
    """Return the seconds that one header asks for, 0.0 for a date that has passed.

    Return None if the value is invalid. It may be infinity: the caller caps it.
    """
    value = value.strip(_BLANK)
    if _PARTS.fullmatch(value):
        return sum(_seconds(*part) for part in _PART.findall(value))
    # Longer than the same digits as several values.
    value = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), value)
    durations = [_duration(part.strip(_BLANK)) for part in value.split(",")]
    known = [duration for duration in durations if duration is not None]
    if len(known) == len(durations):
        # One value, or several that a proxy has joined.
        return max(known)
    for read in _DATES:
        try:
            date = read(value)
        except (ValueError, OverflowError):
            continue
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max(0.0, date.timestamp() - now)
    return None


def _duration(text: str) -> float | None:
    found = _DURATION.fullmatch(text)
    return None if found is None else _seconds(found[1], found[2] or "s")


def _seconds(number: str, unit: str) -> float:
    unit = unit.lower()
    factor = 0.001 if unit.startswith(("ms", "mil")) else _SECONDS[unit[0]]
    # A number with more digits than a float holds is infinity.
    return max(0.0, float(number) * factor)

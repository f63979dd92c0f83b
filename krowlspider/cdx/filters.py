"""Filters of captures, as pywb and OutbackCDX write them. Pure.

An expression that could take long on a long URL is refused: while one is searched, no other thread
of the process runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from krowlspider.cdx.capture import KNOWN, CaptureLine, own_name
from krowlspider.cdx.errors import QueryError
from krowlspider.internals.patterns import steps_of

Filter = Callable[[CaptureLine], bool]

# Most filters of a query, and most characters of one.
FILTERS_MAX = 20
FILTER_LENGTH = 500
# Most steps of matching an expression with 2,048 characters: two times ".*" are below it.
STEPS_MAX = 2.0**24
# Characters of a value that an expression is matched with.
_MATCHED = 2048
_OUTBACK = re.compile(r"(~)?(!)?(\w+):(.*)", re.DOTALL)
# What must stand at the beginning of an expression.
_FLAGS = re.compile(r"\(\?[aiLmsux]+\)")
_COLLAPSE = re.compile(r"([\w.]+)(?::([0-9]{1,4}))?")


def pywb_filter(given: str) -> Filter:
    """Return a filter of pywb: ``[!][=|~][FIELD:]TEXT``.

    ``=`` compares a whole value, ``~`` matches an expression at its beginning; else a value
    contains the text. Without a field, the whole line is looked at. Raises QueryError.
    """
    _check_length(given)
    inverted = given.startswith("!")
    text = given[1:] if inverted else given
    kind = text[:1] if text[:1] in {"=", "~"} else ""
    field, colon, wanted = text[len(kind) :].partition(":")
    if not colon:
        field, wanted = "", field
    return partial(_passes, _compare(kind, wanted, given), own_name(field), inverted)


def outback_filter(given: str) -> Filter:
    """Return a filter of OutbackCDX: ``[~][!]FIELD:TEXT``.

    ``~`` says that a value contains the text; else an expression matches the whole value. Raises
    QueryError.
    """
    _check_length(given)
    found = _OUTBACK.fullmatch(given)
    if found is None:
        raise QueryError(f"filter={given[:80]}: give a field, as in filter=status:200")
    substring, inverted, name, wanted = found.groups()
    field = own_name(name)
    if field not in KNOWN:
        raise QueryError(f"filter={given[:80]}: there is no field {name[:40]}")
    compare = _compare("", wanted, given) if substring else _compare("whole", wanted, given)
    return partial(_passes, compare, field, bool(inverted))


def collapse_of(given: str) -> tuple[str, int | None]:
    """Return the field of ``FIELD[:LENGTH]``, and how many of its characters count.

    :raises QueryError: it is not of this form
    """
    found = _COLLAPSE.fullmatch(given)
    if found is None:
        raise QueryError(f"collapse={given[:80]}: give a field, as in collapse=timestamp:8")
    return own_name(found[1]), None if found[2] is None else int(found[2])


def _passes(
    compare: Callable[[str], bool], field: str, inverted: bool, capture: CaptureLine
) -> bool:
    value = capture.text(field) if field else capture.line.decode()
    return compare(value) != inverted


def _compare(kind: str, wanted: str, given: str) -> Callable[[str], bool]:
    if kind == "=":
        return lambda value: value == wanted
    if not kind:
        return lambda value: wanted in value
    pattern = _pattern(wanted, given)
    match = pattern.fullmatch if kind == "whole" else pattern.match
    return lambda value: match(value[:_MATCHED]) is not None


def _pattern(text: str, given: str) -> re.Pattern[str]:
    """Return an expression that no value can be matched with for long. Raises QueryError."""
    try:
        pattern = re.compile(text)
        flags = _FLAGS.match(text)
        rest = text[len(flags[0]) :] if flags else text
        # Matched from the beginning alone: as if it began with an anchor.
        steps = steps_of(f"{flags[0] if flags else ''}\\A(?:{rest})\\Z")
    except (re.error, RecursionError, OverflowError) as error:
        raise QueryError(f"filter={given[:80]}: not a regular expression: {error}") from error
    if steps > STEPS_MAX:
        raise QueryError(
            f"filter={given[:80]}: the expression could take long on a long URL: use fewer repeats,"
            " or possessive ones such as [^/]*+"
        )
    return pattern


def _check_length(given: str) -> None:
    if len(given) > FILTER_LENGTH:
        raise QueryError(f"filter={given[:40]}...: it has over {FILTER_LENGTH} characters")

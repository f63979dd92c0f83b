"""Choose captures: by date and filters, with the bodies of revisits, in an order. Pure.

The order of the steps is pywb's, with OutbackCDX's ``collapse`` at the end.
"""

from __future__ import annotations

import heapq
from collections import deque
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.cdx.capture import CaptureLine
from krowlspider.cdx.query import SORTED_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.cdx.query import CdxChoice, CdxQuery, Order

# Digests whose first capture is remembered, so that revisits can name it.
_ORIGINALS_MAX = 10_000
# Farther from any date than that is from another.
_FAR = 1e15


def chosen(
    lines: Iterable[bytes], query: CdxQuery, is_self_redirect: Callable[[CaptureLine], bool]
) -> Iterator[CaptureLine]:
    """Yield the captures of sorted ``lines`` that a query chooses, in its order.

    :raises ValueError: a line is broken
    """
    choice = query.choice
    found: Iterable[CaptureLine] = (CaptureLine(line.rstrip()) for line in lines)
    if choice.resolve_revisits:
        found = _resolved(found)
    if choice.filters:
        found = (each for each in found if all(passes(each) for passes in choice.filters))
    if choice.begin or choice.end:
        end = choice.end or "~"
        found = (each for each in found if choice.begin <= each.timestamp <= end)
    if choice.omit_self_redirects:
        found = (each for each in found if not is_self_redirect(each))
    if digits := choice.collapse_time:
        found = _first(found, lambda each: (each.timestamp[:digits], each.text("status")))
    # As in OutbackCDX, rows of the answer are collapsed, in their order.
    limit = query.order.limit
    found = _ordered(found, query.order, limit if choice.collapse is None else None)
    return islice(_collapsed(found, choice), limit)


def _resolved(found: Iterable[CaptureLine]) -> Iterator[CaptureLine]:
    """Yield the captures; a revisit names the first capture before it with its digest."""
    originals: dict[str, CaptureLine] = {}
    for each in found:
        digest, original = each.text("digest"), None
        if digest:
            original = originals.get(digest)
            if original is None and not each.is_revisit:
                if len(originals) >= _ORIGINALS_MAX:
                    originals.pop(next(iter(originals)))
                originals[digest] = each
        each.resolve(original if each.is_revisit else None)
        yield each


def _collapsed(found: Iterable[CaptureLine], choice: CdxChoice) -> Iterable[CaptureLine]:
    if choice.collapse is None:
        return found
    field, length = choice.collapse
    collapse = _last if choice.collapse_to_last else _first
    return collapse(found, lambda each: each.text(field)[:length])


def _first(
    found: Iterable[CaptureLine], key: Callable[[CaptureLine], object]
) -> Iterator[CaptureLine]:
    last = None
    for each in found:
        if (now := key(each)) != last:
            yield each
        last = now


def _last(
    found: Iterable[CaptureLine], key: Callable[[CaptureLine], object]
) -> Iterator[CaptureLine]:
    before: CaptureLine | None = None
    for each in found:
        if before is not None and key(before) != key(each):
            yield before
        before = each
    if before is not None:
        yield before


def _ordered(
    found: Iterable[CaptureLine], order: Order, limit: int | None
) -> Iterable[CaptureLine]:
    """Return captures in an order, the first ``limit`` of them if it is not that of the index."""
    if order.sort == "default":
        return found
    most = min(limit or SORTED_MAX, SORTED_MAX)
    if order.sort == "reverse":
        return reversed(deque(found, most))
    moment = seconds_of(order.closest)
    return heapq.nsmallest(most, found, lambda each: abs(seconds_of(each.timestamp) - moment))


def seconds_of(timestamp: str) -> float:
    """Return the seconds since the epoch of 14 digits; those of no date are very far."""
    try:
        month, day, hour, minute, second = (int(timestamp[at : at + 2]) for at in range(4, 14, 2))
        year = int(timestamp[:4])
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return _FAR

"""Decide when a page that is missing or moved is asked again, and when it is dropped.

Two answers in a row count, one does not: sites are broken for an hour. 404 and 410 (RFC 9110,
sections 15.5.5 and 15.5.11) count alike, since servers send the one for the other. So do 51 and 52
of Gemini, whose statuses have two digits.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Self

_DAY = 86_400.0
# Answers in a row after which a page is a tombstone, or its redirect is believed.
CONFIRMED = 2
# Seconds until a page is asked again after the first such answer. Each later one doubles them.
AGAIN = _DAY
AGAIN_MAX = 30 * _DAY
# A tombstone is dropped after these seconds, and as many answers: a clock that jumps ahead drops
# nothing by itself.
DROPPED_AFTER = 30 * _DAY
_DROPPED_ANSWERS = 4
# Bytes of the digest of a text, and of that of a URL beside it.
TEXT_SIZE, PAGE_SIZE = 8, 4
# Pages of a host that must change into one text before it counts as its page for errors.
_SOFT_FROM = 3
# Texts of a host that are kept: enough for two pages to meet where one change in ten is of a page
# that is missing.
_TEXTS_MAX = 12
_MISSING, _MOVED = frozenset({404, 410, 51, 52}), frozenset({301, 308, 31})
# Answers of a page that is there: those of HTTP, and those of Gemini.
_PRESENT = frozenset({*range(200, 300), 304, *range(20, 30)})
_GEMINI_REDIRECTS = range(30, 40)
_FIRST_HTTP = 100


class PageState(IntEnum):
    """How a page is. The value is stored."""

    PRESENT = 0
    MISSING = 1
    MOVED = 2


def may_pass(status: int) -> bool:
    """Return whether a status is an error that may pass: it says nothing of the page."""
    if status < _FIRST_HTTP:
        return not (status in _PRESENT or status in _GEMINI_REDIRECTS or status in _MISSING)
    return status >= 400 and status not in _MISSING


def is_missing(status: int) -> bool:
    """Return whether a status says that a page is missing."""
    return status in _MISSING


class Absence(NamedTuple):
    """Answers in a row that say that a page is missing or moved, and the time of the first."""

    state: PageState = PageState.PRESENT
    answers: int = 0
    since: float = 0.0

    @property
    def is_tombstone(self) -> bool:
        """Return whether the page is gone: it is no page of the crawl any more."""
        return self.state is PageState.MISSING and self.answers >= CONFIRMED

    @property
    def is_doubtful(self) -> bool:
        """Return whether it was missing at its last answer alone: its site may be broken."""
        return self.state is PageState.MISSING and self.answers < CONFIRMED

    def is_dropped(self, now: float) -> bool:
        """Return whether the page is forgotten by the schedule. The archive keeps it."""
        old = now - self.since >= DROPPED_AFTER
        return self.is_tombstone and old and self.answers >= _DROPPED_ANSWERS

    @property
    def wait(self) -> float | None:
        """Seconds until the page is asked again; None: as its change rate says."""
        if self.state is PageState.PRESENT:
            return None
        return min(AGAIN * 2.0 ** min(self.answers - 1, 9), AGAIN_MAX)

    def answered(self, status: int, now: float, *, soft_404: bool = False) -> Self:
        """Return the absence after an answer.

        A redirect that is not permanent, and an error that may pass, say nothing.
        """
        if status in _MISSING or soft_404:
            state = PageState.MISSING
        elif status in _MOVED:
            state = PageState.MOVED
        elif status in _PRESENT:
            return type(self)()
        else:
            return self
        if state is not self.state:
            return type(self)(state, 1, now)
        return type(self)(state, min(self.answers + 1, 255), self.since)


class _Shared(NamedTuple):
    """A text into which pages of a host have changed: ``pages`` are short digests of their URLs, at
    most three. ``before`` is the text that the last of them had."""

    text: bytes
    before: bytes
    pages: tuple[bytes, ...]


class SoftNotFound(NamedTuple):
    """Texts into which pages of a host have changed, to find 200s that mean 404.

    A text is kept as long as it is one of the last, and longer once two pages share it. Ordinary
    changes never agree, and a page whose text goes round is one page. Pages that share their text
    before and after a change have another layout, as the shells of a script do, and are not
    missing: such a page does not count.
    """

    texts: tuple[_Shared, ...] = ()

    def __bytes__(self) -> bytes:
        return b"".join(
            bytes((len(each.pages),)) + each.text + each.before + b"".join(each.pages)
            for each in self.texts
        )

    @classmethod
    def read(cls, data: bytes | None) -> Self:
        """Return what ``bytes`` made. None: no page has changed."""
        found, at = list[_Shared](), 0
        while data and at < len(data):
            count, at = data[at], at + 1
            text, before = data[at : at + TEXT_SIZE], data[at + TEXT_SIZE : at + 2 * TEXT_SIZE]
            at += 2 * TEXT_SIZE
            ends = range(at, at + count * PAGE_SIZE, PAGE_SIZE)
            found.append(_Shared(text, before, tuple(data[i : i + PAGE_SIZE] for i in ends)))
            at += count * PAGE_SIZE
        return cls(tuple(found))

    def changed_into(self, text: bytes, before: bytes, page: bytes) -> Self:
        """Return the texts after a page changed into a text from the one ``before``. ``page`` is
        the digest of its URL."""
        others = [each for each in self.texts if each.text != text]
        known = next((each for each in self.texts if each.text == text), None)
        if known is None:
            pages: tuple[bytes, ...] = (page,)
        elif before == known.before or page in known.pages:
            return self
        else:
            pages = (*known.pages, page)[-_SOFT_FROM:]
        if len(others) == _TEXTS_MAX:
            del others[next((at for at, each in enumerate(others) if len(each.pages) == 1), 0)]
        return type(self)((*others, _Shared(text, before, pages)))

    def is_error(self, text: bytes) -> bool:
        """Return whether a page with this text is missing, though its status says 200."""
        return any(len(each.pages) >= _SOFT_FROM for each in self.texts if each.text == text)

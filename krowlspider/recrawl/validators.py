"""Decide which conditional headers a request carries, and what the answer to it means.

RFC 9110, sections 8.8 (validators), 13.1.2 (If-None-Match), 13.1.3 (If-Modified-Since) and 15.4.5
(304); RFC 9111, section 4.3.4 (which response a 304 is about). Values are sent byte for byte as
they came.
"""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Iterable

# Bytes. A longer ETag is not kept: real ones have less than a hundred.
ETAG_MAX = 1024
# One in so many requests for a page is sent without conditions, to find validators that lie.
IN_FULL_EVERY = 50
# Statuses whose validators are kept: others have no page, or have it for another URL.
_KEPT_FROM = frozenset({200, 203})
# RFC 9110, section 8.8.3. The weakness flag is case-sensitive.
_ETAG = re.compile(rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
# The longest form of RFC 9110, section 5.6.7, has 33 bytes. Parsers skip what follows a date.
_DATE = re.compile(rb"[\x20-\x7e]{1,40}")
# Epoch seconds of 1990: no page of the web is older.
_OLDEST = 631_152_000.0
# Seconds by which our clock and that of a server that sends no Date may differ.
_SKEW = 86_400.0
_BLANK = b" \t"


class Validators(NamedTuple):
    """ETag and Last-Modified, byte for byte as sent. Empty: there is none."""

    etag: bytes = b""
    last_modified: bytes = b""


NO_VALIDATORS = Validators()


class LeftOut(Enum):
    """Why a validator of an answer is not kept. The value is part of a stat's name."""

    ETAG_LONG = "etag_long"
    ETAG_MALFORMED = "etag_malformed"
    """Without quotes, or with bytes that no entity tag has."""
    ETAG_AMBIGUOUS = "etag_ambiguous"
    DATE_MALFORMED = "date_malformed"
    DATE_OLD = "date_old"
    DATE_FUTURE = "date_future"
    DATE_NOW = "date_now"
    """Of the second of the answer: a change in the rest of that second would go unseen."""
    DATE_AMBIGUOUS = "date_ambiguous"


class KnownPage(NamedTuple):
    """The last answer with content of a page: ``url`` as it was asked, and its ``validators``.

    ``status`` is that of the last answer. A 304 that was understood leaves status and validators.
    ``fetches`` counts the answers so far.
    """

    url: str
    status: int
    validators: Validators
    fetches: int


class Asked(Enum):
    """How a known page was asked for."""

    IN_FULL = "in_full"
    CONDITIONALLY = "conditionally"
    SAMPLED = "sampled"
    """In full, as one of the sample: otherwise conditions would have been sent."""


class Meaning(Enum):
    """What an answer to a request for a known page means."""

    ORDINARY = "ordinary"
    """It has its own content: compare the digests."""
    NOT_MODIFIED = "not_modified"
    """The page is as it was: write a `server-not-modified` revisit."""
    UNCONDITIONAL = "unconditional"
    """Ordinary, but the tag is that which was sent: the server ignores conditions."""
    UNASKED = "unasked"
    """A 304 to a request without conditions. It says nothing about the page."""
    MISMATCHED = "mismatched"
    """A 304 about another version than the one that was asked about."""
    REFUSED = "refused"
    """A 412: the server does not understand conditions of a GET."""


# After these the page must be asked in full: what is known of it stays, without its validators.
ASK_IN_FULL = frozenset({Meaning.UNASKED, Meaning.MISMATCHED, Meaning.REFUSED})


def validators_of(
    status: int, etags: Iterable[bytes], dates: Iterable[bytes], sent_at: bytes, now: float
) -> tuple[Validators, tuple[LeftOut, ...]]:
    """Return the validators to keep of an answer, and why others are left out.

    ``etags`` and ``dates`` are all values of ETag and Last-Modified, ``sent_at`` that of Date, or
    empty. ``now`` is in epoch seconds.
    """
    if status not in _KEPT_FROM and status != 304:
        return NO_VALIDATORS, ()
    etag = _etag_of([value.strip(_BLANK) for value in etags])
    date = _date_of([value.strip(_BLANK) for value in dates], http_date(sent_at), now)
    left_out = tuple(found for found in (etag, date) if isinstance(found, LeftOut))
    kept = (b"" if isinstance(found, LeftOut) else found for found in (etag, date))
    return Validators(*kept), left_out


def http_date(value: bytes) -> float | None:
    """Return the epoch seconds of a date in one of the forms of RFC 9110, section 5.6.7."""
    try:
        date = parsedate_to_datetime(value.decode("ascii"))
        # Python takes "-0000" for a time without a zone.
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def conditions(
    page: KnownPage, url: str, identity: bytes, trusted: Validators, *, hides: bool = False
) -> tuple[Validators, Asked]:
    """Return the validators to send with a request for ``url``, empty ones for a full request.

    ``trusted`` is what `trust.trusted` lets through of the page's validators. There are none after
    an error or a redirect, for another URL or scheme, and in one of IN_FULL_EVERY requests. If its
    host ``hides`` changes, they are sent in these alone.
    """
    if page.status not in _KEPT_FROM or page.url != url or trusted == NO_VALIDATORS:
        return NO_VALIDATORS, Asked.IN_FULL
    sampled = in_full(identity, page.fetches)
    if sampled == hides:
        return trusted, Asked.CONDITIONALLY
    return NO_VALIDATORS, Asked.SAMPLED if sampled else Asked.IN_FULL


def in_full(identity: bytes, fetches: int) -> bool:
    """Return whether this request for a page is one of the sample that is asked in full."""
    return xxh3_64_intdigest(identity, fetches) % IN_FULL_EVERY == 0


def headers_of(sent: Validators) -> list[tuple[bytes, bytes]]:
    """Return the request headers that carry the conditions.

    Both are sent if both are known: a server that knows If-None-Match ignores the other.
    """
    found = ((b"If-None-Match", sent.etag), (b"If-Modified-Since", sent.last_modified))
    return [(name, value) for name, value in found if value]


def meaning_of(status: int, sent: Validators, answered: Validators) -> Meaning:
    """Return what an answer means. ``sent`` are the conditions of the request, ``answered`` the
    validators of the answer.

    Content of a 304 is no content of the page: RFC 9110 has none, and callers leave it out.
    """
    if status == 412 and sent != NO_VALIDATORS:
        return Meaning.REFUSED
    if status != 304:
        same = status in _KEPT_FROM and sent.etag and same_tag(sent.etag, answered.etag)
        return Meaning.UNCONDITIONAL if same else Meaning.ORDINARY
    if sent == NO_VALIDATORS:
        return Meaning.UNASKED
    return Meaning.NOT_MODIFIED if _is_about(sent, answered) else Meaning.MISMATCHED


def same_tag(left: bytes, right: bytes) -> bool:
    """Compare two entity tags weakly: RFC 9110, section 8.8.3.2."""
    return left.removeprefix(b"W/") == right.removeprefix(b"W/")


def _is_about(sent: Validators, answered: Validators) -> bool:
    """Return whether a 304 with these validators is about the version that was asked about.

    A server may leave them out. A date that differs, where no tag agrees, is another version: an
    older one may be a file that was put back.
    """
    if sent.etag and answered.etag:
        return same_tag(sent.etag, answered.etag)
    if sent.last_modified and answered.last_modified:
        return http_date(sent.last_modified) == http_date(answered.last_modified)
    return True


def _etag_of(values: list[bytes]) -> bytes | LeftOut:
    if not values:
        return b""
    if len(set(values)) > 1:
        return LeftOut.ETAG_AMBIGUOUS
    if len(values[0]) > ETAG_MAX:
        return LeftOut.ETAG_LONG
    return values[0] if _ETAG.fullmatch(values[0]) else LeftOut.ETAG_MALFORMED


def _date_of(values: list[bytes], sent_at: float | None, now: float) -> bytes | LeftOut:
    """Judge a date by the Date of the same answer, which is of the same clock, if it has one."""
    if not values:
        return b""
    if len(set(values)) > 1:
        return LeftOut.DATE_AMBIGUOUS
    changed = http_date(values[0]) if _DATE.fullmatch(values[0]) else None
    if changed is None:
        return LeftOut.DATE_MALFORMED
    if changed < _OLDEST:
        return LeftOut.DATE_OLD
    if changed > (now + _SKEW if sent_at is None else sent_at):
        return LeftOut.DATE_FUTURE
    return LeftOut.DATE_NOW if changed == sent_at else values[0]

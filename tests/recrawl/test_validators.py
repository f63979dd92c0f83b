"""Conditional requests: what is kept, what is sent, and what an answer means.

The cases that are named are those of http-tests/cache-tests that concern a client: its groups
conditional-etag, conditional-lm and update304. `tests.whole_crawls.test_cache_tests` has each case
over the wire.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.recrawl.validators import (
    ASK_IN_FULL,
    ETAG_MAX,
    IN_FULL_EVERY,
    NO_VALIDATORS,
    Asked,
    KnownPage,
    LeftOut,
    Meaning,
    Validators,
    conditions,
    headers_of,
    in_full,
    meaning_of,
    validators_of,
)
from tests.support.tables import table

URL = "https://example.org/a"
NOW = 1_577_880_000.0  # Wed, 01 Jan 2020 12:00:00 GMT
DATE = b"Wed, 01 Jan 2020 12:00:00 GMT"
CHANGED = b"Wed, 01 Jan 2020 00:00:00 GMT"
TAG = b'"abcdef"'
BOTH = Validators(TAG, CHANGED)
FULL = (NO_VALIDATORS, Asked.IN_FULL)
# An identity and a count of fetches outside the sample that is asked in full.
IDENTITY, FETCHES = b"identity", next(n for n in range(9) if not in_full(b"identity", n))


def kept(etags: list[bytes], dates: list[bytes], sent_at: bytes = DATE) -> Validators:
    return validators_of(200, etags, dates, sent_at, NOW)[0]


@table(
    ("case", "etag", "sent"),
    [
        ("conditional-etag-strong-generate", b'"abcdef"', b'"abcdef"'),
        ("conditional-etag-weak-generate-weak", b'W/"abcdef"', b'W/"abcdef"'),
        ("conditional-etag-strong-respond-obs-text", '"abcdefü"'.encode(), '"abcdefü"'.encode()),
        ("of RFC 9110, section 8.8.3", b'""', b'""'),
        ("with blanks of the field", b' "abcdef"\t', b'"abcdef"'),
        # The suite leaves these open. A tag without quotes cannot be sent byte for byte.
        ("conditional-etag-strong-generate-unquoted", b"abcdef", b""),
        ("conditional-etag-weak-respond-lowercase", b'w/"abcdef"', b""),
        ("conditional-etag-weak-respond-backslash", b'W\\"abcdef"', b""),
        ("conditional-etag-weak-respond-omit-slash", b'W"abcdef"', b""),
    ],
)
def test_an_etag_is_sent_as_it_came(case: str, etag: bytes, sent: bytes) -> None:
    page = KnownPage(URL, 200, kept([etag], []), FETCHES)
    headers = headers_of(conditions(page, URL, IDENTITY, page.validators)[0])
    assert headers == ([(b"If-None-Match", sent)] if sent else []), case


def test_a_date_is_sent_as_it_came() -> None:
    """conditional-lm-stale and conditional-lm-fresh-rfc850."""
    for date in (CHANGED, b"Wednesday, 01-Jan-20 00:00:00 GMT", b"Wed Jan  1 00:00:00 2020"):
        assert headers_of(kept([], [date])) == [(b"If-Modified-Since", date)]


def test_both_conditions_are_sent() -> None:
    """RFC 9111, section 4.3.1; the server gives precedence: conditional-etag-precedence."""
    assert headers_of(BOTH) == [(b"If-None-Match", TAG), (b"If-Modified-Since", CHANGED)]


@table(
    ("etags", "dates", "sent_at", "why"),
    [
        ([b'"' + b"a" * ETAG_MAX + b'"'], [], DATE, LeftOut.ETAG_LONG),
        ([b'"\x00\x01"'], [], DATE, LeftOut.ETAG_MALFORMED),
        ([b'"a" "b"'], [], DATE, LeftOut.ETAG_MALFORMED),
        ([b'"a"\r\nHost: b'], [], DATE, LeftOut.ETAG_MALFORMED),
        ([b'"a"', b'"b"'], [], DATE, LeftOut.ETAG_AMBIGUOUS),
        ([], [b"yesterday"], DATE, LeftOut.DATE_MALFORMED),
        ([], [CHANGED + b" (" + b"a" * 99 + b")"], DATE, LeftOut.DATE_MALFORMED),
        ([], [CHANGED + b"\r\n"], DATE, LeftOut.DATE_MALFORMED),
        ([], [b"0"], DATE, LeftOut.DATE_MALFORMED),
        ([], [b"Thu, 01 Jan 1970 00:00:00 GMT"], DATE, LeftOut.DATE_OLD),
        ([], [b"Wed, 01 Jan 2020 12:00:01 GMT"], DATE, LeftOut.DATE_FUTURE),
        ([], [b"Fri, 03 Jan 2020 12:00:00 GMT"], b"", LeftOut.DATE_FUTURE),
        ([], [DATE], DATE, LeftOut.DATE_NOW),
        ([], [CHANGED, DATE], DATE, LeftOut.DATE_AMBIGUOUS),
    ],
)
def test_a_bad_validator_is_left_out(
    etags: list[bytes], dates: list[bytes], sent_at: bytes, why: LeftOut
) -> None:
    assert validators_of(200, etags, dates, sent_at, NOW) == (NO_VALIDATORS, (why,))


def test_a_clock_that_is_off_is_judged_by_itself() -> None:
    """Three hours ahead of ours: a date of its own past is no future date."""
    ahead = b"Wed, 01 Jan 2020 15:00:00 GMT"
    changed = b"Wed, 01 Jan 2020 14:00:00 GMT"
    assert kept([], [changed], sent_at=ahead).last_modified == changed
    assert kept([], [changed], sent_at=b"").last_modified == changed


def test_a_repeated_equal_header_is_one() -> None:
    assert kept([TAG, TAG], [CHANGED, CHANGED]) == BOTH


@pytest.mark.parametrize("status", [206, 301, 302, 404, 410, 500, 503])
def test_no_validators_of_a_redirect_or_error(status: int) -> None:
    assert validators_of(status, [TAG], [CHANGED], DATE, NOW) == (NO_VALIDATORS, ())
    page = KnownPage(URL, status, BOTH, FETCHES)
    assert conditions(page, URL, IDENTITY, BOTH) == FULL


@pytest.mark.parametrize("url", ["http://example.org/a", "https://example.org/a?utm_source=b"])
def test_no_conditions_for_another_url_or_scheme(url: str) -> None:
    assert conditions(KnownPage(URL, 200, BOTH, FETCHES), url, IDENTITY, BOTH) == FULL


def test_one_request_in_fifty_is_sent_in_full() -> None:
    pages = [number.to_bytes(8) for number in range(20_000)]
    share = sum(in_full(page, 1) for page in pages) / len(pages)
    assert share == pytest.approx(1 / IN_FULL_EVERY, rel=0.2)
    # No page is for ever in the sample, and none for ever out of it.
    assert all(0 < sum(in_full(page, n) for n in range(1000)) < 100 for page in pages[:50])
    sampled = next(n for n in range(1000) if in_full(IDENTITY, n))
    page = KnownPage(URL, 200, BOTH, sampled)
    assert conditions(page, URL, IDENTITY, BOTH) == (NO_VALIDATORS, Asked.SAMPLED)
    # Nothing would have been sent.
    assert conditions(page, URL, IDENTITY, NO_VALIDATORS) == FULL


def test_a_host_that_hides_changes_has_conditions_in_the_sample_alone() -> None:
    sampled = next(n for n in range(1000) if in_full(IDENTITY, n))
    found = [
        conditions(KnownPage(URL, 200, BOTH, n), URL, IDENTITY, BOTH, hides=True)
        for n in (FETCHES, sampled)
    ]
    assert found == [FULL, (BOTH, Asked.CONDITIONALLY)]


OTHER = b'"ghijkl"'
NEWER = b"Wed, 01 Jan 2020 06:00:00 GMT"
RFC850 = b"Wednesday, 01-Jan-20 00:00:00 GMT"


@table(
    ("status", "sent", "answered", "meaning"),
    [
        (304, BOTH, BOTH, Meaning.NOT_MODIFIED),
        # A 304 may leave out what is stored: 304-lm-use-stored.
        (304, BOTH, NO_VALIDATORS, Meaning.NOT_MODIFIED),
        (304, Validators(b"", CHANGED), Validators(b"", CHANGED), Meaning.NOT_MODIFIED),
        (304, Validators(b"", CHANGED), Validators(b"", RFC850), Meaning.NOT_MODIFIED),
        # A compressing proxy weakens a tag.
        (304, Validators(TAG), Validators(b"W/" + TAG), Meaning.NOT_MODIFIED),
        (304, Validators(b"W/" + TAG), Validators(TAG), Meaning.NOT_MODIFIED),
        # 304-etag-update-response-Last-Modified: the tag decides, the date is new.
        (304, BOTH, Validators(TAG, NEWER), Meaning.NOT_MODIFIED),
        # 304-etag-update-response-ETag: RFC 9111, section 4.3.4: it is about another response.
        (304, BOTH, Validators(OTHER, CHANGED), Meaning.MISMATCHED),
        (304, Validators(b"", CHANGED), Validators(b"", NEWER), Meaning.MISMATCHED),
        (304, Validators(b"", NEWER), Validators(b"", CHANGED), Meaning.MISMATCHED),
        (304, NO_VALIDATORS, BOTH, Meaning.UNASKED),
        (304, NO_VALIDATORS, NO_VALIDATORS, Meaning.UNASKED),
        (412, BOTH, NO_VALIDATORS, Meaning.REFUSED),
        (412, NO_VALIDATORS, NO_VALIDATORS, Meaning.ORDINARY),
        (200, BOTH, Validators(TAG, CHANGED), Meaning.UNCONDITIONAL),
        (200, BOTH, Validators(b"W/" + TAG, CHANGED), Meaning.UNCONDITIONAL),
        (200, BOTH, Validators(OTHER, CHANGED), Meaning.ORDINARY),
        (200, BOTH, NO_VALIDATORS, Meaning.ORDINARY),
        (200, NO_VALIDATORS, BOTH, Meaning.ORDINARY),
        (404, BOTH, NO_VALIDATORS, Meaning.ORDINARY),
        (500, BOTH, Validators(TAG), Meaning.ORDINARY),
    ],
)
def test_what_an_answer_means(
    status: int, sent: Validators, answered: Validators, meaning: Meaning
) -> None:
    assert meaning_of(status, sent, answered) is meaning


statuses = st.sampled_from([200, 203, 206, 301, 304, 404, 412, 500])
values = st.sampled_from([NO_VALIDATORS, BOTH, Validators(OTHER), Validators(b"", NEWER)])


@given(status=statuses, sent=values, answered=values)
def test_a_revisit_needs_a_304_that_was_asked_for(
    status: int, sent: Validators, answered: Validators
) -> None:
    meaning = meaning_of(status, sent, answered)
    if meaning is Meaning.NOT_MODIFIED:
        assert status == 304
        assert sent != NO_VALIDATORS
    elif status == 304:
        assert meaning in ASK_IN_FULL


@given(
    etags=st.lists(st.binary(max_size=40), max_size=2),
    dates=st.lists(st.binary(max_size=40) | st.just(CHANGED), max_size=2),
    sent_at=st.binary(max_size=40) | st.just(DATE),
)
def test_whatever_is_kept_can_be_sent(
    etags: list[bytes], dates: list[bytes], sent_at: bytes
) -> None:
    found, left_out = validators_of(200, etags, dates, sent_at, NOW)
    for name, value in headers_of(found):
        assert value in {given.strip(b" \t") for given in etags + dates}
        assert not {*name, *value} & {*b"\r\n\x00"}
    assert len(left_out) + len(headers_of(found)) <= bool(etags) + bool(dates)

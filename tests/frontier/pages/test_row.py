"""The format of a row keeps what it is given, byte for byte, and what is of another version."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from datetime import datetime, timedelta
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from krowlspider.archive.write.records import warc_date
from krowlspider.frontier.pages.row import (
    TICK,
    LaterRow,
    PageRow,
    date_of_seconds,
    decode_row,
    is_as_new_as,
    seconds_of_date,
)
from krowlspider.frontier.store.schema import page_prefix
from krowlspider.recrawl.estimate import Estimate
from krowlspider.recrawl.gone import Absence, PageState
from tests.support.tables import table

HOST = "www.site.test"
SECONDS = st.integers(0, 2**32 - 1)
COUNTS = st.integers(0, 0xFFFF)
TIMES = st.integers(1, 2**32 * 10**6 - 10**6).map(lambda time: time / 1e6)
FLOATS = st.floats(0.0, 2.0**60, width=32)
ETAGS = st.from_regex('(W/)?"[0-9a-f]{0,80}-?[0-9a-f]{0,80}"', fullmatch=True).map(str.encode)
DATES = SECONDS.map(date_of_seconds)
ROWS = st.builds(
    PageRow,
    url=st.sampled_from(
        [f"https://{HOST}/", f"http://{HOST}/a?b=c", "http://other.test/", f"https://{HOST}:1/é"]
    ),
    status=st.integers(100, 999),
    first=SECONDS,
    last=TIMES,
    depth=COUNTS,
    changed=SECONDS,
    stored=st.just(0.0) | TIMES,
    elsewhere=st.sampled_from(["", "http://other.test/b"]),
    etag=st.binary(max_size=1024) | ETAGS,
    modified=st.binary(max_size=64) | DATES,
    payload=st.sampled_from([b"", b"s" * 20, bytes(32)]),
    fetches=COUNTS,
    unmodified=COUNTS,
    changes=COUNTS,
    estimate=st.none() | st.builds(Estimate, FLOATS, FLOATS).map(lambda each: each.rounded),
    passed=COUNTS,
    due=st.integers(0, 2**32 // TICK).map(lambda tick: tick * TICK),
    planned=SECONDS,
    absence=st.just(Absence())
    | st.builds(Absence, st.sampled_from(PageState), st.integers(1, 255), SECONDS),
    seed=st.just(b"") | st.binary(min_size=6, max_size=6),
    named=st.integers(0, 15),
    tried=st.integers(0, 15),
    listing=st.binary(max_size=300),
    text=st.just(b"") | st.binary(min_size=8, max_size=8),
    weight=st.just(1.0) | FLOATS,
    price=st.sampled_from(["", "USD 0.01", "x" * 40]),
).map(lambda row: row if row.planned else replace(row, weight=1.0))


@given(ROWS)
def test_a_row_is_read_as_it_was_written(row: PageRow):
    assert decode_row(row.encode(HOST), HOST) == row


@given(st.integers(0, 0xFFFFFF), st.binary(max_size=80))
def test_bytes_of_a_stranger_are_a_row_or_a_known_error(flags: int, rest: bytes):
    with suppress(LaterRow, ValueError, IndexError, struct.error):
        decode_row(b"\3" + flags.to_bytes(3) + rest, HOST).encode(HOST)


def test_a_count_stops_at_the_highest_that_a_row_holds():
    row = PageRow(f"http://{HOST}/", 200, 1, 1.0, fetches=70_000)
    assert decode_row(row.encode(HOST), HOST).fetches == 0xFFFF


@pytest.mark.parametrize("change", [b"\4", b"\2", b"\0"])
def test_a_row_of_another_format_is_not_read(change: bytes):
    row = PageRow(f"http://{HOST}/", 200, 1, 1.0).encode(HOST)
    with pytest.raises(LaterRow):
        decode_row(change + row[1:], HOST)


def test_a_row_with_an_unknown_flag_is_not_read():
    row = PageRow(f"http://{HOST}/", 200, 1, 1.0).encode(HOST)
    with pytest.raises(LaterRow):
        decode_row(row[:1] + bytes([row[1] | 0x80]) + row[2:], HOST)


@given(SECONDS)
def test_a_date_is_read_as_it_was_written(seconds: int):
    assert seconds_of_date(date_of_seconds(seconds)) == seconds


@given(st.binary(max_size=40) | DATES.map(bytearray).map(bytes))
def test_only_the_exact_text_of_a_date_is_one(text: bytes):
    seconds = seconds_of_date(text)
    assert seconds is None or date_of_seconds(seconds) == text


@table(
    "text",
    [
        b"Mon, 14 Nov 2023 22:13:20 GMT",
        b"Tue, 14 nov 2023 22:13:20 GMT",
        b"Tue, 31 Feb 2023 22:13:20 GMT",
        b"Thu, 01 Jan 1970 00:00:00 UTC",
        b"Wed, 31 Dec 1969 23:59:59 GMT",
        b"Tue, 14 Nov 2023 22:13:60 GMT",
        b"Tue, 14 Nov 2023 22:13:20 GMT ",
        b"0",
    ],
)
def test_another_text_is_no_date(text: bytes):
    assert seconds_of_date(text) is None


def sized(length: int, **more: object) -> int:
    """Return the bytes of the row of a page with validators, and its key."""
    row = PageRow(f"https://{HOST}/" + "p" * length, 200, 1_700_000_000, 1_700_000_000.25)
    row.changed, row.stored, row.payload = row.first, row.last, b"s" * 20
    row.seed, row.text = b"sixfix", b"8 bytes."
    row.etag, row.modified = b'"5e3f-60b4c1d2a8f00"', date_of_seconds(1_600_000_000)
    row.estimate, row.planned, row.due = (0.3, 864_000.0), 5 * 86_400, 1_700_445_600
    return len(page_prefix(HOST)) + 8 + len(replace(row, **more).encode(HOST))


def test_a_usual_row_has_150_bytes_at_most():
    """With its key: of a page of the schedule that was fetched again and has not changed. The paths
    are of the lengths that are usual in a crawl."""
    later = 1_700_000_000 + 10 * 86_400
    again = {"last": later + 0.75, "due": later // 60 * 60 + 445_620, "fetches": 3, "unmodified": 2}
    assert median(sized(length, **again) for length in (1, 20, 40, 55, 90)) <= 150


def test_a_tag_of_digits_has_half_of_its_bytes():
    """Most servers make tags of hexadecimal digits."""
    plain, packed = sized(9, etag=b'"' + b"z" * 64 + b'"'), sized(9, etag=b'"' + b"a" * 64 + b'"')
    assert plain - packed == 33


def test_times_are_as_in_the_archive():
    """A row names its record by the WARC-Date, which has microseconds."""
    chance = random.Random(3)
    for started in (chance.uniform(1.0, 2**32) for _ in range(2000)):
        row = PageRow(f"http://{HOST}/", 200, 1, started, stored=started)
        assert warc_date(decode_row(row.encode(HOST), HOST).stored) == warc_date(started)


FORMS = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y")


@given(
    st.datetimes(min_value=datetime(1973, 1, 1), max_value=datetime(2065, 1, 1)),
    st.timedeltas(min_value=timedelta(days=-800), max_value=timedelta(days=800)),
    st.sampled_from(FORMS),
    st.sampled_from(FORMS),
)
def test_dates_of_any_form_are_compared_by_the_second(
    sent: datetime, since: timedelta, form: str, other: str
) -> None:
    """RFC 9110, section 5.6.7."""
    changed = (sent + since).replace(microsecond=0)
    sent = sent.replace(microsecond=0)
    texts = (changed.strftime(form).encode(), sent.strftime(other).encode())
    assert is_as_new_as(*texts) == (changed >= sent)

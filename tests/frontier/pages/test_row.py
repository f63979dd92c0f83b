"""The format of a row keeps what it is given, byte for byte, and knows what it has not written."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from datetime import datetime, timedelta
from math import inf, isnan, nan
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from krowlspider.archive.write.records import warc_date
from krowlspider.frontier.pages.row import (
    SECONDS_MAX,
    TICK,
    DamagedRow,
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
from tests.frontier.pages.made_rows import DATES, HOST, ROWS, SECONDS
from tests.support.tables import table


@given(ROWS)
def test_a_row_is_read_as_it_was_written(row: PageRow):
    assert decode_row(row.encode(HOST), HOST) == row


@given(st.integers(0, 0xFFFFFF), st.binary(max_size=80))
def test_bytes_of_a_stranger_are_a_row_or_a_known_error(flags: int, rest: bytes):
    with suppress(LaterRow, DamagedRow):
        decode_row(b"\4" + flags.to_bytes(3) + rest, HOST).encode(HOST)


@given(ROWS.map(lambda row: row.encode(HOST)), st.integers(0), st.binary(min_size=1, max_size=9))
def test_a_row_that_is_cut_or_longer_is_damaged(row: bytes, at: int, more: bytes):
    for data in (row[: at % len(row)], row + more):
        with pytest.raises(DamagedRow):
            decode_row(data, HOST)


def test_a_row_is_known_to_be_cut_at_each_place():
    row = PageRow(f"https://{HOST}/path", 404, 1, 1.5, changed=9, stored=1.25, planned=90, due=120)
    row.etag, row.modified, row.payload, row.seed = b'"5e"', b"soon", b"s" * 20, b"sixfix"
    row.estimate, row.absence, row.named = (0.5, 600.0), Absence(PageState.MISSING, 1, 1.0), 3
    row.elsewhere, row.listing, row.text, row.price = "http://b.test/", b"feed", b"8 bytes.", "USD"
    data = row.encode(HOST)
    for size in range(len(data)):
        with pytest.raises(DamagedRow):
            decode_row(data[:size], HOST)


@table("estimate, weight", [((nan, 60.0), 1.0), ((0.5, inf), 1.0), ((0.5, 60.0), nan)])
def test_a_row_whose_worth_is_no_number_is_damaged(
    estimate: tuple[float, float], weight: float
) -> None:
    """The demand of its host would be none for ever."""
    row = PageRow(f"http://{HOST}/", 200, 1, 1.0, estimate=(0.5, 600.0), planned=60, weight=2.0)
    data = row.encode(HOST)
    good = bytes(Estimate(0.5, 600.0)), struct.pack(">f", 2.0)
    shape, seconds = estimate
    bad = struct.pack(">ee", shape, seconds / 600), struct.pack(">f", weight)
    for old, new in zip(good, bad, strict=True):
        assert old in data
        data = data.replace(old, new)
    with pytest.raises(DamagedRow):
        decode_row(data, HOST)


@table(
    "data",
    [
        PageRow("no URL", 200, 1, 1.0).encode(HOST),
        PageRow(f"http://{HOST}/", 70_000, 1, 1.0).encode(HOST),
        # A time after 2106, and a count beyond the highest.
        b"\4\0\0\x40" + (2**32 * 10**6).to_bytes(7) + b"\2\0" + b"0/",
        b"\4\0\0\x41" + bytes(7) + b"\2\0\0\0" + b"\xc1\0\0" + b"\0\0" + b"0/",
    ],
)
def test_values_that_no_row_holds_are_damage(data: bytes) -> None:
    with pytest.raises(DamagedRow):
        decode_row(data, HOST)


@given(st.floats(), st.floats(), st.integers(0, 2**40))
def test_times_of_any_clock_are_the_nearest_that_a_row_holds(
    last: float, stored: float, planned: int
) -> None:
    row = PageRow(f"http://{HOST}/", 200, 1, last, stored=stored, planned=planned, due=TICK)
    read = decode_row(row.encode(HOST), HOST)
    nearest = 0.0 if isnan(last) else min(max(last, 0.0), SECONDS_MAX)
    assert read.last == pytest.approx(nearest, abs=1e-6)
    assert (read.due, read.planned) == (TICK, min(planned, SECONDS_MAX))


def test_a_count_stops_at_the_highest_that_a_row_holds():
    row = PageRow(f"http://{HOST}/", 200, 1, 1.0, fetches=70_000)
    assert decode_row(row.encode(HOST), HOST).fetches == 0xFFFF


@pytest.mark.parametrize("change", [b"\5", b"\3", b"\2", b"\0"])
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

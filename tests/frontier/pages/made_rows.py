"""Rows of pages with any values that a row can have."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from krowlspider.frontier.pages.row import TICK, PageRow, date_of_seconds
from krowlspider.recrawl.estimate import Estimate
from krowlspider.recrawl.gone import Absence, PageState

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
        [
            *(f"https://{HOST}/", f"http://{HOST}/a?b=c", "http://other.test/"),
            *(f"https://{HOST}:1/é", f"https://{HOST}/{'u' * 2062}", f"http://{HOST}/{'u' * 8000}"),
        ]
    ),
    status=st.integers(100, 999),
    first=SECONDS,
    last=TIMES,
    depth=COUNTS,
    changed=SECONDS,
    stored=st.just(0.0) | TIMES,
    elsewhere=st.sampled_from(["", "http://other.test/b"]),
    etag=st.binary(max_size=1024) | ETAGS | st.just(b"\0\xff" * 4096),
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

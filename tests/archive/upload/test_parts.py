from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from krowlspider.archive.upload.plan import (
    FILES_AT_ONCE,
    PART,
    PARTS_AT_ONCE,
    REQUEST,
    SLOWEST,
    etag_of,
    md5,
    part_size,
)


@given(st.integers(0, 5 * 10**12))
def test_file_of_any_size_has_a_valid_number_of_parts(size: int) -> None:
    assert -(-size // part_size(size)) <= 10_000
    assert part_size(size) >= 5 * 1024 * 1024


def test_etag_is_of_the_whole_or_of_the_parts() -> None:
    assert etag_of([md5(b"a")], whole=True) == md5(b"a").hex()
    # A single part is still a part.
    assert etag_of([md5(b"a")], whole=False) == f"{md5(md5(b'a')).hex()}-1"


def test_slowest_uplink_carries_all_parts_within_a_request() -> None:
    assert REQUEST > FILES_AT_ONCE * PARTS_AT_ONCE * PART / SLOWEST
    # It is the megabit that the settings ask for.
    assert 8 * SLOWEST == 1_000_000

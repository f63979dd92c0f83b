"""Which file is uploaded next, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.archive.uploads import (
    FILES_AT_ONCE,
    PART,
    PARTS_AT_ONCE,
    REQUEST,
    SLOWEST,
    LocalFile,
    UploadPlan,
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


def a_file(name: str) -> LocalFile:
    return LocalFile(name, 1, 1)


def taken(plan: UploadPlan, now: float) -> LocalFile:
    """Return the file that may be uploaded now; there must be one."""
    file = plan.take(now)
    assert file is not None
    return file


def test_files_go_in_the_order_of_their_names() -> None:
    plan = UploadPlan()
    plan.see(map(a_file, ["b.warc.gz", "a.warc.gz", "b.cdxj", "a.cdxj"]))
    order = [taken(plan, 0).name for _ in range(4)]
    assert order == ["a.cdxj", "a.warc.gz", "b.cdxj", "b.warc.gz"]
    assert plan.take(0) is None
    assert plan.waiting == 4


def test_wait_for_a_failing_store_doubles_up_to_five_minutes() -> None:
    plan, now, waits = UploadPlan(), 100.0, []
    plan.see([a_file("a"), a_file("b")])
    for _ in range(12):
        file = taken(plan, now)
        waits.append(plan.failed(file, now, by_store=True))
        assert plan.take(now + waits[-1] - 0.001) is None
        assert plan.wait(now) == waits[-1]
        now += waits[-1]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert plan.down


def test_two_files_that_fail_together_count_once() -> None:
    plan = UploadPlan()
    plan.see([a_file("a"), a_file("b"), a_file("c")])
    first, second = taken(plan, 0), taken(plan, 0)
    assert plan.failed(first, 0, by_store=True) == 1
    assert plan.failed(second, 0.5, by_store=True) == 0.5
    assert plan.take(0.9) is None
    assert plan.take(1) == first


def test_a_success_ends_the_outage() -> None:
    plan = UploadPlan()
    plan.see([a_file("a"), a_file("b")])
    for now in (0, 1, 3):
        file = taken(plan, now)
        plan.failed(file, now, by_store=True)
    file = taken(plan, 7)
    plan.done(file)
    assert not plan.down
    file = taken(plan, 7)
    assert plan.failed(file, 7, by_store=True) == 1


def test_file_that_fails_delays_no_other() -> None:
    plan = UploadPlan()
    plan.see([a_file("a"), a_file("b")])
    bad = taken(plan, 0)
    assert [plan.failed(bad, 0, by_store=False), plan.take(0)] == [1, a_file("b")]
    plan.done(a_file("b"))
    assert (plan.waiting, plan.take(0.9), plan.wait(0.9)) == (1, None, pytest.approx(0.1))
    assert plan.take(1) == bad
    assert plan.failed(bad, 1, by_store=False) == 2
    plan.forgive()
    assert plan.take(1) == bad


def test_store_that_is_down_for_long_is_tried_every_5_minutes() -> None:
    plan, now = UploadPlan(), 0.0
    plan.see([a_file("a")])
    for _ in range(5000):
        file = taken(plan, now)
        now += plan.failed(file, now, by_store=True)
    assert plan.wait(now - 300) == 300


@given(st.lists(st.tuples(st.sampled_from("tsfdxl"), st.integers(0, 5), st.floats(0, 99))))
def test_no_file_is_in_flight_twice_and_none_is_forgotten(
    steps: list[tuple[str, int, float]],
) -> None:
    plan, now = UploadPlan(), 0.0
    there = {f"{number}" for number in range(4)}
    in_hand: list[LocalFile] = []
    plan.see(map(a_file, there))
    for what, number, seconds in steps:
        now += seconds
        if what == "t" and (file := plan.take(now)):
            assert file not in in_hand
            in_hand.append(file)
        elif what in "sf" and in_hand:
            assert 0 < plan.failed(in_hand.pop(), now, by_store=what == "s") <= 300
        elif what == "d" and in_hand:
            there.discard(in_hand[0].name)
            plan.done(in_hand.pop(0))
        elif what == "l":
            plan.see(map(a_file, there))
        elif what == "x":
            there.add(f"{number}")
            plan.see(map(a_file, there))
        assert plan.waiting == len(there)
    # In the end each of them can be had.
    for file in in_hand:
        plan.failed(file, now, by_store=False)
    left = {file.name for _ in range(9) if (file := plan.take(now + 300)) is not None}
    assert left == there


def test_bytes_in_flight_have_their_time_on_the_slowest_uplink() -> None:
    plan = UploadPlan()
    small, large = LocalFile("a", SLOWEST, 1), LocalFile("b", 100 * PART, 1)
    plan.see([small, large])
    assert plan.time_in_flight == 0
    assert taken(plan, 0) == small
    assert plan.time_in_flight == 1
    assert taken(plan, 0) == large
    assert plan.time_in_flight == 1 + PARTS_AT_ONCE * PART / SLOWEST
    plan.done(small)
    plan.failed(large, 0, by_store=False)
    assert plan.time_in_flight == 0

"""Which members are live, by readings of the register."""

from __future__ import annotations

import pytest

from krowlspider.cluster.ring.live_members import LiveMembers, RegisterEntry
from krowlspider.cluster.ring.record import BadRecordError, Record
from krowlspider.cluster.ring.ring import Member, Ring

A = Member("a", 1, "redis://127.0.0.1:1/0", "a.example:1")
B = Member("b", 2, "redis://127.0.0.1:2/0", "b.example:2")
RING_AB = Ring([A, B])


def entry(
    member: Member,
    session: str | None = "s",
    claims: tuple[Ring, ...] = (),
    *,
    leaving: bool = False,
) -> RegisterEntry:
    record = Record(member, claims, leaving=leaving)
    return RegisterEntry(f"nodes/{member.id}", record.dumps(), session, 7)


def members_of_both() -> LiveMembers:
    live = LiveMembers("a", 10.0)
    assert live.update(1, [entry(A), entry(B, claims=(RING_AB,))], 100.0)
    return live


def test_vanished_member_stays_for_a_ttl():
    live = members_of_both()
    assert not live.update(2, [entry(A)], 150.0)
    assert not live.update(3, [entry(A)], 159.9)
    assert live.members["b"] == Record(B, (RING_AB,))
    assert not live.is_stale(159.9)
    assert live.is_stale(160.0)
    assert live.update(3, [entry(A)], 160.0)
    assert live.members.keys() == {"a"}
    assert not live.is_stale(1000.0)


def test_member_that_vanishes_again_has_a_new_ttl():
    live = members_of_both()
    live.update(2, [entry(A)], 150.0)
    live.update(3, [entry(A), entry(B)], 155.0)
    assert not live.is_stale(165.0)
    live.update(4, [entry(A)], 165.0)
    assert live.members.keys() == {"a", "b"}
    assert not live.is_stale(174.9)


def test_each_change_of_a_member_is_told_once():
    """A node that left has given its key back; the key of a dead node ends with its lease."""
    live = LiveMembers("a", 10.0)

    def told(now: float, *others: RegisterEntry) -> list[str]:
        before, entries = live.members, [entry(A), *others]
        live.update(1, entries, now)
        return live.news(before, entries)

    assert told(0.0, entry(B)) == ["Node b has joined"]
    assert told(1.0, entry(B, claims=(RING_AB,))) == []
    assert told(2.0, entry(B, leaving=True)) == ["Node b is leaving: it hands its hosts over"]
    assert told(3.0, entry(B, session=None)) == ["Node b has left"]
    assert told(4.0, entry(B)) == ["Node b has joined"]
    assert told(5.0) == ["Node b has lost its lease: its hosts wait up to 10 s for it"]
    assert told(6.0) == []
    assert told(15.0) == ["Node b is dead: its lease has ended"]
    assert told(16.0) == []


def test_released_key_is_no_member():
    live = members_of_both()
    assert live.update(2, [entry(A), entry(B, session=None)], 101.0)
    assert live.members.keys() == {"a"}


def test_leaving_is_a_change_and_ends_with_the_key():
    live = members_of_both()
    leaving = entry(B, claims=(RING_AB,), leaving=True)
    assert live.update(2, [entry(A), leaving], 101.0)
    assert not live.update(3, [entry(A), leaving], 102.0)
    assert not live.update(4, [entry(A)], 103.0)
    assert live.members["b"] == Record(B, (RING_AB,), leaving=True)


def test_release_ends_the_wait_for_a_vanished_member():
    live = members_of_both()
    live.update(2, [entry(A)], 101.0)
    live.update(3, [entry(A), entry(B, session=None)], 102.0)
    assert live.members.keys() == {"a"}


def test_unreadable_live_member_changes_nothing():
    live = members_of_both()
    before = live.members
    with pytest.raises(BadRecordError):
        live.update(2, [entry(A), RegisterEntry("nodes/b", b"{", "s", 8)], 101.0)
    assert live.members == before
    assert live.epoch == 1


def test_junk_without_a_session_is_no_member():
    live = members_of_both()
    live.update(2, [entry(A), entry(B), RegisterEntry("nodes/junk", b"{", None, 8)], 101.0)
    assert live.members.keys() == {"a", "b"}


def test_counters_outlast_a_reading():
    live = members_of_both()
    live.count(
        [
            RegisterEntry("beats/b", b'{"pages": 1}', "s", 9),
            RegisterEntry("beats/a", b'{"pages": "x"}', "s", 9),
            RegisterEntry("beats/z", b"{}", "s", 9),
        ]
    )
    assert not live.update(2, [entry(A), entry(B, claims=(RING_AB,))], 101.0)
    assert live.members["b"].counters == {"pages": 1}
    assert live.members["a"].counters == {}


def test_counter_out_of_range_changes_nothing():
    live = members_of_both()
    for value in (b'{"pages": 7}', b'{"pages": ' + b"9" * 400 + b"}"):
        live.count([RegisterEntry("krowlspider/x/beats/b", value, "s", 1)])
        assert live.members["b"].counters == {"pages": 7}

"""Which members are live, by readings of the register."""

from __future__ import annotations

import pytest

from krowlspider.cluster.ring.live_members import LiveMembers, RegisterEntry
from krowlspider.cluster.ring.ring import BadRecordError, Member, MemberRecord, Ring

A = Member("a", 1, "redis://127.0.0.1:1/0", "a.example:1")
B = Member("b", 2, "redis://127.0.0.1:2/0", "b.example:2")
RING_AB = Ring([A, B])


def entry(
    member: Member,
    session: str | None = "s",
    claims: tuple[Ring, ...] = (),
    *,
    leaving: bool = False,
    modified: int = 7,
) -> RegisterEntry:
    record = MemberRecord(member, claims, leaving=leaving)
    return RegisterEntry(f"nodes/{member.id}", record.dumps(), session, modified)


def members_of_both(delay: float = 0.0) -> LiveMembers:
    live = LiveMembers("a", 10.0, delay)
    assert live.update(1, [entry(A), entry(B, claims=(RING_AB,))], 100.0)
    return live


def test_vanished_member_stays_for_a_ttl():
    live = members_of_both()
    assert live.update(2, [entry(A)], 150.0)
    assert not live.update(3, [entry(A)], 159.9)
    assert live.members["b"] == MemberRecord(B, (RING_AB,), dead=True)
    assert not live.is_stale(159.9)
    assert live.is_stale(160.0)
    assert live.update(3, [entry(A)], 160.0)
    assert live.members.keys() == {"a"}
    assert not live.is_stale(1000.0)


@pytest.mark.parametrize(("delay", "waits"), [(900.0, 900.0), (5.0, 10.0)])
def test_dead_member_is_replaced_after_the_delay(delay: float, waits: float):
    """Not before its lease is over; until then it keeps its place and its claims."""
    live, dead = members_of_both(delay), [entry(A), entry(B, None, (RING_AB,), modified=8)]
    assert live.update(2, dead, 150.0)
    assert not live.update(3, dead, 150.0 + waits - 0.1)
    assert live.members["b"] == MemberRecord(B, (RING_AB,), dead=True)
    assert live.waits(150.0) == {"b": waits}
    assert live.overdue(150.0 + waits - 0.1) == {}
    assert live.overdue(150.0 + waits) == {"b": 8}
    assert live.update(4, [entry(A)], 150.0 + waits)
    assert live.members.keys() == {"a"}
    assert live.waits(150.0 + waits) == live.overdue(10_000.0) == {}


def test_member_that_dies_again_is_waited_for_anew():
    """Although no reading has shown that it was back in between."""
    live = members_of_both(900.0)
    live.update(2, [entry(A), entry(B, None, (RING_AB,), modified=8)], 150.0)
    live.update(9, [entry(A), entry(B, None, (RING_AB,), modified=12)], 1000.0)
    assert live.overdue(1899.0) == {}
    assert live.overdue(1900.0) == {"b": 12}


def test_forgotten_member_is_replaced_at_once_after_its_lease():
    for forgotten, gone in ((155.0, 160.0), (170.0, 170.0)):
        live = members_of_both(900.0)
        live.update(2, [entry(A), entry(B, None, (RING_AB,))], 150.0)
        live.update(3, [entry(A)], forgotten)
        assert ("b" in live.members) == (forgotten < gone)
        live.update(3, [entry(A)], gone)
        assert live.members.keys() == {"a"}


def test_node_that_died_without_claims_is_not_waited_for():
    live = members_of_both(900.0)
    live.update(2, [entry(A), entry(B, None)], 150.0)
    assert live.members.keys() == {"a"}


def test_member_that_vanishes_again_has_a_new_ttl():
    live = members_of_both()
    live.update(2, [entry(A)], 150.0)
    live.update(3, [entry(A), entry(B)], 155.0)
    assert not live.is_stale(165.0)
    live.update(4, [entry(A)], 165.0)
    assert live.members.keys() == {"a", "b"}
    assert not live.is_stale(174.9)


def test_each_change_of_a_member_is_told_once():
    """A node that left has given its key back; that of a dead node keeps its claims."""
    live = LiveMembers("a", 10.0, 900.0)
    dead = entry(B, None, (RING_AB,))
    waits = (
        "Node b has lost its lease: its domains wait for it for up to 900 s;"
        " `scrapy ring --forget b` ends the wait"
    )

    def told(now: float, *others: RegisterEntry) -> list[str]:
        before = live.members
        live.update(1, [entry(A), *others], now)
        return live.news(before)

    assert told(0.0, dead) == [waits]
    assert told(0.0, entry(B)) == ["Node b is back"]
    assert told(0.0) == [waits]
    assert told(10.0) == ["Node b is dead: other nodes take its domains over"]
    assert told(0.0, entry(B)) == ["Node b has joined"]
    assert told(1.0, entry(B, claims=(RING_AB,))) == []
    assert told(2.0, entry(B, leaving=True)) == ["Node b is leaving: it hands its hosts over"]
    assert told(3.0, entry(B, session=None)) == ["Node b has left"]
    assert told(4.0, entry(B)) == ["Node b has joined"]
    assert told(5.0, dead) == [waits]
    assert told(6.0, dead) == []
    assert told(1000.0) == ["Node b is dead: other nodes take its domains over"]
    assert told(1001.0) == []


def test_released_key_is_no_member():
    live = members_of_both()
    assert live.update(2, [entry(A), entry(B, session=None)], 101.0)
    assert live.members.keys() == {"a"}


def test_leaving_is_a_change_and_ends_with_the_key():
    live = members_of_both()
    leaving = entry(B, claims=(RING_AB,), leaving=True)
    assert live.update(2, [entry(A), leaving], 101.0)
    assert not live.update(3, [entry(A), leaving], 102.0)
    assert live.update(4, [entry(A)], 103.0)
    assert live.members["b"] == MemberRecord(B, (RING_AB,), leaving=True, dead=True)


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

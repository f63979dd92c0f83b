"""The ring: even, stable, the same on each node, and nothing that comes from the register is taken
on trust."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from math import nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krowlspider.cluster.ring.ring import (
    MEMBERS_MAX,
    WEIGHT_MAX,
    BadRecordError,
    Member,
    MemberRecord,
    Ring,
)
from krowlspider.urls.canonical import position_of
from tests.support.domains import real_domains
from tests.support.tables import table


def nodes(count: int, form: str = "node-{}") -> list[Member]:
    return [Member(form.format(number)) for number in range(count)]


ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
members = st.lists(
    st.builds(Member, ids, st.sampled_from([0.25, 1, 1.5, 2, 3])),
    min_size=1,
    max_size=6,
    unique_by=lambda member: member.id,
)


@pytest.mark.parametrize(
    ("count", "form"),
    [
        *((count, "node-{}") for count in (2, 3, 5)),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                (8, "node-{}"),
                (64, "node-{}"),
                (16, "{}"),
                (32, "crawl{}.dc1.example.org"),
            )
        ),
        *((5, form) for form in ("{}", "crawl{}.dc1.example.org")),
    ],
)
def test_busiest_of_equal_nodes_is_at_most_15_percent_above(count: int, form: str) -> None:
    ring = Ring(nodes(count, form))
    owned = Counter(map(ring.owner, real_domains()[:: 1 if count > 16 else 5]))
    assert len(owned) == count
    assert max(owned.values()) * count / owned.total() <= 1.15
    assert max(map(ring.share, owned)) * count <= 1.15


def test_three_times_the_weight_has_three_times_the_domains() -> None:
    ring = Ring([Member("big", 3), Member("one"), Member("two"), Member("three")])
    owned = Counter(map(ring.owner, real_domains()))
    assert owned["big"] / owned.total() == pytest.approx(0.5, rel=0.05)
    assert owned["big"] / owned.total() == pytest.approx(ring.share("big"), rel=0.01)
    assert sum(ring.share(name) for name, _ in ring.weights) == pytest.approx(1.0)


@pytest.mark.parametrize("count", [1, 4, 31])
def test_new_node_takes_its_share_and_only_for_itself(count: int) -> None:
    before, after = Ring(nodes(count)), Ring([*nodes(count), Member("new")])
    domains = real_domains()[::4]
    moved = [d for d in domains if before.owner(d) != after.owner(d)]
    assert {after.owner(domain) for domain in moved} == {"new"}
    assert len(moved) / len(domains) == pytest.approx(1 / (count + 1), rel=0.15)


@settings(max_examples=20, deadline=None)
@given(members, st.data())
def test_change_of_a_node_moves_domains_only_to_or_from_it(
    some: list[Member], data: st.DataObject
) -> None:
    one = data.draw(st.sampled_from(some))
    rest = [member for member in some if member is not one]
    changes = [[*rest, Member(one.id, one.weight + 1)], *([rest] if rest else [])]
    ring, rings = Ring(some), [Ring(change) for change in changes]
    for other in rings:
        for domain in real_domains()[:300]:
            was, now = ring.owner(domain), other.owner(domain)
            assert was == now or one.id in {was, now}
            # Where it is heavier, it loses nothing.
            assert now in {was, one.id} or other is not rings[0]


@settings(max_examples=25, deadline=None)
@given(members, st.data())
def test_ranges_of_others_are_exactly_theirs(some: list[Member], data: st.DataObject) -> None:
    ring = Ring(some)
    # "gone" is no member: it owns nothing.
    own = data.draw(st.sampled_from([*(member.id for member in some), "gone"]))
    ranges = ring.ranges_of_others(own)
    for domain in real_domains()[:2000]:
        is_within = any(first <= position_of(domain) <= last for first, last in ranges)
        assert is_within == (ring.owner(domain) != own)
    bounds = [bound for pair in ranges for bound in pair]
    assert bounds == sorted(bounds)
    assert all(after > last + 1 for (_, last), (after, _) in pairwise(ranges))
    if own not in dict(ring.weights):
        assert ranges == [(0, 2**64 - 1)]


@settings(max_examples=25, deadline=None)
@given(members, members, st.data())
def test_covering_ring_gives_a_node_all_that_the_other_does(
    some: list[Member], more: list[Member], data: st.DataObject
) -> None:
    taken = {member.id for member in some}
    more = [*some, *(member for member in more if member.id not in taken)]
    heavier = data.draw(st.sampled_from(some)).id
    more = [Member(m.id, m.weight + (m.id == heavier)) for m in more]
    small, large = Ring(some), Ring(more)
    for node in taken:
        assert small.covers(large, node) == (node != heavier)
        assert large.covers(small, node) == (node == heavier and len(more) == len(some))
        for one, other in ((small, large), (large, small)):
            mine = [domain for domain in real_domains()[:200] if other.owner(domain) == node]
            if one.covers(other, node):
                assert all(one.owner(domain) == node for domain in mine)


@settings(max_examples=25, deadline=None)
@given(members)
def test_order_of_members_does_not_matter(some: list[Member]) -> None:
    one, other = Ring(some), Ring(reversed(some))
    assert one == other
    assert hash(one) == hash(other)
    assert one.checksum == other.checksum
    assert all(one.owner(domain) == other.owner(domain) for domain in real_domains()[:50])


@settings(max_examples=30, deadline=None)
@given(members, members)
def test_checksum_depends_on_ids_and_weights(some: list[Member], others: list[Member]) -> None:
    one, other = Ring(some), Ring(others)
    assert (one.checksum == other.checksum) == (one == other)
    assert (one == other) == (
        {(m.id, m.weight) for m in some} == {(m.id, m.weight) for m in others}
    )


def test_checksum_does_not_depend_on_addresses() -> None:
    assert Ring([Member("a", 1, "redis://one", "here")]) == Ring([Member("a")])


def test_ring_is_the_same_in_every_version() -> None:
    """Nodes of two versions that share a ring would otherwise fetch one domain both."""
    ring = Ring([Member("a"), Member("b", 2), Member("c")])
    assert ring.checksum == "dacf98b731311ce2f334ba693c1a5583"
    some = [
        "example.org",
        "example.co.uk",
        "127.0.0.1",
        "[::1]",
        "localhost",
        "xn--bcher-kva.example",
    ]
    assert "".join(map(ring.owner, some)) == "acbcbb"


@settings(max_examples=25, deadline=None)
@given(members)
def test_claims_round_trip(some: list[Member]) -> None:
    record = MemberRecord(some[0], (Ring(some), Ring(some[:1])))
    assert MemberRecord.loads(some[0].id, record.dumps()).claims == record.claims


@table(
    "name",
    ["", ".", "..", "-a", "a/b", "a:b", "a b", "a\n", "a*", "ä", "a" * 64, "{a}", "a=b", "a\x00"],
)
def test_invalid_id_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match="not a node id") as refused:
        Member(name)
    assert repr(name)[:50] in str(refused.value)


@pytest.mark.parametrize("name", ["a", "0", "node-1", "host.example.org", "A_b", "a" * 63])
def test_host_names_are_ids(name: str) -> None:
    assert Member(name).id == name


@table("weight", [0, -1, WEIGHT_MAX + 1, 1.1, 2.0, nan, "1", None, True, 10**30])
def test_invalid_weight_is_refused_with_its_node(weight: object) -> None:
    with pytest.raises(ValueError, match="weight for node n1"):
        Member("n1", weight)  # type: ignore[arg-type]


@table(
    "value",
    [
        None,
        {},
        "ab",
        5,
        [],
        [1],
        ["ab"],
        [["a"]],
        [["a", 1, 1]],
        [[1, 1]],
        [["a", True]],
        [["a", 1.0]],
        [["a", "1"]],
        [[["a"], 1]],
        [["a", 1], ["a", 2]],
        [["../a", 1]],
        [[None, 1]],
        [["a", 10**400]],
        [[f"n{number}", 1] for number in range(MEMBERS_MAX + 1)],
        [[f"n{number}", WEIGHT_MAX] for number in range(MEMBERS_MAX // WEIGHT_MAX + 1)],
    ],
)
def test_invalid_ring_in_a_record_is_refused(value: object) -> None:
    stored = json.loads(MemberRecord(Member("a")).dumps())
    text = json.dumps({**stored, "claims": [value]}).encode()
    with pytest.raises(BadRecordError, match="the record of a cannot be read") as refused:
        MemberRecord.loads("a", text)
    assert len(str(refused.value)) < 400


def test_duplicate_id_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="two nodes with one id: b"):
        Ring([Member("b"), Member("a"), Member("b", 2)])


def test_share_of_a_non_member_is_an_error() -> None:
    with pytest.raises(KeyError):
        Ring(nodes(2)).share("node-2")

"""Every member sees who is there and what it claims, and none fetches after others may think that
it is gone.

``python -m tests.cluster.test_membership URL CLUSTER NODE`` is a node to be killed: it says its
lease, line by line.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from math import inf
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.cluster.consul.agent import ConsulMembership
from krowlspider.cluster.consul.calls import Agent, Step
from krowlspider.cluster.consul.pending_nodes import NodeInfo, node_info_of
from krowlspider.cluster.membership import (
    ClusterError,
    DuplicateNodeError,
    Membership,
    StaticMembership,
    UnansweredError,
    parse_ring,
    reading,
)
from krowlspider.cluster.ring.census import Census, Entry
from krowlspider.cluster.ring.record import BadRecordError, Record, load_counters
from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.cluster.signals import RedisBoard
from krowlspider.cluster.transport.redis_connection import shown
from tests.cluster.forwarding import LATE
from tests.crawling import ROOT
from tests.test_settings import refusal

from .servers import consul_agent, free_port, relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from krowlspider.cluster.ring.claims import Claims

    from .servers import Server

# The least that Consul takes.
TTL = 10
# Of the TTL, in which the lease of a renewal is good.
LEASE = 0.8 * TTL
A = Member("a", 1, "redis://:secret@127.0.0.1:1/0", "a.example:1")
B = Member("b", 2, "redis://127.0.0.1:2/0", "b.example:2")
RING_A, RING_AB = Ring([A]), Ring([A, B])
_numbers = count()


@pytest.fixture(scope="module")
def consul(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An agent that no test stops; each takes a cluster of its own."""
    with consul_agent(tmp_path_factory.mktemp("consul") / "agent") as agent:
        yield agent


@pytest.fixture
def cluster() -> str:
    return f"test{next(_numbers)}"


def call(agent: Server, method: str, path: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(f"{agent.url}{path}", data=body, method=method)
    with urllib.request.urlopen(request, timeout=5) as answer:
        said: bytes = answer.read()
        return said


def found(agent: Server, cluster: str) -> None:
    """As if the cluster were old: leases begin at once."""
    call(agent, "PUT", f"/v1/kv/krowlspider/{cluster}/founded", b"1")


def is_founded(agent: Server, cluster: str) -> bool:
    keys = call(agent, "GET", f"/v1/kv/krowlspider/{cluster}/?keys")
    return f"krowlspider/{cluster}/founded" in json.loads(keys)


def sessions(agent: Server, cluster: str) -> dict[str, str]:
    """The id of the session of each node."""
    listed = json.loads(call(agent, "GET", f"/v1/kv/krowlspider/{cluster}/nodes/?recurse"))
    return {e["Key"].rpartition("/")[2]: e["Session"] for e in listed if "Session" in e}


def health(agent: Server, cluster: str) -> dict[str, str]:
    """The state of the service of each node."""
    name = f"krowlspider-{cluster}"
    listed = json.loads(call(agent, "GET", f"/v1/health/checks/{name}"))
    return {check["ServiceID"].removeprefix(f"{name}-"): check["Status"] for check in listed}


async def until(condition: Callable[[], bool], within: float) -> float:
    """Wait until something is so; the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + within, f"it is not so after {within} s"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


@asynccontextmanager
async def joined(server: Server, cluster: str, own: Member) -> AsyncIterator[ConsulMembership]:
    """A node that has started; it leaves if the test has not had it do so."""
    agent = Agent(server.url)
    node = ConsulMembership(agent, cluster, own, ttl=TTL)
    try:
        await node.start()
        yield node
    finally:
        await node.leave()
        agent.close()


def good(node: Membership) -> bool:
    return time.monotonic() < node.good_until


# --- The contract, by both


@asynccontextmanager
async def made(kind: str, server: Server, cluster: str) -> AsyncIterator[Membership]:
    if kind == "consul":
        agent = Agent(server.url)
        yield ConsulMembership(agent, cluster, A, ttl=TTL)
        agent.close()
    else:
        yield StaticMembership("a", [A], cluster)


kinds = pytest.mark.parametrize("kind", ["static", "consul"])


@kinds
def test_a_node_that_has_started_sees_itself_and_what_it_publishes_and_counts(
    kind: str, consul: Server, cluster: str
):
    async def main() -> None:
        async with made(kind, consul, cluster) as node:
            await node.start()
            assert node.members["a"].member == A
            assert node.own == A
            epoch = node.epoch
            await node.publish((RING_A, RING_AB))
            assert node.members["a"].claims == (RING_A, RING_AB)
            assert node.epoch >= epoch
            assert reading(node).claims == {"a": (RING_A, RING_AB)}
            await node.beat({"pages": 3, "rate": 1.5})
            assert node.members["a"].counters == {"pages": 3, "rate": 1.5}
            assert node.members["a"].claims == (RING_A, RING_AB)
            assert node.pending_nodes == {"a"}
            await node.leave()

    found(consul, cluster)
    asyncio.run(main())


@kinds
def test_the_lease_is_good_from_start_to_leave(kind: str, consul: Server, cluster: str):
    async def main() -> None:
        async with made(kind, consul, cluster) as node:
            await node.start()
            assert good(node)
            await node.leave()
            assert node.good_until == -inf

    found(consul, cluster)
    asyncio.run(main())


@kinds
def test_the_seed_is_agreed_once_and_a_job_of_another_seed_is_refused(
    kind: str, consul: Server, cluster: str
):
    async def main() -> None:
        async with made(kind, consul, cluster) as node:
            seed = await node.agree_seed(None)
            assert len(seed) == 8
            assert await node.agree_seed(None) == seed
            assert await node.agree_seed(seed) == seed
            with pytest.raises(ClusterError, match="another identity seed"):
                await node.agree_seed(bytes(8))

    asyncio.run(main())


# --- By a setting


def test_a_static_ring_is_read_with_weights_and_passwords():
    assert parse_ring(["a=redis://:pa*ss@h:1/0*3", " b=rediss://h2/0", "c=unix:///s*2"]) == [
        Member("a", 3, "redis://:pa*ss@h:1/0"),
        Member("b", 1, "rediss://h2/0"),
        Member("c", 2, "unix:///s"),
    ]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (["a"], "member 1 is not of the form"),
        (["a=redis://h", "b=http://secret@h"], "member 2 is not of the form"),
        (["a=redis://h", "a=redis://g"], "member a is there twice"),
        (["a/b=redis://h"], "not a node id"),
        (["a=redis://h*0"], "1 to 64"),
    ],
)
def test_a_wrong_static_ring_is_refused_without_its_passwords(parts: list[str], reason: str):
    with pytest.raises(ValueError, match=reason) as caught:
        parse_ring(parts)
    assert "secret" not in str(caught.value)


def test_a_node_that_is_not_in_the_static_ring_is_told_so():
    with pytest.raises(ClusterError, match=r"id z is not in KROWL_STATIC_NODES \(a, b\)"):
        StaticMembership("z", [A, B], "c")


def test_a_member_of_a_static_ring_that_leaves_stays_a_member_and_of_the_crew():
    async def main() -> None:
        node = StaticMembership("a", [A, B], "c")
        await node.publish((RING_AB,), leaving=True)
        await node.dismiss()
        assert reading(node).members == (A, B)
        assert node.pending_nodes == {"a", "b"}

    asyncio.run(main())


def test_all_nodes_of_a_static_ring_have_one_seed_and_one_ring():
    nodes = [StaticMembership(name, [A, B], "c") for name in ("a", "b")]
    assert nodes[0].members == nodes[1].members
    assert {record.claims for record in nodes[0].members.values()} == {(RING_AB,)}
    seeds = {asyncio.run(node.agree_seed(None)) for node in nodes}
    assert len(seeds) == 1
    assert asyncio.run(StaticMembership("a", [A], "d").agree_seed(None)) not in seeds


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("KROWL_CLUSTER", "a/b", "is not 1 to 63 letters"),
        ("KROWL_CONSUL", "127.0.0.1:8500", "is not the http"),
        ("KROWL_CONSUL", "http://u:p@c.test:8500", "is not the http"),
        ("KROWL_CONSUL_TTL", "9", "is out of range: 10 or more seconds"),
        ("KROWL_CONSUL_TOKEN", "a\nb", "must be plain printable ASCII"),
        ("REDIS_URL", "http://h.test/0", "is not the URL of a Redis"),
        ("REDIS_URL", "redis://h.test/0?db=1", "is not the URL of a Redis"),
        ("KROWL_NODE_WEIGHT", "0", "is out of range: 1 or more"),
        ("KROWL_NODE_WEIGHT", "1000000", "is out of range: 1 or more, at most"),
        ("KROWL_DRAIN_TIMEOUT", "-1", "is out of range"),
        ("KROWL_CLUSTER_PAGES", "-1", "is out of range"),
        ("KROWL_NODE_ID", "a b", "is not a node id"),
        ("KROWL_NODE_ID", ".a", "is not a node id"),
    ],
)
def test_a_wrong_setting_of_the_cluster_is_refused_with_its_reason(
    name: str, value: str, reason: str
):
    said = refusal(**{name: value})
    assert said.startswith(name)
    assert reason in said


@pytest.mark.parametrize("ring", ["a=redis://:secret@h,b", "a=http://:secret@h"])
def test_a_ring_that_is_none_is_refused_without_its_passwords(ring: str):
    said = refusal(KROWL_STATIC_NODES=ring)
    assert said.startswith("KROWL_STATIC_NODES is no ring: member ")
    assert "secret" not in said


# --- Records


@given(st.binary() | st.text().map(str.encode))
def test_a_record_or_counters_of_any_bytes_are_read_or_refused(junk: bytes):
    for read in (lambda: Record.loads("a", junk), lambda: load_counters(junk)):
        with suppress(BadRecordError):
            read()


@pytest.mark.parametrize(
    "change",
    [
        {"weight": 0},
        {"weight": True},
        {"weight": "1"},
        {"redis": None},
        {"redis": "http://h:secret/"},
        {"redis": "redis://h/0?socket_timeout=0"},
        {"redis": " "},
        {"redis": "redis://h/0\n"},
        {"claims": None},
        {"claims": [[["a", 1], ["a", 1]]]},
        {"claims": [[["a/b", 1]]]},
        {"claims": [["a"]]},
        {"leaving": 1},
        {"leaving": None},
    ],
)
def test_a_record_with_one_wrong_part_is_refused_by_its_id(change: dict[str, object]):
    said = {**json.loads(Record(A, (RING_AB,)).dumps()), **change}
    with pytest.raises(BadRecordError, match="the record of a cannot be read") as caught:
        Record.loads("a", json.dumps(said).encode())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("leaving", [False, True])
def test_a_record_comes_back_as_it_was(leaving: bool):
    record = Record(B, (RING_A, RING_AB), leaving=leaving)
    assert Record.loads("b", record.dumps().encode()) == record


@pytest.mark.parametrize("version", [0, 2, "1", None, "x" * 10_000])
def test_a_record_of_another_version_is_refused_and_says_so(version: object):
    said = json.loads(Record(A).dumps())
    with pytest.raises(BadRecordError, match=r"record of a .* of version .*, not 1") as caught:
        Record.loads("a", json.dumps({**said, "version": version}).encode())
    assert len(str(caught.value)) < 200
    del said["version"]
    with pytest.raises(BadRecordError, match="the record of a cannot be read: 'version'"):
        Record.loads("a", json.dumps(said).encode())


def test_counters_are_names_and_numbers():
    assert load_counters(b'{"a": 1, "b": 1.5}') == {"a": 1, "b": 1.5}
    endless = b'{"a": ' + b"9" * 400 + b"}"
    for wrong in (
        b'{"a": "1"}',
        b'{"a": true}',
        b"[1]",
        b"[" * 100_000,
        b'{"a": 1e999}',
        b'{"a": NaN}',
        endless,
        b'{"a": -' + b"9" * 5000 + b"}",
    ):
        with pytest.raises(BadRecordError):
            load_counters(wrong)


def test_counters_without_end_leave_those_that_were_there():
    census = census_of_both()
    for value in (b'{"pages": 7}', b'{"pages": ' + b"9" * 400 + b"}"):
        census.count([Entry("krowlspider/x/beats/b", value, "s", 1)])
        assert census.members["b"].counters == {"pages": 7}
    told = {b"a": b'{"pages": ' + b"9" * 400 + b"}", b"b": b'{"pages": 7}'}
    assert RedisBoard._read(told) == {"b": {"pages": 7}}


def test_a_note_of_any_depth_is_read_as_none():
    assert node_info_of(b'{"redis": ' + b"[" * 100_000) == NodeInfo()
    assert node_info_of(b'{"other": ' + b"[" * 100_000) == NodeInfo()


def test_a_redis_url_in_a_log_shows_no_password_and_raises_nothing():
    assert shown("redis://user:secret@h:1/0?a=secret") == "redis://h:1/0"
    for junk in ("redis://[", "redis://:secret@[", "redis://u:secret@[::1", ""):
        assert "secret" not in shown(junk)


# --- Who is live, by readings


def entry(
    member: Member,
    session: str | None = "s",
    claims: tuple[Ring, ...] = (),
    *,
    leaving: bool = False,
) -> Entry:
    record = Record(member, claims, leaving=leaving)
    return Entry(f"nodes/{member.id}", record.dumps().encode(), session, 7)


def census_of_both() -> Census:
    census = Census("a", 10.0)
    assert census.take(1, [entry(A), entry(B, claims=(RING_AB,))], 100.0)
    return census


def test_who_vanished_without_a_goodbye_stays_a_member_for_a_ttl_with_its_claims():
    census = census_of_both()
    assert not census.take(2, [entry(A)], 150.0)
    assert not census.take(3, [entry(A)], 159.9)
    assert census.members["b"] == Record(B, (RING_AB,))
    assert not census.stale(159.9)
    assert census.stale(160.0)
    assert census.take(3, [entry(A)], 160.0)
    assert census.members.keys() == {"a"}
    assert not census.stale(1000.0)


def test_who_comes_back_in_time_is_counted_anew_when_it_vanishes_again():
    census = census_of_both()
    census.take(2, [entry(A)], 150.0)
    census.take(3, [entry(A), entry(B)], 155.0)
    assert not census.stale(165.0)
    census.take(4, [entry(A)], 165.0)
    assert census.members.keys() == {"a", "b"}
    assert not census.stale(174.9)


def test_who_said_goodbye_is_no_member_at_once():
    census = census_of_both()
    assert census.take(2, [entry(A), entry(B, session=None)], 101.0)
    assert census.members.keys() == {"a"}


def test_who_leaves_is_a_member_until_it_is_gone_and_its_leaving_is_a_change():
    census = census_of_both()
    leaving = entry(B, claims=(RING_AB,), leaving=True)
    assert census.take(2, [entry(A), leaving], 101.0)
    assert not census.take(3, [entry(A), leaving], 102.0)
    assert not census.take(4, [entry(A)], 103.0)
    assert census.members["b"] == Record(B, (RING_AB,), leaving=True)


def test_a_goodbye_ends_the_wait_for_who_had_vanished():
    census = census_of_both()
    census.take(2, [entry(A)], 101.0)
    census.take(3, [entry(A), entry(B, session=None)], 102.0)
    assert census.members.keys() == {"a"}


def test_a_live_member_that_cannot_be_read_leaves_the_last_view():
    census = census_of_both()
    before = census.members
    with pytest.raises(BadRecordError):
        census.take(2, [entry(A), Entry("nodes/b", b"{", "s", 8)], 101.0)
    assert census.members == before
    assert census.epoch == 1


def test_junk_that_nobody_holds_is_no_member():
    census = census_of_both()
    census.take(2, [entry(A), entry(B), Entry("nodes/junk", b"{", None, 8)], 101.0)
    assert census.members.keys() == {"a", "b"}


def test_counters_outlast_a_reading_and_are_no_change():
    census = census_of_both()
    census.count(
        [
            Entry("beats/b", b'{"pages": 1}', "s", 9),
            Entry("beats/a", b'{"pages": "x"}', "s", 9),
            Entry("beats/z", b"{}", "s", 9),
        ]
    )
    assert not census.take(2, [entry(A), entry(B, claims=(RING_AB,))], 101.0)
    assert census.members["b"].counters == {"pages": 1}
    assert census.members["a"].counters == {}


# --- By Consul


def test_a_join_and_a_leave_are_seen_by_others_within_two_seconds(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            changes: list[set[str]] = []
            a.on_change = lambda: changes.append(set(a.members))
            async with joined(consul, cluster, B) as b:
                assert b.members.keys() == {"a", "b"}
                await until(lambda: a.members.keys() == {"a", "b"}, 2)
                assert a.members["b"].member == B
                await b.publish((RING_AB,))
                await until(lambda: a.members["b"].claims == (RING_AB,), 2)
            await until(lambda: a.members.keys() == {"a"}, 2)
            assert {"a", "b"} in changes
            assert changes[-1] == {"a"}

    found(consul, cluster)
    asyncio.run(main())


def test_the_service_is_passing_shows_no_password_and_goes_with_the_node(
    consul: Server, cluster: str
):
    async def main() -> None:
        async with joined(consul, cluster, A):
            name = f"krowlspider-{cluster}"
            listed = json.loads(call(consul, "GET", f"/v1/health/service/{name}?passing"))
            assert [each["Service"]["Meta"] for each in listed] == [
                {"weight": "1", "redis": "redis://127.0.0.1:1/0", "address": "a.example:1"}
            ]
        assert json.loads(call(consul, "GET", f"/v1/health/service/{name}")) == []

    asyncio.run(main())


def test_of_two_that_publish_at_once_one_at_least_sees_the_others_claims(
    consul: Server, cluster: str
):
    rings = [Ring([A, Member(f"x{number}")]) for number in range(30)]

    async def main() -> None:
        async with joined(consul, cluster, A) as a, joined(consul, cluster, B) as b:
            for ring in rings:
                seen = {}

                async def publish(
                    node: ConsulMembership, other: str, seen: dict[str, bool], ring: Ring
                ) -> None:
                    await node.publish((ring,))
                    seen[other] = node.members[other].claims == (ring,)

                await asyncio.gather(publish(a, "b", seen, ring), publish(b, "a", seen, ring))
                assert any(seen.values())

    asyncio.run(main())


def test_who_leaves_is_in_no_ring_and_its_claims_are_read_until_it_has_gone(
    consul: Server, cluster: str
):
    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            async with joined(consul, cluster, B) as b:
                await b.publish((RING_AB,))
                await until(lambda: a.members.get("b") == Record(B, (RING_AB,)), 2)
                await b.publish((RING_AB,), leaving=True)
                for node in (a, b):
                    await until(lambda node=node: reading(node).members == (A,), 2)  # type: ignore[misc]
                    assert reading(node).claims["b"] == (RING_AB,)
            await until(lambda: reading(a).claims.keys() == {"a"}, 2)

    asyncio.run(main())


def test_a_node_that_is_forgotten_while_it_leaves_is_still_leaving_when_it_is_back(
    consul: Server, cluster: str
):
    async def main() -> None:
        async with joined(consul, cluster, A) as a, joined(consul, cluster, B) as b:
            await b.publish((RING_AB,), leaving=True)
            lost = sessions(consul, cluster)["b"]
            call(consul, "PUT", f"/v1/session/destroy/{lost}")
            await until(lambda: not good(b), 5)
            await until(lambda: good(b), 5)
            assert reading(a).members == reading(b).members == (A,)
            assert reading(a).claims["b"] == (RING_AB,)

    found(consul, cluster)
    asyncio.run(main())


def pending_nodes_in(agent: Server, cluster: str) -> set[str]:
    keys = json.loads(call(agent, "GET", f"/v1/kv/krowlspider/{cluster}/?keys"))
    return {key.rpartition("/")[2] for key in keys if "/crew/" in key}


def test_a_member_is_of_the_crew_until_it_is_dismissed_and_others_hear_it_with_their_beat(
    consul: Server, cluster: str
):
    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            assert a.pending_nodes == {"a"}
            async with joined(consul, cluster, B) as b:
                assert pending_nodes_in(consul, cluster) == {"a", "b"}
                await a.beat({})
                assert a.pending_nodes == {"a", "b"}
            # It has gone without being dismissed, as after a crash.
            await a.beat({})
            assert a.pending_nodes == {"a", "b"}
            async with joined(consul, cluster, B) as b:
                await b.dismiss()
                await a.beat({})
                assert a.pending_nodes == {"a"}
        assert pending_nodes_in(consul, cluster) == {"a"}

    asyncio.run(main())


def test_the_note_of_the_crew_says_where_a_node_is_to_be_found(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A):
            note = node_info_of(call(consul, "GET", f"/v1/kv/krowlspider/{cluster}/crew/a?raw"))
            assert (note.redis, note.address) == (A.redis, A.address)
            assert abs(note.time - time.time()) < 600

    asyncio.run(main())


@given(st.binary() | st.text().map(str.encode))
def test_a_note_of_any_bytes_is_read_or_empty(junk: bytes):
    node_info_of(junk)


def test_who_was_dismissed_is_not_of_the_crew_when_it_registers_again(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            await a.dismiss()
            lost = sessions(consul, cluster)["a"]
            call(consul, "PUT", f"/v1/session/destroy/{lost}")
            await until(lambda: not good(a), 5)
            await until(lambda: good(a), 5)
            assert pending_nodes_in(consul, cluster) == set()

    found(consul, cluster)
    asyncio.run(main())


def test_who_has_no_lease_cannot_be_dismissed(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            await a.leave()
            with pytest.raises(UnansweredError, match="node a has no lease"):
                await a.dismiss()
        assert pending_nodes_in(consul, cluster) == {"a"}

    asyncio.run(main())


def test_a_beat_reads_the_words_of_all_and_the_crew_at_one_moment(consul: Server, cluster: str):
    """A node that is dismissed after its last word is never seen with an older word and without its
    place in the crew."""

    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            listening = True

            async def listen() -> None:
                while listening:
                    await a.beat({})
                    if "b" in a.members and "b" not in a.pending_nodes:
                        assert a.members["b"].counters.get("last") in {None, 1}

            task = asyncio.create_task(listen())
            for _ in range(5):
                async with joined(consul, cluster, B) as b:
                    await until(lambda: "b" in a.members, 5)
                    for last in (0, 0, 0, 1):
                        await b.beat({"last": last})
                    await b.dismiss()
                await until(lambda: "b" not in a.members, 5)
            listening = False
            await task

    asyncio.run(main())


class LateAgent(Agent):
    """Its transactions get no answer while ``holding``, and are done when the test says so."""

    holding = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.held: list[tuple[Step, ...]] = []

    async def change(self, *steps: Step) -> bool:
        if self.holding:
            self.held.append(steps)
            raise UnansweredError("no answer")
        return await super().change(*steps)


@pytest.mark.parametrize("later", [(RING_A, RING_AB), (RING_AB,)])
def test_a_publish_that_was_given_up_is_not_stored_after_a_later_one(
    consul: Server, cluster: str, later: Claims
):
    async def main() -> None:
        agent = LateAgent(consul.url)
        a = ConsulMembership(agent, cluster, A, ttl=TTL)
        await a.start()
        await a.publish((RING_A, RING_AB))
        agent.holding = True
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(a.publish((RING_A,)), 0.2)
        agent.holding = False
        await a.publish(later)
        assert [await agent.change(*steps) for steps in agent.held] == [False]
        stored = await agent.get(f"krowlspider/{cluster}/nodes/a")
        assert stored
        assert Record.loads("a", stored.value).claims == later
        await a.leave()
        agent.close()

    asyncio.run(main())


def test_a_second_process_of_a_live_node_is_refused_by_id_and_address(consul: Server, cluster: str):
    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            agent = Agent(consul.url)
            second = asyncio.create_task(ConsulMembership(agent, cluster, A, ttl=TTL).start())
            while not second.done():
                await a.beat({"pages": 1})
                await asyncio.sleep(0.2)
            with pytest.raises(DuplicateNodeError, match=r"id a is in use .* at a\.example:1"):
                await second
            agent.close()
            assert good(a)
            assert a.members.keys() == {"a"}

    found(consul, cluster)
    asyncio.run(asyncio.wait_for(main(), 10))


def test_a_node_that_left_may_come_back_at_once(consul: Server, cluster: str):
    async def main() -> None:
        for _ in range(2):
            async with joined(consul, cluster, A) as a:
                assert good(a)

    found(consul, cluster)
    asyncio.run(asyncio.wait_for(main(), 8))


def test_a_node_that_is_forgotten_stops_keeps_its_ring_and_registers_again_with_its_claims(
    consul: Server, cluster: str
):
    async def main() -> None:
        async with joined(consul, cluster, A) as a, joined(consul, cluster, B) as b:
            await a.publish((RING_AB,))
            await until(lambda: b.members["a"].claims == (RING_AB,), 2)
            leases: list[bool] = []
            a.on_change = lambda: leases.append(good(a))
            lost = sessions(consul, cluster)["a"]
            call(consul, "PUT", f"/v1/session/destroy/{lost}")
            await until(lambda: not good(a), 2)
            assert a.members.keys() == {"a", "b"}
            await until(lambda: good(a), 5)
            assert leases[0] is False
            assert sessions(consul, cluster)["a"] != lost
            await until(lambda: b.members["a"].claims == (RING_AB,), 2)

    found(consul, cluster)
    asyncio.run(main())


def test_a_member_that_cannot_be_read_keeps_others_from_joining_and_leaves_the_last_view(
    consul: Server, cluster: str
):
    async def main() -> None:
        async with joined(consul, cluster, A) as a, joined(consul, cluster, B):
            await until(lambda: len(a.members) == 2, 2)
            call(consul, "PUT", f"/v1/kv/krowlspider/{cluster}/nodes/b", b"{")
            with pytest.raises(ClusterError, match="the record of b cannot be read"):
                async with joined(consul, cluster, Member("c")):
                    pass
            assert good(a)
            assert a.members.keys() == {"a", "b"}
            assert sessions(consul, cluster).keys() == {"a", "b"}

    found(consul, cluster)
    asyncio.run(main())


def test_no_agent_is_told_by_its_url_within_seconds_without_the_token():
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"

    async def main() -> None:
        agent = Agent(url, "the-token")
        with pytest.raises(ClusterError, match=url) as caught:
            await ConsulMembership(agent, "c", A, ttl=TTL).start()
        assert "the-token" not in str(caught.value)
        with pytest.raises(ClusterError, match=url):
            await ConsulMembership(agent, "c", A, ttl=TTL).agree_seed(None)
        agent.close()

    asyncio.run(asyncio.wait_for(main(), 10))


def test_a_token_is_sent_with_every_call_transactions_too(tmp_path: Path, cluster: str):
    async def starts(node: ConsulMembership) -> bool:
        try:
            await node.start()
        except ClusterError:
            return False
        return True

    acl = {
        "acl": {
            "enabled": True,
            "default_policy": "deny",
            "tokens": {"master": "the-token", "agent": "the-token"},
        },
        "primary_datacenter": "dc1",
    }

    async def main() -> None:
        with consul_agent(tmp_path / "agent", **acl) as server:
            agent = Agent(server.url, "the-token")
            node = ConsulMembership(agent, cluster, A, ttl=TTL)
            # The agent makes its tokens after it has begun to answer.
            for _ in range(100):
                if await starts(node):
                    break
                await asyncio.sleep(0.1)
            await node.publish((RING_A,))
            await node.leave()
            agent.close()
            nobody = Agent(server.url)
            with pytest.raises(ClusterError, match=r"cannot be joined: .*Permission denied"):
                await ConsulMembership(nobody, cluster, A, ttl=TTL).start()
            nobody.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_an_agent_that_is_killed_and_comes_back_with_its_data_changes_nothing(
    tmp_path: Path, cluster: str
):
    async def main() -> None:
        with consul_agent(tmp_path / "agent") as server:
            found(server, cluster)
            async with joined(server, cluster, A) as a, joined(server, cluster, B) as b:
                await until(lambda: len(a.members) == 2, 2)
                before = sessions(server, cluster)
                server.kill()
                server.start()
                assert good(a)
                assert good(b)
                lease = a.good_until
                await until(lambda: a.good_until > lease, TTL)
                assert sessions(server, cluster) == before
                assert a.members.keys() == b.members.keys() == {"a", "b"}

    asyncio.run(main())


@contextmanager
def lag() -> Iterator[list[float]]:
    """The longest time in seconds that the loop was late."""
    longest = [0.0]

    async def measure() -> None:
        while True:
            due = time.monotonic() + 0.01
            await asyncio.sleep(0.01)
            longest[0] = max(longest[0], time.monotonic() - due)

    task = asyncio.get_running_loop().create_task(measure())
    yield longest
    task.cancel()


@pytest.mark.slow
def test_an_agent_that_is_frozen_for_longer_than_a_ttl_ends_every_lease_and_no_membership(
    tmp_path: Path, cluster: str
):
    async def main() -> None:
        with consul_agent(tmp_path / "agent") as server:
            found(server, cluster)
            async with joined(server, cluster, A) as a, joined(server, cluster, B) as b:
                await until(lambda: len(a.members) == 2, 2)
                with lag() as longest, server.frozen():
                    frozen = time.monotonic()
                    await until(lambda: not good(a) and not good(b), LEASE + 1)
                    while time.monotonic() < frozen + 1.2 * TTL:
                        assert a.members.keys() == b.members.keys() == {"a", "b"}
                        await asyncio.sleep(0.05)
                    # Beats and stores wait, or do nothing.
                    await a.beat({"pages": 1})
                    with pytest.raises(UnansweredError):
                        await Agent(server.url, timeout=0.2).get("any")
                await until(lambda: good(a) and good(b), 10)
                assert a.members.keys() == b.members.keys() == {"a", "b"}
                assert longest[0] < LATE

    asyncio.run(main())


@pytest.mark.slow
def test_a_register_that_lost_its_data_gives_no_smaller_ring_and_no_lease_for_a_ttl(
    tmp_path: Path, cluster: str
):
    async def main() -> None:
        with consul_agent(tmp_path / "agent") as server:
            found(server, cluster)
            async with joined(server, cluster, A) as a, joined(server, cluster, B) as b:
                await until(lambda: len(a.members) == 2, 2)
                await a.publish((RING_AB,))
                # One that died with work on its disk is remembered by the others.
                call(server, "PUT", f"/v1/kv/krowlspider/{cluster}/crew/z", b"{}")
                await a.beat({})
                server.kill()
                server.wipe()
                server.start()
                back = time.monotonic()
                await until(lambda: not good(a) and not good(b), LEASE)
                while time.monotonic() < back + TTL:
                    assert a.members.keys() == b.members.keys() == {"a", "b"}
                    assert not good(a)
                    assert not good(b)
                    await asyncio.sleep(0.05)
                await until(lambda: good(a) and good(b), TTL)
                assert sessions(server, cluster).keys() == {"a", "b"}
                assert b.members["a"].claims == (RING_AB,)
                assert pending_nodes_in(server, cluster) == {"a", "b", "z"}
                # Who comes once that has been noted, within a second, need not wait.
                await until(lambda: is_founded(server, cluster), 3)
                async with joined(server, cluster, Member("c")) as c:
                    assert good(c)

    asyncio.run(main())


@pytest.mark.slow
def test_a_node_cut_off_has_stopped_before_another_sees_it_gone_and_comes_back(
    consul: Server, cluster: str, tmp_path: Path
):
    async def main() -> None:
        with relay(consul, tmp_path / "wire") as wire:
            async with joined(consul, cluster, A) as a, joined(wire, cluster, B) as b:
                await until(lambda: len(a.members) == 2, 2)
                with wire.frozen():
                    await until(lambda: "b" not in a.members, 4 * TTL)
                    gone = time.monotonic()
                    assert b.good_until < gone - TTL
                    assert good(a)
                    assert b.members.keys() == {"a", "b"}
                await until(lambda: good(b) and "b" in a.members, 15)

    found(consul, cluster)
    asyncio.run(main())


@contextmanager
def child(server: Server, cluster: str, node: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.cluster.test_membership", server.url, cluster, node]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


@pytest.mark.slow
def test_a_node_killed_is_gone_after_its_lease_and_within_three_ttls_its_service_critical_after_one(
    consul: Server, cluster: str
):
    both = {"a": "passing", "b": "critical"}

    async def main() -> None:
        async with joined(consul, cluster, A) as a:
            with child(consul, cluster, "b") as process:
                assert process.stdout
                assert process.stdout.readline().startswith("good until")
                await until(lambda: "b" in a.members, 2)
                process.kill()
                killed = time.monotonic()
                lease = [float(line.split()[-1]) for line in process.stdout] or [killed]
            # It was passing for a TTL from its last renewal on; the service of one that lives is
            # renewed.
            assert await until(lambda: health(consul, cluster) == both, TTL + 1) > TTL / 2
            await until(lambda: "b" not in a.members, 2 * TTL + 4)
            assert health(consul, cluster) == both
            assert max(lease) < time.monotonic() - TTL

    found(consul, cluster)
    asyncio.run(main())


@pytest.mark.slow
def test_a_node_killed_and_started_again_waits_for_its_own_old_lease(consul: Server, cluster: str):
    async def main() -> None:
        with child(consul, cluster, "a") as process:
            assert process.stdout
            assert process.stdout.readline().startswith("good until")
        killed = time.monotonic()
        async with joined(consul, cluster, A) as a:
            assert good(a)
            assert killed + LEASE < time.monotonic() < killed + 2 * TTL + 5

    found(consul, cluster)
    asyncio.run(main())


async def _be_node(url: str, cluster: str, node: str) -> None:
    membership = ConsulMembership(Agent(url), cluster, Member(node), ttl=TTL)
    await membership.start()
    while True:
        print("good until", membership.good_until, flush=True)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(_be_node(*sys.argv[1:]))

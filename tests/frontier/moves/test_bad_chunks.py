"""Chunks that no node would send are refused, or do no harm."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from krowlspider.frontier.hosts.host import Health
from krowlspider.frontier.moves.chunks import BadChunk, decode_chunk
from krowlspider.frontier.store.store import records
from krowlspider.politeness.delay import BACKOFF_MAX, PARKED
from krowlspider.politeness.robots import RobotsRecord, Ruling
from krowlspider.urls.robots_groups import BODY_MAX
from tests.frontier.conftest import LIMITS, RULE, KeptMemoryStore, World
from tests.frontier.moves.hosts import HOST_NAME, content, do, url, urls


def take(world: World, said: object) -> int:
    """Take a chunk that another node has sent."""
    return world.arrivals.take(decode_chunk(json.dumps(said).encode()))


def good(**changes: object) -> dict[str, Any]:
    record = {
        "state": "active",
        "due": 1.0,
        "ready": None,
        "pace": [0.5, 0.0, 0, 0, 0],
        "done": 1,
        "dropped": 0,
    }
    said: dict[str, Any] = {"host": HOST_NAME, "transfer": "00" * 8, "number": 0, "last": True}
    return {**said, "record": record, "entries": [{"url": url(0)}], **changes}


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        "x",
        {},
        good(host="A.test"),
        good(host="a.test\0b"),
        good(host="a.test/b"),
        good(host=5),
        good(transfer="00"),
        good(seeds=[["http://b.test/", ""]]),
        good(seeds=[[url(0), "{"]]),
        good(seeds=[[url(0) * 5000, ""]]),
        good(transfer="zz" * 8),
        good(number=-1),
        good(number=True),
        good(last=1),
        good(record={}),
        good(record={**good()["record"], "state": "asleep"}),
        good(record={**good()["record"], "due": float("nan")}),
        good(record={**good()["record"], "due": "soon"}),
        good(record={**good()["record"], "pace": [1, 2]}),
        good(record={**good()["record"], "done": 1 << 40}),
        good(entries=[{"url": "http://b.test/"}]),
        good(entries=[{"url": "ftp://a.test/"}]),
        good(entries=[{"url": url(0), "surprise": 1}]),
        good(entries=[{"url": url(0), "wait": -1}]),
        good(entries=[{"url": url(0), "strikes": 256}]),
        good(entries=[{"url": url(0) + "x" * 3000}]),
        good(entries=[{"url": url(0), "request": "UA=="}]),
        good(entries=["x"]),
        good(entries=5),
        good(done="AAAA"),
        good(done=5),
        good(robots=[["http://b.test", ""]]),
        good(robots=[[f"http://{HOST_NAME}", "AAAA"]]),
        good(robots=[[f"http://{HOST_NAME}", b64encode(b"[" * 100_000).decode()]]),
        good(record={**good()["record"], "due": 10**400}),
        good(entries=[{"url": url(0), "wait": 10**400}]),
    ],
)
def test_a_bad_chunk_is_refused_and_changes_nothing(world: World, said: object) -> None:
    before = content(world)
    with pytest.raises(BadChunk):
        take(world, said)
    assert content(world) == before
    assert take(world, good()) == 1
    assert world.queued(HOST_NAME) == [url(0)]


def test_a_robots_txt_that_expands_too_much_is_refused(world: World) -> None:
    bomb = RobotsRecord(Ruling.RULES.value, 0.0, 1.0, 200, b"#" * (BODY_MAX + 1)).encode()
    said = good(robots=[[f"http://{HOST_NAME}", b64encode(bomb).decode()]])
    assert take(world, said) == 1
    bomb = bomb.partition(b"\n")[0] + b"\n" + zlib.compress(b"#" * (BODY_MAX + 2))
    said = good(robots=[[f"http://{HOST_NAME}", b64encode(bomb).decode()]], transfer="11" * 8)
    with pytest.raises(BadChunk, match="too long"):
        take(world, said)


def test_counts_too_large_for_a_record_are_cut(
    world: World,
) -> None:
    """A host with pages done here: a record that cannot be written would stop each start."""
    world.add(url(9))
    do(world, url(9))
    most = {**good()["record"], "done": 0xFFFFFFFF, "dropped": 0xFFFFFFFF}
    most["pace"] = [0.5, 0.0, 255, 255, 0xFFFFFFFF]
    for transfer in ("00", "11"):
        assert take(world, good(record=most, transfer=transfer * 8)) == 1
    host = world.frontier.schedule.cache.get(HOST_NAME)
    assert (host.queue.done, host.queue.dropped) == (0x7FFFFFFF, 0x7FFFFFFF)
    world.clocks.pass_(BACKOFF_MAX)
    lease = world.pop()
    assert lease is not None
    assert lease.entry.url == url(0)
    world.frontier.schedule.release(lease.host, RULE.after_answer(lease.host.rate, 0.1))
    world.frontier.acknowledge(lease)
    world.commit()
    world.crash()
    assert world.frontier.schedule.cache.get(HOST_NAME).queue.done == 0x80000000


NUMBERS = st.one_of(
    st.integers(-2, 300),
    st.sampled_from([0xFFFF, 0xFFFFFFFF, 1 << 32, 1 << 63, 1 << 64, 10**400, -(10**400)]),
    st.floats(),
)


JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


HOSTS = st.sampled_from(
    [HOST_NAME, f"{HOST_NAME}:8080", "[::1]", "1.2.3.4", "com", ".", "a.test.", "[", "", "x" * 300]
)


URLS = st.one_of(
    st.sampled_from([url(0), url(1), url(9), "https://a.test/", "http://[::1]/", "http://a.test"]),
    st.text(max_size=20).map(lambda text: url(0) + text),
)


RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from([state.name.lower() for state in Health]) | JUNK,
        "due": NUMBERS | JUNK,
        "ready": st.none() | NUMBERS | JUNK,
        "pace": st.lists(NUMBERS, min_size=5, max_size=5) | JUNK,
        "done": NUMBERS | JUNK,
        "dropped": NUMBERS | JUNK,
    },
).map(lambda said: {**good()["record"], **said})


ENTRIES = st.fixed_dictionaries(
    {"url": URLS | JUNK},
    optional={
        "wait": NUMBERS | JUNK,
        "free": st.booleans() | JUNK,
        "state": st.sampled_from(["queued", "poison"]) | JUNK,
        "priority": NUMBERS | JUNK,
        "bare": st.booleans() | JUNK,
        "chain": st.lists(URLS, max_size=3) | JUNK,
        "via": URLS | JUNK,
        "hop": st.sampled_from(["", "L", "M"]) | JUNK,
        "request": st.binary(max_size=9).map(lambda data: b64encode(data).decode()) | JUNK,
        **dict.fromkeys(("depth", "redirects", "retries", "throttling"), NUMBERS | JUNK),
        "strikes": NUMBERS | JUNK,
    },
)


HEADS = st.tuples(
    st.sampled_from([1, 2, 3, 4]) | JUNK,
    st.sampled_from([ruling.value for ruling in Ruling]) | JUNK,
    NUMBERS | JUNK,
    NUMBERS | JUNK,
    NUMBERS | JUNK,
).map(lambda head: json.dumps(head).encode())


ROBOTS = st.tuples(
    HEADS | st.binary(max_size=20),
    (st.binary(max_size=40) | st.just(b"User-agent: *\nCrawl-delay: 1e308\n")).map(zlib.compress)
    | st.binary(max_size=9),
).map(lambda parts: b64encode(b"\n".join(parts)).decode())


CHUNKS = st.fixed_dictionaries(
    {},
    optional={
        "host": HOSTS | JUNK,
        "transfer": st.binary(min_size=8, max_size=8).map(bytes.hex) | JUNK,
        "number": NUMBERS | JUNK,
        "last": st.booleans() | JUNK,
        "record": RECORDS | JUNK,
        "robots": st.lists(
            st.tuples(st.sampled_from([f"http://{HOST_NAME}", f"https://{HOST_NAME}"]), ROBOTS)
        )
        | JUNK,
        "entries": st.lists(ENTRIES, max_size=4) | JUNK,
        "done": st.binary(max_size=24).map(lambda data: b64encode(data).decode()) | JUNK,
    },
).map(lambda said: good(**said))


def answer_for_an_hour(world: World) -> None:
    """Fetch due pages for an hour, some with an answer and some without, and commit."""
    for turn in range(12):
        world.clocks.pass_(300)
        if (lease := world.pop()) is None:
            continue
        rate = lease.host.rate
        wait = RULE.after_error(rate, 0.5) if turn % 3 else RULE.after_answer(rate, 0.1)
        world.frontier.schedule.release(lease.host, wait)
        if turn % 2:
            due = world.frontier.now() + 10
            world.frontier.queues.replace(lease, structs.replace(lease.entry, retries=1, due=due))
        else:
            world.frontier.acknowledge(lease)
        world.commit()


@settings(max_examples=60, deadline=None)
@given(st.lists(CHUNKS, min_size=1, max_size=3), st.sampled_from(["new", "queued", "done", "off"]))
def test_no_chunk_crashes_the_process_now_or_later(found: list[Any], state: str) -> None:
    """Any content, for a host that is new, has URLs queued or done, or is deferred."""
    kept = KeptMemoryStore()
    world = World(lambda: kept, limits=replace(LIMITS, domain_budget=100))
    if state != "new":
        world.add(*urls(7, 8))
        host = world.frontier.schedule.pop()
        assert host is not None
        if state == "off":
            world.frontier.schedule.deferral.defer(host, 60.0)
        else:
            world.frontier.schedule.give_back(host)
    if state == "done":
        do(world, *urls(7, 8))
    for said in found:
        with suppress(BadChunk):
            take(world, said)
        for name in (f"http://{HOST_NAME}", f"https://{HOST_NAME}"):
            world.gate.verdict(name, name + "/")
        world.commit()
    world.crash()
    answer_for_an_hour(world)
    world.restart()
    there = World(KeptMemoryStore, limits=replace(LIMITS, domain_budget=100), node="there")
    for name in [name for name, _ in records(world.store)]:
        world.hand_over(name, there)


def test_a_wait_that_is_too_long_is_cut(world: World) -> None:
    record = {**good()["record"], "due": 1e300}
    take(world, good(record=record))
    world.clocks.pass_(2 * PARKED + 1)
    assert world.fetch() == url(0)

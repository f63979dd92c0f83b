from __future__ import annotations

import asyncio
import time

import pytest

from krowlspider.fetch.errors import (
    FetchError,
    LocalExhausted,
    NameFailed,
    NameMalformed,
    NameNotFound,
    NameServerFailed,
    NameServersDown,
    NameWithoutAddress,
)
from krowlspider.fetch.guard import parse_hosts
from krowlspider.fetch.nameservers import ADDRESSES_KEPT, NameServers
from krowlspider.fetch.resolver import HOSTS_FILE, Resolver
from tests.fetch.dns.resolving import Clock, resolver
from tests.fetch.nameserver import (
    FORMERR,
    NOTIMP,
    NS,
    NXDOMAIN,
    REFUSED,
    SERVFAIL,
    TRUNCATED,
    A,
    closed_port,
    nameserver,
    no_sockets_left,
)


async def failure(made: Resolver, name: str) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await made.resolve(name)
    return caught.value


async def test_a_name_is_asked_once_and_then_remembered() -> None:
    async with nameserver({"a.test": (0, ["1.2.3.4", "1.2.3.5"])}) as zone:
        async with resolver(zone) as made:
            assert await made.resolve("a.test") == ["1.2.3.4", "1.2.3.5"]
            assert await made.resolve("A.Test.") == ["1.2.3.4", "1.2.3.5"]
        assert zone.asked == [("a.test", A)]


@pytest.mark.parametrize("code", [SERVFAIL, REFUSED, NOTIMP, FORMERR])
async def test_ipv6_answers_where_the_question_for_ipv4_fails(code: int) -> None:
    names = {"six.test": (300, ["2001:db8::6"]), "none.test": (300, [])}
    async with nameserver({**names}) as zone, resolver(zone) as made:
        zone.no_a = code
        assert await made.resolve("six.test") == ["2001:db8::6"]
        # No address of one family does not show that there is none of the other.
        assert type(await failure(made, "none.test")) is NameServerFailed
        assert made.stats.failures == {NameServerFailed.kind: 1}
        zone.no_aaaa = SERVFAIL
        assert type(await failure(made, "both.test")) is NameServerFailed


async def test_local_names_never_reach_the_dns() -> None:
    async with nameserver({}) as zone, resolver(zone) as made:
        assert await made.resolve("fixed.test") == ["10.0.0.9"]
        assert await made.resolve("localhost") == ["127.0.0.1", "::1"]
        assert await made.resolve("[::1]") == ["::1"]
        assert await made.resolve("192.0.2.1") == ["192.0.2.1"]
        assert zone.asked == []


async def test_names_of_the_hosts_file_are_answered_from_it() -> None:
    names = parse_hosts(HOSTS_FILE.read_text())
    async with nameserver({}) as zone, resolver(zone) as made:
        for name, addresses in names.items():
            if "localhost" not in name:
                assert sorted(await made.resolve(name)) == sorted(addresses)
        assert zone.asked == []


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (NXDOMAIN, NameNotFound),
        ((60, []), NameWithoutAddress),
        (SERVFAIL, NameServerFailed),
        (REFUSED, NameServerFailed),
        (NOTIMP, NameServerFailed),
        (FORMERR, NameServerFailed),
    ],
)
async def test_only_nxdomain_means_that_a_name_does_not_exist(
    entry: tuple[int, list[str]] | int, expected: type[NameFailed]
) -> None:
    async with nameserver({"a.test": entry}) as zone, resolver(zone) as made:
        assert type(await failure(made, "a.test")) is expected
        assert made.stats.failures == {expected.kind: 1}


@pytest.mark.parametrize("name", ["a..b", "x" * 64 + ".test", "x." * 200])
async def test_malformed_name_is_never_asked(name: str) -> None:
    async with nameserver({}) as zone, resolver(zone) as made:
        assert type(await failure(made, name)) is NameMalformed
        assert zone.asked == []


async def test_nxdomain_for_aaaa_after_a_means_no_address() -> None:
    async with nameserver({"a.test": (60, [])}) as zone, resolver(zone) as made:
        zone.no_aaaa = NXDOMAIN
        assert type(await failure(made, "a.test")) is NameWithoutAddress


@pytest.mark.parametrize(("entry", "others"), [(TRUNCATED, 0), (TRUNCATED, 1), (SERVFAIL, 1)])
async def test_servers_that_answer_other_names_are_not_down(entry: int, others: int) -> None:
    """Nothing listens at the server's port of TCP, nor at the ports of other servers."""
    names = {"a.test": (60, ["1.2.3.4"]), "cut.test": entry}
    async with nameserver({**names}) as zone:
        ports = [zone.port, *(closed_port() for _ in range(others))]
        async with resolver(ports) as made:
            assert type(await failure(made, "cut.test")) is NameServerFailed
            assert await made.resolve("a.test") == ["1.2.3.4"]


@pytest.mark.parametrize("code", [0, NXDOMAIN, SERVFAIL, REFUSED, TRUNCATED])
async def test_any_answer_shows_that_a_server_is_up(code: int) -> None:
    names = {"cut.test": TRUNCATED, "": code or (60, [])}
    async with nameserver({**names}) as zone, resolver(zone) as made:
        assert type(await failure(made, "cut.test")) is NameServerFailed


async def test_server_that_answered_before_and_stops_is_down() -> None:
    names: dict[str, tuple[int, list[str]] | int | None]
    names = {"cut.test": TRUNCATED, "": (3600, [])}
    async with nameserver(names) as zone:
        servers = NameServers([f"127.0.0.1:{zone.port}"], 3)
        with pytest.raises(NameServerFailed):
            await servers.ask("cut.test", "A")
    for name in ("cut.test", "a.test"):
        with pytest.raises(NameServersDown):
            await servers.ask(name, "A")
    await servers.close()


async def test_failures_at_once_share_one_check() -> None:
    names = {f"cut{number}.test": TRUNCATED for number in range(20)}
    async with nameserver({**names}) as zone, resolver(zone) as made:
        failures = await asyncio.gather(*(failure(made, name) for name in names))
        assert {type(each) for each in failures} == {NameServerFailed}
        assert 1 <= zone.asked.count(("", NS)) < len(names)


async def test_second_server_is_asked_when_the_first_is_down() -> None:
    async with (
        nameserver({"a.test": (60, ["1.2.3.4"])}) as zone,
        resolver([closed_port(), zone.port]) as made,
    ):
        assert await made.resolve("a.test") == ["1.2.3.4"]
        assert type(await failure(made, "b.test")) is NameNotFound


@pytest.mark.parametrize("entry", [None, SERVFAIL, REFUSED])
async def test_second_server_is_asked_when_the_first_fails(entry: int | None) -> None:
    async with (
        nameserver({"a.test": entry}) as first,
        nameserver({"a.test": (60, ["1.2.3.4"])}) as second,
        resolver([first.port, second.port], timeout=0.9) as made,
    ):
        assert await made.resolve("a.test") == ["1.2.3.4"]
        assert first.asked[:1] == second.asked == [("a.test", A)]


@pytest.mark.parametrize("entry", [NXDOMAIN, (60, [])])
async def test_settled_answer_is_not_asked_of_another_server(
    entry: tuple[int, list[str]] | int,
) -> None:
    async with (
        nameserver({"a.test": entry}) as first,
        nameserver({"a.test": (60, ["1.2.3.4"])}) as second,
        resolver([first.port, second.port]) as made,
    ):
        await failure(made, "a.test")
        assert second.asked == []


async def test_lack_of_sockets_is_local_and_not_cached() -> None:
    async with nameserver({"a.test": (60, ["1.2.3.4"])}) as zone, resolver(zone) as made:
        with no_sockets_left():
            assert type(await failure(made, "a.test")) is LocalExhausted
        assert await made.resolve("a.test") == ["1.2.3.4"]


@pytest.mark.parametrize(("ttl", "kept"), [(0, 60), (300, 300), (100_000, 3600)])
async def test_answer_is_kept_for_its_ttl_within_bounds(ttl: int, kept: int) -> None:
    clock = Clock()
    async with nameserver({"a.test": (ttl, ["1.2.3.4"])}) as zone, resolver(zone, clock) as made:
        await made.resolve("a.test")
        clock.now += kept - 1
        # c-ares has a cache of its own, in real time, which goes with its channel.
        await made.close()
        await made.resolve("a.test")
        assert len(zone.asked) == 1
        clock.now += 1
        await made.close()
        zone.names["a.test"] = NXDOMAIN
        assert type(await failure(made, "a.test")) is NameNotFound


async def test_each_dns_answer_is_reported_once_with_its_ttl() -> None:
    """Answers of the cache and failures are not reported."""
    answers: list[tuple[str, list[tuple[str, float]]]] = []

    def note(name: str, records: list[tuple[str, float]]) -> None:
        answers.append((name, records))

    names = {"a.test": (300, ["1.2.3.4", "1.2.3.5"]), "gone.test": NXDOMAIN}
    async with nameserver(names) as zone, resolver(zone, on_answer=note) as made:
        await made.resolve("a.test")
        await made.resolve("a.test")
        await failure(made, "gone.test")
    assert answers == [("a.test", [("1.2.3.4", 300), ("1.2.3.5", 300)])]


@pytest.mark.parametrize(
    ("entry", "kept"), [(NXDOMAIN, 300), ((60, []), 60), (SERVFAIL, 60), (None, 10)]
)
async def test_failure_is_kept_as_long_as_its_class_allows(
    entry: tuple[int, list[str]] | int | None, kept: int
) -> None:
    clock = Clock()
    async with (
        nameserver({"a.test": entry}) as zone,
        resolver(zone, clock, timeout=0.2 if entry is None else 3) as made,
    ):
        first = await failure(made, "a.test")
        asked = len(zone.asked)
        clock.now += kept - 1
        await made.close()
        again = await failure(made, "a.test")
        assert (type(again), str(again)) == (type(first), str(first))
        assert len(zone.asked) == asked
        clock.now += 1
        zone.names["a.test"] = (60, ["1.2.3.4"])
        await made.close()
        assert await made.resolve("a.test") == ["1.2.3.4"]


async def test_servers_that_are_down_are_not_cached() -> None:
    """The failure is not about the name, and the next query finds out at once that they are
    back."""
    async with resolver([closed_port()]) as made:
        for _ in range(2):
            assert type(await failure(made, "a.test")) is NameServersDown
        assert (made.stats.questions, made.stats.cached) == (2, 0)


async def test_stats_count_questions_answers_and_failures() -> None:
    names: dict[str, tuple[int, list[str]] | int | None] = {
        "a.test": (60, ["1.2.3.4"]),
        "empty.test": (60, []),
        "broken.test": SERVFAIL,
    }
    clock = Clock()
    seconds: list[float] = []
    async with (
        nameserver(names, hold=["a.test"]) as zone,
        resolver(zone, clock, on_look_up=seconds.append) as made,
    ):
        asking = [asyncio.ensure_future(made.resolve("a.test")) for _ in range(3)]
        await zone.heard.wait()
        clock.now += 2.5
        zone.held["a.test"].set()
        await asyncio.gather(*asking)
        for name in ("empty.test", "broken.test", "gone.test", "a..b", "gone.test"):
            await failure(made, name)
        for name in ("a.test", "fixed.test"):
            await made.resolve(name)
    stats = made.stats
    # Two for empty.test and for broken.test; that for a..b never leaves c-ares.
    assert (stats.questions, stats.answered, stats.cached, stats.joined) == (7, 3, 2, 2)
    assert stats.waited == 2.5
    assert seconds == [2.5, 0, 0, 0, 0]
    assert made.cached_names == 4
    assert stats.failures == {
        "dns_no_address": 1,
        "dns_servfail": 1,
        "dns_nxdomain": 1,
        "dns_bad_name": 1,
    }


async def test_concurrent_calls_share_one_question() -> None:
    async with (
        nameserver({"a.test": (300, ["1.2.3.4"])}, hold=["a.test"]) as zone,
        resolver(zone) as made,
    ):
        asking = [asyncio.ensure_future(made.resolve("a.test")) for _ in range(20)]
        await zone.heard.wait()
        asking[0].cancel()
        zone.held["a.test"].set()
        assert await asyncio.gather(*asking[1:]) == [["1.2.3.4"]] * 19
        assert asking[0].cancelled()
        assert zone.asked == [("a.test", A)]


async def test_cache_drops_the_least_recently_used() -> None:
    names = {f"{i}.test": (0, ["1.2.3.4"]) for i in range(5)}
    async with nameserver({**names}) as zone, resolver(zone, cache_size=3) as made:
        for i in (0, 1, 2, 0, 3):
            await made.resolve(f"{i}.test")
        kept = [i for i in range(5) if made.known(f"{i}.test")]
        assert kept == [0, 2, 3]


async def test_a_name_with_hundreds_of_addresses_is_cut_short() -> None:
    names = {"many.test": (300, [f"10.0.0.{i}" for i in range(30)])}
    async with nameserver({**names}) as zone, resolver(zone) as made:
        assert len(await made.resolve("many.test")) == ADDRESSES_KEPT


async def test_closing_fails_those_who_still_wait() -> None:
    async with nameserver({"mute.test": None}) as zone, resolver(zone) as made:
        asking = asyncio.ensure_future(made.resolve("mute.test"))
        await zone.heard.wait()
        await made.close()
        with pytest.raises(NameFailed, match="closed"):
            await asking


async def test_channel_is_replaced_after_its_questions() -> None:
    async with nameserver({"a.test": (300, ["10.0.0.1"])}) as zone:
        servers = NameServers([f"127.0.0.1:{zone.port}"], 3, questions_max=2)
        begun = time.monotonic()
        for _ in range(5):
            [(address, ttl)] = await servers.ask("a.test", "A")
            assert address == "10.0.0.1"
            # An answer that a channel remembers has aged, in whole seconds.
            assert 299 - (time.monotonic() - begun) <= ttl <= 300
        assert len(zone.asked) == 3
        await servers.close()


async def test_replaced_channel_answers_its_questions() -> None:
    names = {f"{name}.test": (300, ["10.0.0.1"]) for name in "abc"}
    async with nameserver({**names}, hold=["a.test", "b.test"]) as zone:
        servers = NameServers([f"127.0.0.1:{zone.port}"], 3, questions_max=2)
        first, second = (asyncio.ensure_future(servers.ask(f"{n}.test", "A")) for n in "ab")
        await zone.heard.wait()
        await servers.ask("c.test", "A")
        for waiting in (first, second):
            zone.held["a.test" if waiting is first else "b.test"].set()
            assert await waiting == [("10.0.0.1", 300)]
        await servers.close()

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from krowlspider.fetch.dns import ADDRESSES_KEPT, Resolver
from krowlspider.fetch.errors import FetchError, NameFailed, NameNotFound
from krowlspider.fetch.nameservers import NameServers

from .nameserver import AAAA, NXDOMAIN, SERVFAIL, A, Zone, nameserver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .web import Run


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def resolver(
    zone: Zone, clock: Clock | None = None, cache_size: int = 100, timeout: float = 3
) -> AsyncIterator[Resolver]:
    made = Resolver(
        overrides={"fixed.test": "10.0.0.9"},
        servers=[f"127.0.0.1:{zone.port}"],
        cache_size=cache_size,
        timeout=timeout,
        clock=clock or Clock(),
    )
    try:
        yield made
    finally:
        await made.close()


async def failure(made: Resolver, name: str) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await made.resolve(name)
    return caught.value


def test_a_name_is_asked_once_and_then_remembered(run: Run) -> None:
    async def main() -> None:
        async with nameserver({"a.test": (0, ["1.2.3.4", "1.2.3.5"])}) as zone:
            async with resolver(zone) as made:
                assert await made.resolve("a.test") == ["1.2.3.4", "1.2.3.5"]
                assert await made.resolve("A.Test.") == ["1.2.3.4", "1.2.3.5"]
            assert zone.asked == [("a.test", A)]

    run(main())


def test_ipv6_is_asked_for_when_there_is_no_ipv4(run: Run) -> None:
    async def main() -> None:
        names = {"six.test": (300, ["2001:db8::6"]), "both.test": (300, ["2001:db8::6", "1.2.3.4"])}
        async with nameserver({**names}) as zone, resolver(zone) as made:
            assert await made.resolve("six.test") == ["2001:db8::6"]
            assert await made.resolve("both.test") == ["1.2.3.4"]
            assert zone.asked == [("six.test", A), ("six.test", AAAA), ("both.test", A)]

    run(main())


def test_local_names_never_reach_the_dns(run: Run) -> None:
    async def main() -> None:
        async with nameserver({}) as zone, resolver(zone) as made:
            assert await made.resolve("fixed.test") == ["10.0.0.9"]
            assert await made.resolve("localhost") == ["127.0.0.1", "::1"]
            assert await made.resolve("[::1]") == ["::1"]
            assert await made.resolve("192.0.2.1") == ["192.0.2.1"]
            assert zone.asked == []

    run(main())


def test_only_nxdomain_says_that_a_name_does_not_exist(run: Run) -> None:
    async def main() -> None:
        names: dict[str, tuple[int, list[str]] | int | None] = {
            "broken.test": SERVFAIL,
            "empty.test": (60, []),
        }
        async with nameserver(names) as zone, resolver(zone) as made:
            assert type(await failure(made, "missing.test")) is NameNotFound
            assert type(await failure(made, "broken.test")) is NameFailed
            assert type(await failure(made, "empty.test")) is NameFailed
            assert type(await failure(made, "a..b")) is NameFailed
            assert type(await failure(made, "x" * 64 + ".test")) is NameFailed
            assert type(await failure(made, "x." * 200)) is NameFailed

    run(main())


def test_a_silent_server_is_a_failure_within_the_timeout(run: Run) -> None:
    async def main() -> None:
        async with nameserver({"mute.test": None}) as zone, resolver(zone, timeout=0.3) as made:
            async with asyncio.timeout(2):
                assert type(await failure(made, "mute.test")) is NameFailed
            asked = len(zone.asked)
            assert type(await failure(made, "mute.test")) is NameFailed
            assert len(zone.asked) == asked

    run(main())


@pytest.mark.parametrize(("ttl", "kept"), [(0, 60), (300, 300), (100_000, 3600)])
def test_an_answer_is_kept_for_its_ttl_within_a_minute_and_an_hour(ttl: int, kept: int) -> None:
    async def main() -> None:
        clock = Clock()
        async with (
            nameserver({"a.test": (ttl, ["1.2.3.4"])}) as zone,
            resolver(zone, clock) as made,
        ):
            await made.resolve("a.test")
            clock.now += kept - 1
            # c-ares has a cache of its own, in real time, which goes with its channel.
            await made.close()
            await made.resolve("a.test")
            assert len(zone.asked) == 1
            assert len(made) == 1
            clock.now += 1
            await made.close()
            zone.names["a.test"] = NXDOMAIN
            assert type(await failure(made, "a.test")) is NameNotFound

    asyncio.run(main())


def test_a_failure_is_kept_for_a_minute() -> None:
    async def main() -> None:
        clock = Clock()
        async with nameserver({"a.test": SERVFAIL}) as zone, resolver(zone, clock) as made:
            await failure(made, "a.test")
            asked = len(zone.asked)
            clock.now += 59
            await failure(made, "a.test")
            assert len(zone.asked) == asked
            clock.now += 1
            zone.names["a.test"] = (60, ["1.2.3.4"])
            assert await made.resolve("a.test") == ["1.2.3.4"]

    asyncio.run(main())


def test_many_who_ask_at_once_share_one_question_and_one_giving_up_harms_none(run: Run) -> None:
    async def main() -> None:
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

    run(main())


def test_the_cache_keeps_to_its_size_dropping_the_least_recently_used() -> None:
    async def main() -> None:
        names = {f"{i}.test": (0, ["1.2.3.4"]) for i in range(5)}
        async with nameserver({**names}) as zone, resolver(zone, cache_size=3) as made:
            for i in (0, 1, 2, 0, 3):
                await made.resolve(f"{i}.test")
            assert len(made) == 3
            before = len(zone.asked)
            await made.resolve("0.test")
            assert len(zone.asked) == before

    asyncio.run(main())


def test_a_name_with_hundreds_of_addresses_is_cut_short() -> None:
    async def main() -> None:
        names = {"many.test": (300, [f"10.0.0.{i}" for i in range(30)])}
        async with nameserver({**names}) as zone, resolver(zone) as made:
            assert len(await made.resolve("many.test")) == ADDRESSES_KEPT

    asyncio.run(main())


def test_closing_fails_those_who_still_wait(run: Run) -> None:
    async def main() -> None:
        async with nameserver({"mute.test": None}) as zone, resolver(zone) as made:
            asking = asyncio.ensure_future(made.resolve("mute.test"))
            await zone.heard.wait()
            await made.close()
            with pytest.raises(NameFailed, match="closed"):
                await asking

    run(main())


def test_a_channel_and_its_cache_are_replaced_after_its_questions(run: Run) -> None:
    async def main() -> None:
        async with nameserver({"a.test": (300, ["10.0.0.1"])}) as zone:
            servers = NameServers([f"127.0.0.1:{zone.port}"], 3, questions_per_channel=2)
            for _ in range(5):
                assert await servers.ask("a.test", "A") == [("10.0.0.1", 300)]
            assert len(zone.asked) == 3
            await servers.close()

    run(main())


def test_a_replaced_channel_still_answers_all_that_it_was_asked(run: Run) -> None:
    async def main() -> None:
        names = {f"{name}.test": (300, ["10.0.0.1"]) for name in "abc"}
        async with nameserver({**names}, hold=["a.test", "b.test"]) as zone:
            servers = NameServers([f"127.0.0.1:{zone.port}"], 3, questions_per_channel=2)
            first, second = (asyncio.ensure_future(servers.ask(f"{n}.test", "A")) for n in "ab")
            await zone.heard.wait()
            await servers.ask("c.test", "A")
            for waiting in (first, second):
                zone.held["a.test" if waiting is first else "b.test"].set()
                assert await waiting == [("10.0.0.1", 300)]
            await servers.close()

    run(main())

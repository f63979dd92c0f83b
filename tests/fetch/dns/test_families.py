"""Which questions are sent for a name, and which of its addresses come first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from krowlspider.fetch.errors import NameNotFound, NameTimeout
from tests.fetch.dns.resolving import Clock, resolver
from tests.fetch.machine import routed
from tests.fetch.nameserver import AAAA, NXDOMAIN, SERVFAIL, A, nameserver

if TYPE_CHECKING:
    from krowlspider.fetch.resolver import Resolver
    from tests.fetch.nameserver import Zone

V4, V4B, V6, V6B = "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"
BOTH = {"both.test": (300, [V4, V6])}


def kinds(zone: Zone) -> list[int]:
    return [kind for _, kind in zone.asked]


async def new_channel(made: Resolver) -> None:
    """c-ares has a cache of its own, in real time, which goes with its channel."""
    await made.close()


@pytest.mark.parametrize("versions", [(4,), (4, 6), ()])
async def test_an_ordinary_name_costs_one_question(versions: tuple[int, ...]) -> None:
    async with nameserver({**BOTH}) as zone, resolver(zone, routes=routed(*versions)) as made:
        assert await made.resolve("both.test") == [V4]
        assert kinds(zone) == [A]
        assert made.stats.questions == 1


async def test_a_machine_with_ipv6_alone_asks_for_ipv6_first() -> None:
    names = {**BOTH, "four.test": (300, [V4])}
    async with nameserver({**names}) as zone, resolver(zone, routes=routed(6)) as made:
        assert await made.resolve("both.test") == [V6]
        assert kinds(zone) == [AAAA]
        assert await made.resolve("four.test") == [V4]
        assert kinds(zone) == [AAAA, AAAA, A]
        # It has no route for them.
        assert await made.others("both.test") == []
        assert len(zone.asked) == 3


async def test_ipv6_answers_where_the_question_for_ipv4_is_late() -> None:
    async with (
        nameserver({**BOTH}) as zone,
        resolver(zone, timeout=0.6, routes=routed(4, 6)) as made,
    ):
        zone.mute.add(A)
        assert await made.resolve("both.test") == [V6]
        assert set(kinds(zone)) == {A, AAAA}


@pytest.mark.parametrize(
    ("answer", "versions"), [(0, (4,)), (SERVFAIL, (4, 6)), (None, (4, 6)), (0, (4, 6))]
)
async def test_both_questions_without_an_address_fail_as_one(
    answer: int | None, versions: tuple[int, ...]
) -> None:
    async with (
        nameserver({"four.test": (300, [V4])}) as zone,
        resolver(zone, timeout=0.6, routes=routed(*versions)) as made,
    ):
        zone.mute = {A} if answer is not None else {A, AAAA}
        zone.no_aaaa = answer or 0
        with pytest.raises(NameTimeout):
            await made.resolve("four.test")
        assert (AAAA in kinds(zone)) == (6 in versions)


async def test_a_name_that_is_unknown_costs_one_question() -> None:
    async with nameserver({}) as zone, resolver(zone, routes=routed(4, 6)) as made:
        with pytest.raises(NameNotFound):
            await made.resolve("none.test")
        assert kinds(zone) == [A]


async def test_the_other_addresses_are_asked_for_once() -> None:
    names = {"both.test": (300, [V4, V6, V6B])}
    answers: list[tuple[str, list[tuple[str, float]]]] = []

    def note(name: str, records: list[tuple[str, float]]) -> None:
        answers.append((name, records))

    async with (
        nameserver({**names}) as zone,
        resolver(zone, on_answer=note, routes=routed(4, 6)) as made,
    ):
        await made.resolve("both.test")
        found = await asyncio.gather(*(made.others("both.test") for _ in range(3)))
        assert found == [[V6, V6B]] * 3
        assert await made.others("Both.Test.") == []
        assert made.known("both.test") == [V4, V6, V6B]
        assert kinds(zone) == [A, AAAA]
        assert made.stats.questions == 2
    assert answers[1:] == [("both.test", [(V6, 300), (V6B, 300)])]


@pytest.mark.parametrize(("name", "versions"), [("both.test", (4,)), ("fixed.test", (4, 6))])
async def test_other_addresses_of_no_use_are_not_asked_for(
    name: str, versions: tuple[int, ...]
) -> None:
    async with nameserver({**BOTH}) as zone, resolver(zone, routes=routed(*versions)) as made:
        await made.resolve(name)
        asked = len(zone.asked)
        assert await made.others(name) == []
        assert len(zone.asked) == asked


async def test_a_name_with_ipv6_alone_has_no_other_addresses() -> None:
    async with (
        nameserver({"six.test": (300, [V6])}) as zone,
        resolver(zone, routes=routed(4, 6)) as made,
    ):
        assert await made.resolve("six.test") == [V6]
        assert await made.others("six.test") == []
        assert kinds(zone) == [A, AAAA]


@pytest.mark.parametrize(("code", "kept"), [(SERVFAIL, 60), (NXDOMAIN, 300)])
async def test_a_failed_question_for_the_others_is_kept(code: int, kept: int) -> None:
    clock = Clock()
    names = {"both.test": (3600, [V4, V6])}
    async with nameserver({**names}) as zone, resolver(zone, clock, routes=routed(4, 6)) as made:
        await made.resolve("both.test")
        zone.no_aaaa = code
        assert await made.others("both.test") == []
        asked = len(zone.asked)
        clock.now += kept - 1
        await new_channel(made)
        assert await made.others("both.test") == []
        assert len(zone.asked) == asked
        clock.now += 1
        zone.no_aaaa = 0
        await new_channel(made)
        assert await made.others("both.test") == [V6]
        assert made.known("both.test") == [V4, V6]


async def test_the_address_that_was_reached_comes_first_for_its_ttl() -> None:
    clock = Clock()
    names = {"both.test": (300, [V4, V4B, V6])}
    async with nameserver({**names}) as zone, resolver(zone, clock, routes=routed(4, 6)) as made:
        await made.resolve("both.test")
        await made.others("both.test")
        made.learn("both.test", V6, [V4])
        assert made.known("both.test") == [V6, V4B, V4]
        assert made.reached("both.test") == V6
        made.learn("both.test", "", [V6])
        assert made.known("both.test") == [V4B, V4, V6]
        assert made.reached("both.test") == ""
        clock.now += 300
        assert made.known("both.test") is None
        await new_channel(made)
        assert await made.resolve("both.test") == [V4, V4B]


async def test_the_answer_with_the_shorter_ttl_ends_both() -> None:
    clock = Clock()
    async with (
        nameserver({"both.test": (3000, [V4])}) as zone,
        resolver(zone, clock, routes=routed(4, 6)) as made,
    ):
        await made.resolve("both.test")
        zone.names["both.test"] = 100, [V6]
        assert await made.others("both.test") == [V6]
        clock.now += 99
        assert made.known("both.test") == [V4, V6]
        clock.now += 1
        assert made.known("both.test") is None


async def test_closing_ends_the_question_for_the_others() -> None:
    async with nameserver({**BOTH}) as zone, resolver(zone, routes=routed(4, 6)) as made:
        await made.resolve("both.test")
        zone.mute.add(AAAA)
        zone.heard.clear()
        asking = asyncio.ensure_future(made.others("both.test"))
        await zone.heard.wait()
        await made.close()
        assert await asking == []

"""``scrapy ring``: nodes and their backlog, owners of URLs, the signal, and pending nodes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from argparse import ArgumentParser
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis
from scrapy.exceptions import UsageError
from scrapy.settings import Settings

from krowlspider.cluster.membership import Signals
from krowlspider.cluster.register.membership import RegisteredMembership
from krowlspider.cluster.register.port import RegisterKeys, step
from krowlspider.cluster.registers import Agent
from krowlspider.cluster.ring.ring import Member, MemberRecord, Ring
from krowlspider.programs import ring as rows
from krowlspider.programs.ring import Command
from tests.cluster.register_nodes import ask, found
from tests.cluster.servers import free_port
from tests.support import warm
from tests.support.crawling import CONTACT, ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.cluster.register_nodes import Place as RegisterPlace
    from tests.cluster.servers import Server

DOWN = "redis://:secret@127.0.0.1:1/0"
# Seconds: the least that Consul takes for a lease.
TTL = 10
DOMAINS = [f"site{number}.co.uk" for number in range(40)]
_numbers = count()


def given(*arguments: str, **settings: str) -> list[str]:
    pairs = {"KROWL_CONTACT": CONTACT, **settings}.items()
    return [*arguments, *(part for name, value in pairs for part in ("-s", f"{name}={value}"))]


@dataclass(frozen=True)
class Result:
    """What the command wrote, and its exit code."""

    code: int
    out: str
    err: str


def ring(*arguments: str, **settings: str) -> Result:
    """The command in this process: one of its own takes seconds to start."""
    command = Command()
    command.settings = Settings()
    command.settings.setmodule("krowlspider.settings", priority="project")
    command.settings.setdict(command.default_settings, priority="command")
    parser = ArgumentParser()
    command.add_options(parser)
    opts, urls = parser.parse_known_args(given(*arguments, **settings))
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        command.process_options(urls, opts)
        command.run(urls, opts)
    return Result(command.exitcode, out.getvalue(), err.getvalue())


def ring_process(*arguments: str, **settings: str) -> Result:
    command = [sys.executable, "-m", "scrapy", "ring", *given(*arguments, **settings)]
    done = warm.run(command)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_node_whose_clock_is_slow_is_not_silent(
    register: Server | RegisterPlace, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed one is, although its heartbeat says that it agrees."""
    members = [Member(name, 1, DOWN) for name in "ab"]
    claims = (Ring(members),)
    root = f"krowlspider/{cluster}"
    sessions = {
        each.id: ask(register, lambda place: place.open_session("any", 60)) for each in members
    }

    def write(name: str, part: str, value: bytes) -> None:
        lock = step("lock", f"{root}/{part}/{name}", value, Session=sessions[name])
        assert ask(register, lambda place: place.change(lock))

    def say(name: str, ago: float) -> None:
        write(name, "beats", json.dumps({"time": time.time() - ago}).encode())

    async def meanwhile(_: float) -> None:
        say("a", 60)
        say("b", 64)

    for member in members:
        write(member.id, "nodes", MemberRecord(member, claims).dumps())
    say("a", 63)
    say("b", 60)
    monkeypatch.setattr(rows.asyncio, "sleep", meanwhile)
    result = ring("--json", KROWL_CONSUL=register.url, KROWL_CLUSTER=cluster)
    states = [row["state"] for row in json.loads(result.out)["nodes"]]
    assert states == ["agreed", "silent"]
    assert result.code == 1


def test_bad_input_is_named_in_one_line() -> None:
    result = ring()
    assert (result.code, result.out) == (2, "")
    assert "no cluster" in result.err
    assert result.err.count("\n") == 1


def test_invalid_url_is_a_usage_error(register: Server | RegisterPlace, cluster: str) -> None:
    found(register, cluster)
    with pytest.raises(UsageError, match="http://"):
        ring("http://", KROWL_CONSUL=register.url, KROWL_CLUSTER=cluster)


def test_invalid_signal_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        ring("--signal", "HALT", KROWL_CONSUL="unix:///none")
    assert ended.value.code == 2
    assert "invalid choice: 'HALT'" in capsys.readouterr().err


# --- By Consul


class Place:
    """A cluster of its own in Consul, whose nodes run in the test's process while the command runs
    beside it."""

    def __init__(self, consul: Server) -> None:
        self.url = consul.url
        self.name = f"ring{next(_numbers)}"

    @asynccontextmanager
    async def node(self, member: Member) -> AsyncIterator[RegisteredMembership]:
        agent = Agent(self.url)
        node = RegisteredMembership(agent, self.name, member, ttl=TTL)
        try:
            await node.start()
            yield node
        finally:
            await node.leave()
            agent.close()

    async def ring(self, *arguments: str, **settings: str) -> Result:
        settings = {"KROWL_CONSUL": self.url, "KROWL_CLUSTER": self.name, **settings}
        return await asyncio.to_thread(ring, *arguments, **settings)

    async def look(self, code: int) -> dict[str, Any]:
        """What it shows, the nodes by id."""
        result = await self.ring("--json")
        assert result.code == code, result
        found: dict[str, Any] = json.loads(result.out)
        return {**found, "nodes": {row["id"]: row for row in found["nodes"]}}


@pytest.fixture
def place(consul: Server) -> Place:
    return Place(consul)


def test_shows_members_of_consul_and_whether_they_agree(place: Place, server: Server) -> None:
    a, b = (
        Member("a", 1, server.url, "a.example"),
        Member("b", 3, f"{server.url[:-1]}1", "b.example"),
    )
    both = Ring([a, b])

    async def main() -> None:
        async with place.node(a) as one:
            await one.publish((Ring([a]),))
            async with place.node(b) as other:
                await one.beat({"done": 7, "queued": 5, "epoch": 3, "time": time.time() - 5})
                with Redis.from_url(server.url) as client:
                    client.lpush("broad:hosts", "{}", "{}")
                found = await place.look(1)
                states = {name: row["state"] for name, row in found["nodes"].items()}
                assert states == {"a": "handing over", "b": "joining"}
                await one.beat({"done": 7, "queued": 5, "epoch": 3, "time": time.time() - 70})
                found = await place.look(1)
                assert found["cluster"] == place.name
                assert found["ring"] == both.checksum
                first, second = found["nodes"]["a"], found["nodes"]["b"]
                assert (first["state"], second["state"]) == ("silent", "joining")
                assert (first["done"], first["queued"], first["epoch"]) == (7, 5, 3)
                assert 70 <= first["seconds_ago"] < 100
                assert (first["hosts"], second["hosts"]) == (2, 0)
                assert second["weight"] == 3
                assert second["address"] == "b.example"
                assert first["share"] + second["share"] == pytest.approx(1, abs=0.001)
                explained = set(re.findall(r"\w+", Command().long_desc()))
                assert first.keys() | second.keys() <= explained
                await one.beat({"done": 7})
                await asyncio.gather(one.publish((both,)), other.publish((both,)))
                assert {r["state"] for r in (await place.look(0))["nodes"].values()} == {"agreed"}
                await other.publish((both,), leaving=True)
                found = await place.look(1)
                assert found["nodes"]["b"]["state"] == "leaving"
                assert "share" not in found["nodes"]["b"]
                assert found["nodes"]["a"]["share"] == 1

    asyncio.run(main())


def test_owner_and_fetcher_follow_the_hand_over(place: Place) -> None:
    a, b = Member("a", 1, DOWN), Member("b", 1, f"{DOWN}1")
    alone, both = Ring([a]), Ring([a, b])

    async def fetchers() -> dict[str, tuple[str, str]]:
        result = await place.ring("--json", *(f"https://www.{d}/x" for d in DOMAINS))
        assert result.code == 0
        return {row["domain"]: (row["owner"], row["fetcher"]) for row in json.loads(result.out)}

    async def main() -> None:
        async with place.node(a) as one, place.node(b) as other:
            await one.publish((alone,))
            await other.publish((both,))
            assert await fetchers() == {
                d: ("a", "a") if both.owner(d) == "a" else ("b", None) for d in DOMAINS
            }
            await one.publish((both,))
            assert await fetchers() == {d: (both.owner(d), both.owner(d)) for d in DOMAINS}
            await other.publish((both,), leaving=True)
            await one.publish((alone,))
            assert await fetchers() == {
                d: ("a", "a") if both.owner(d) == "a" else ("a", None) for d in DOMAINS
            }

    asyncio.run(main())


def test_ended_nodes_are_shown_until_they_are_forgotten(place: Place, server: Server) -> None:
    async def main() -> None:
        async with place.node(Member("a", 1, server.url)) as a:
            # It has ended, and was not dismissed.
            url = f"{server.url[:-1]}1"
            async with place.node(Member("b", 1, url, "b.example:9")):
                pass
            agent = Agent(place.url)
            # As after a crash.
            both = Ring([a.own, Member("c", 1, DOWN)])
            url_of_c = next(f"https://{each}/" for each in DOMAINS if both.owner(each) == "c")
            await RegisterKeys(agent, place.name).put("crew/c", "{}")
            record = MemberRecord(both.members[1], (both,)).dumps().decode()
            await RegisterKeys(agent, place.name).put("nodes/c", record)
            with Redis.from_url(url) as client:
                client.lpush("broad:requests", json.dumps({"url": url_of_c}))
            await a.publish((both,))
            # Its heartbeat says how long it waits.
            await a.beat({})
            found = await place.look(1)
            assert found["ring"] == both.checksum
            nodes = found["nodes"]
            b = nodes["b"]
            assert (b["state"], b["address"], b["requests"]) == ("stopped", "b.example:9", 1)
            assert (nodes["a"]["state"], nodes["c"]["state"]) == ("agreed", "dead")
            assert 0 < nodes["c"]["takeover_in"] <= TTL
            assert (a.state("b"), a.state("c")) == ("stopped", "dead")
            for node, says in (("a", "node a is live"), ("z", "no node z is waited for")):
                refused = await place.ring("--forget", node)
                assert (refused.code, refused.err.count("\n")) == (2, 1)
                assert says in refused.err
            for node in ("b", "c"):
                done = await place.ring("--forget", node)
                assert (done.code, done.err) == (0, "")
                assert done.out.startswith(f"Node {node} is forgotten: nobody waits for it. URLs ")
            agent.close()
            await a.publish((Ring([a.own]),))
            assert (await place.look(0))["nodes"].keys() == {"a"}
            await a.beat({})
            assert a.pending_nodes == {"a"}

    asyncio.run(main())


def test_sends_the_signal_and_shows_the_budget(place: Place) -> None:
    async def main() -> None:
        agent = Agent(place.url)
        async with place.node(Member("a", 1, DOWN)):
            await RegisterKeys(agent, place.name).add("pages", 1200, 5000)
            assert (await place.ring("--signal", "PAUSED")).code == 0
            assert await Signals(RegisterKeys(agent, place.name)).read() == "PAUSED"
            shown = (await place.ring(KROWL_CLUSTER_PAGES="5000")).out
            assert shown.startswith(
                f"cluster {place.name}: PAUSED, 1,200 of 5,000 pages taken, epoch "
            )
            assert "secret" not in shown
        agent.close()

    asyncio.run(main())


@pytest.mark.parametrize("arguments", [(), ("--signal", "STOP"), ("http://a.test/",)])
def test_unknown_cluster_is_named_and_not_created(place: Place, arguments: tuple[str, ...]) -> None:
    for _ in range(2):
        result = asyncio.run(place.ring(*arguments))
        assert (result.code, result.out) == (2, "")
        assert f"knows no cluster {place.name!r}" in result.err
        assert result.err.count("\n") == 1


def test_unreachable_agent_is_named_in_one_line() -> None:
    """Without a contact, as nothing is fetched."""
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    result = ring(KROWL_CONSUL=url, KROWL_CONTACT="")
    assert result == Result(
        1,
        "",
        f"krowlspider: Consul at {url} cannot be reached (Connection refused): start its agent, or"
        " correct KROWL_CONSUL\n",
    )


def test_server_that_is_no_consul_is_named(server: Server) -> None:
    url = server.url.replace("redis:", "http:").removesuffix("/0")
    result = ring(KROWL_CONSUL=url)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert f"Consul at {url} cannot be reached" in result.err


def test_closed_output_is_no_error(
    register: Server | RegisterPlace, cluster: str, tmp_path: Path
) -> None:
    """As with `| head -1`."""
    found(register, cluster)
    command = given(KROWL_CONSUL=register.url, KROWL_CLUSTER=cluster)
    reader, writer = os.pipe()
    os.close(reader)
    with (tmp_path / "err").open("wb") as err, os.fdopen(writer, "wb") as out:
        done = warm.start(
            [sys.executable, "-m", "scrapy", "ring", *command],
            cwd=ROOT,
            environment=dict(os.environ),
            stdout=out,
            stderr=err,
        )
        done.wait(30)
    assert (tmp_path / "err").read_text() == ""


def test_unreadable_member_is_shown(place: Place) -> None:
    async def main() -> None:
        agent = Agent(place.url)
        async with place.node(Member("a", 1, DOWN)):
            key = f"krowlspider/{place.name}/nodes/a"
            await agent.call(lambda consul: consul.kv.put(key, '{"version": 2}'))
            row = (await place.look(1))["nodes"]["a"]
            assert row["state"] == "unreadable"
            assert "version 2" in row["trouble"]
        agent.close()

    asyncio.run(main())

"""What a node does with the messages of other nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Spider
from scrapy.settings import Settings

from krowlspider import settings as defaults
from krowlspider.cluster.transport.message import (
    Acknowledgement,
    Mark,
    Message,
    decode,
    decode_acknowledgement,
)
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.entry_queues import OVERFLOW, Candidate, LastAnswer
from krowlspider.frontier.hosts.host import SEED_PRIORITY
from krowlspider.frontier.outbox import Finders
from krowlspider.frontier.seed_table import GIVEN, SeedLine, SeedTable, read_rows
from krowlspider.frontier.store.schema import split_queue_key
from krowlspider.frontier.store.store import entries
from krowlspider.job.cluster_traffic import ClusterTraffic
from krowlspider.job.codec import RequestCodec
from krowlspider.job.intake import Intake, RequisiteBudget
from krowlspider.job.job import Job
from krowlspider.job.limits import PageBudget, SeedsFirst
from krowlspider.job.monitoring.disk_guard import DiskGuard
from krowlspider.spiders.broad import BroadSpider
from krowlspider.urls.seeds import Seed, SeedWords
from tests.support.crawling import CONTACT

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy import Request


class NodeA:
    """Node ``a`` of two: each owns the host of its name. ``stopped_nodes`` have ended."""

    own = "a"
    node_count = 3

    def __init__(self) -> None:
        self.stopped_nodes: list[str] = []

    def foreign_owner(self, host: str) -> str | None:
        return self.foreign_owners([host])[0]

    def foreign_owners(self, hosts: list[str]) -> list[str | None]:
        return [None if host == "a.test" else "b" for host in hosts]


def identify(request: Request, url: str) -> bytes:
    return url.encode()[-8:]


def traffic_in(
    tmp_path: Path,
    spider: Spider | None = None,
    node: Any = None,
    left: list[str] | None = None,
    **more: object,
) -> tuple[Job, ClusterTraffic]:
    """Return an open job of node ``a``, and its traffic. ``left`` are nodes that have stopped."""
    ours = {name: value for name, value in vars(defaults).items() if name.startswith("KROWL_")}
    given = {"KROWL_CONTACT": CONTACT, "JOBDIR": str(tmp_path / "job")}
    settings = Settings({**ours, **given, **more})
    job = Job(settings)
    codec = RequestCodec(spider or Spider("news"))
    intake = Intake(
        job.frontier,
        job.hasher,
        codec,
        settings,
        node=node,
        fail=job.fail,
        identify=identify,
        wake=lambda: None,
    )
    node_a = NodeA()
    node_a.stopped_nodes = [] if left is None else left
    traffic = ClusterTraffic(
        job,
        node_a,
        codec,
        intake,
        settings=settings,
        is_out_of_work=lambda: True,
        seeds=SeedsFirst(job.frontier, PageBudget(None), lambda: None),
        carry_out=lambda _: {},
    )
    return job, traffic


def test_messages_for_others_are_forwarded(tmp_path: Path) -> None:
    """The sender may know an older ring. Each forwarding is counted as a hop."""

    async def main() -> None:
        job, traffic = traffic_in(tmp_path)
        await traffic.take_in([Message("http://a.test/"), Message("http://b.test/", hops=1)])
        assert job.frontier.queued == 1
        assert job.frontier.schedule.cache.get("b.test").queue.queued == 0
        ((_, message),) = traffic.outbox.after("b", -1, 10)
        assert decode(message) == Message("http://b.test/", hops=2)
        await job.close()

    asyncio.run(main())


def test_words_of_a_seed_come_with_its_urls(tmp_path: Path) -> None:
    """A node learns them from the first URL of the seed, and sends them on."""

    async def main() -> None:
        job, traffic = traffic_in(tmp_path)
        words = '{"tag":"news","depth":2}'
        seed = "http://s.test/"
        await traffic.take_in(
            [
                Message("http://a.test/", depth=1, seed=seed, words=words),
                Message("http://b.test/", depth=1, seed=seed, words=words),
                Message("http://a.test/own", words='{"max_pages":1}'),
                Message("http://a.test/plain"),
            ]
        )
        names = job.frontier.seed_names
        assert names is not None
        codec = RequestCodec(Spider("news"), seeds=names)
        ((_, message),) = traffic.outbox.after("b", -1, 10)
        assert decode(message).words == words
        key = names.key_of(seed)
        found = {url: Entry(url, depth, seed=key) for depth, url in enumerate("abcd")}
        assert [names.words_at(entry) for entry in found.values()] == [SeedWords("news", 2)] * 4
        assert names.words is not None
        assert names.words.refusal(Entry("http://a.test/", 3, seed=key)) == "seed_depth"
        assert names.words_at(Entry("http://a.test/own")) == SeedWords(max_pages=1)
        assert names.words_at(Entry("http://a.test/plain")) is None
        for entry, said in (
            (Entry("http://c.test/", 2, seed=key), words),
            (Entry("http://a.test/own"), '{"max_pages":1}'),
            (Entry("http://a.test/plain"), ""),
        ):
            assert decode(codec.message(entry)).words == said
            always = decode(codec.message(entry, always=True))
            assert (always.words, always.meta) == (said, {})
        assert codec.request(Entry("http://c.test/", 2, seed=key)).meta["krowl_tag"] == "news"
        await job.close()

    asyncio.run(main())


def test_requisites_of_others_keep_to_the_budget(tmp_path: Path) -> None:
    """They go before pages, whatever priority the message names, and are known the next time."""

    async def main() -> None:
        job, traffic = traffic_in(tmp_path, spider=BroadSpider(), KROWL_REQUISITES="any")
        traffic._intake.requisite_budget = RequisiteBudget(2)
        sent = [
            Message(
                f"http://a.test/{n}",
                priority=9,
                via="http://b.test/",
                hop="E",
                meta={"krowl_requisite": ["image", 0]},
            )
            for n in (1, 1, 2, 3)
        ]
        await traffic.take_in(sent)
        found = list(entries(job.store, "a.test"))
        assert [entry_of(*each).url[-1] for each in found] == ["1", "2"]
        assert {split_queue_key(key)[0] for key, _ in found} == {1}
        entry = entry_of(*found[0])
        assert (entry.request, entry.via, entry.path) == (b"R0image", "http://b.test/", "E")
        assert job.frontier.counters["dropped/requisite_budget"] == 1
        await job.close()

    asyncio.run(main())


def test_nodes_divide_the_limits_of_an_address(tmp_path: Path) -> None:
    async def main() -> None:
        job, traffic = traffic_in(tmp_path)
        shares = job.frontier.schedule.shares
        assert (shares.most("@192.0.2.1"), shares.addresses.delay) == (8, 0.1)
        traffic.ring_changed()
        assert (shares.most("@192.0.2.1"), shares.addresses.delay) == (2, pytest.approx(0.3))
        await job.close()

    asyncio.run(main())


def test_seeds_from_other_nodes_are_not_in_the_overflow(tmp_path: Path) -> None:
    """A URL that comes as a seed and as a link is queued once, as a seed."""

    async def main() -> None:
        job, traffic = traffic_in(tmp_path, KROWL_HOST_QUEUE_MAX=4)
        seeds = [Message(f"http://a.test/{number}") for number in range(6)]
        links = [Message(f"http://a.test/{number}", depth=1) for number in range(5, 9)]
        redirected = Message("http://a.test/moved", redirects=1)
        await traffic.take_in([*links, redirected, *seeds])
        queued = [
            (split_queue_key(key)[0], entry_of(key, value).url[14:])
            for key, value in entries(job.frontier.store, "a.test")
        ]
        overflow = [(OVERFLOW, name) for name in ("6", "7", "8", "moved")]
        assert queued == [*((0, str(number)) for number in range(6)), *overflow]
        await job.close()

    asyncio.run(main())


def test_what_a_seed_of_another_node_redirects_to_is_a_seed(tmp_path: Path) -> None:
    """So links wait for it while pages are limited."""

    async def main() -> None:
        job, traffic = traffic_in(tmp_path, BroadSpider())
        chain = ("http://b.test/",)
        await traffic.take_in(
            [
                Message("http://a.test/link", depth=1, redirects=1, chain=chain),
                Message("http://a.test/seed", redirects=1, chain=chain),
            ]
        )
        host = job.frontier.schedule.cache.get("a.test")
        leases = [job.frontier.queues.pop(host) for _ in range(2)]
        found = [(each.entry.url[14:], each.priority) for each in leases if each is not None]
        assert found == [("seed", SEED_PRIORITY), ("link", 0)]
        await job.close()

    asyncio.run(main())


def test_messages_are_taken_in_beyond_the_cap_of_the_frontier(tmp_path: Path) -> None:
    """Unless the disk has no room for them: then they stay in Redis."""

    async def main() -> None:
        job, traffic = traffic_in(tmp_path, KROWL_FRONTIER_MAX=4)
        free = {tmp_path / "job": 5 * 10**9}
        guard = job.guard = DiskGuard(2 * 10**9, lambda: free, job.fail, free.__getitem__)
        guard.look()
        links = [Message(f"http://a.test/{number}", depth=1) for number in range(6)]
        await traffic.take_in(links)
        assert job.frontier.queued == 6
        assert not traffic.is_full()
        free[tmp_path / "job"] = 3 * 10**9
        guard.look()
        assert traffic.is_full()
        assert job.full is None
        await traffic.take_in([Message("http://a.test/new", depth=1), Message("http://a.test/")])
        # The link is refused, and the seed is not.
        assert job.frontier.queued == 7
        assert job.frontier.refused.hosts("frontier") == {"a.test": 1}
        await job.close()

    asyncio.run(main())


def test_a_seed_that_redirects_to_another_node_has_a_row(tmp_path: Path) -> None:
    """So has one of another node. Neither is known before."""

    async def main() -> None:
        job, traffic = traffic_in(tmp_path, node=NodeA())
        urls = ["http://a.test/", "http://b.test/"]
        lines = [SeedLine(number, url, url) for number, url in enumerate(urls, 1)]
        traffic._intake.begin_seeds("seeds")
        traffic._intake.plant("seeds", lines, after=0)
        traffic._intake.end_seeds("seeds", after=2)
        assert [row.outcome for row in read_rows(job.store)] == ["", "of another node"]
        lease = job.frontier.queues.pop(job.frontier.schedule.cache.get("a.test"))
        assert lease is not None
        lease.answer = LastAnswer(301, None, b"http://b.test/home", 0, 0.1)
        chain = tuple(urls[:1])
        traffic._intake.discover(["http://b.test/home"], depth=0, redirects=1, chain=chain)
        job.frontier.acknowledge(lease)
        job.frontier.begin_commit().write()
        ends = [(row.outcome, row.status, row.url) for row in read_rows(job.store)]
        elsewhere = "of another node"
        assert ends == [(elsewhere, 301, "http://b.test/home"), (elsewhere, 0, "http://b.test/")]
        await job.close()

    asyncio.run(main())


def test_a_seed_that_another_node_took_ends_at_its_owner(tmp_path: Path) -> None:
    """One that is known here as a link is known before, or gets the place of a seed. Where a seed
    of a third node goes on is followed here."""

    async def main() -> None:
        job, traffic = traffic_in(tmp_path, BroadSpider())
        frontier, links = job.frontier, ["http://a.test/done", "http://a.test/queued"]
        for url in links:
            await traffic.take_in([Message(url, depth=1)])
        host = frontier.schedule.cache.get("a.test")
        lease = frontier.queues.pop(host)
        assert lease is not None
        frontier.acknowledge(lease)
        frontier.begin_commit().write()
        chain = ("http://b.test/",)
        target = "http://a.test/target"
        refused = f"http://a.test/{'x' * 3000}"
        given = [Message(target, redirects=1, chain=chain), *map(Message, [*links, refused])]
        other = Message("http://a.test/link", depth=1)
        await traffic.take_in([other, *given])
        order = []
        while (lease := frontier.queues.pop(host)) is not None:
            order.append(lease.entry.url[14:])
            lease.answer = LastAnswer(200, None, None, 0, 0.1)
            frontier.acknowledge(lease)
        assert order[-1] == "link"
        frontier.begin_commit().write()
        lines = SeedTable(job.store)
        lines.give([target, *links, refused])
        ends = [(row.outcome, row.status) for row in read_rows(job.store)]
        assert ends == [("done", 200), ("known before", 0), ("done", 200), ("length", 0)]
        await job.close()

    asyncio.run(main())


def test_each_seed_that_comes_while_it_runs_has_a_row(tmp_path: Path) -> None:
    """Whether it is queued, sent, refused or known, by its line or by that of an export."""

    async def main() -> None:
        job, traffic = traffic_in(tmp_path, node=NodeA())
        intake = traffic._intake
        link = Candidate(
            "a.test", job.hasher.key("http://a.test/link"), Entry("http://a.test/link", 1)
        )
        intake.add([link])
        lease = job.frontier.queues.pop(job.frontier.schedule.cache.get("a.test"))
        assert lease is not None
        job.frontier.acknowledge(lease)
        job.frontier.begin_commit().write()
        names = ("a.test/", "b.test/1", "b.test/2", "b.test/1", "a.test/link")
        intake.give([Seed(f"http://{name}", bare=False) for name in names])
        intake.give_sent([Entry("http://b.test/3"), Entry("http://b.test/4", 1)])
        sent, known = "of another node", "known before"
        assert [(row.line.number, row.url[7:], row.outcome) for row in read_rows(job.store)] == [
            (1, "a.test/", ""),
            (2, "b.test/1", sent),
            (3, "b.test/2", sent),
            (4, "b.test/1", sent),
            (5, "a.test/link", known),
            (6, "b.test/3", sent),
        ]
        assert {row.source for row in read_rows(job.store)} == {GIVEN}
        await job.close()

    asyncio.run(main())


def test_marks_are_acknowledged_once_their_messages_are_durable(tmp_path: Path) -> None:
    """Those that are forwarded count too; those of another owner, which had this Redis, do not."""

    async def main() -> None:
        job, traffic = traffic_in(tmp_path)
        await traffic.take_in([Message("http://a.test/"), Message("http://b.test/")])
        marks = [
            Mark("b", "a", stream=7, number=0, last=1),
            Mark("b", "a", stream=7, number=1, last=2),
            Mark("c", "a", stream=8, number=1, last=5),
            Mark("d", "z", stream=9, number=0, last=9),
        ]
        found = await traffic.make_durable(marks)
        assert {name: decode_acknowledgement(data) for name, data in found.items()} == {
            "b": Acknowledgement(7, 2),
            "c": Acknowledgement(8, -1, has_gap=True),
        }
        assert (job.frontier.queued, traffic.outbox.depth) == (1, 1)
        assert Finders(job.store).take("b", 7, 2, 3, job.store.batch())[1] is False
        await job.close()

    asyncio.run(main())


def test_node_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        left: list[str] = []
        job, traffic = traffic_in(tmp_path, left=left)
        await traffic.take_in([Message("http://b.test/")])
        assert not traffic.rests()
        left.append("b")
        assert traffic.rests()
        assert traffic.outbox.depth == 1
        await job.close()

    asyncio.run(main())

"""Orders of people for hosts of other nodes: they reach the owner, and its reply comes back."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from twisted.internet.defer import Deferred

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.transport.inbox import orders_key
from krowlspider.cluster.transport.message import BadMessage
from krowlspider.cluster.transport.posts import (
    MAX_ORDER_MESSAGE,
    WAIT,
    OrderAsk,
    OrderReply,
    OwnerError,
    decode_order,
    encode_order,
)
from krowlspider.engine.control import Control
from krowlspider.engine.logformatter import order_received
from krowlspider.extensions import cluster_orders
from krowlspider.extensions.cluster_orders import ClusterOrders
from krowlspider.extensions.telnet import Console, Text
from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.schedule.orders import OrderError
from krowlspider.frontier.store.store import all_entries
from krowlspider.job.crawls import crawl_of, job_of, node_of
from krowlspider.job.nodes.overview import SILENT_AFTER
from krowlspider.job.status import pause_reason
from krowlspider.views.ordering import Ordering
from tests.support.simulated_cluster import ClusterWeb, SimulatedCluster, simulated_time
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator
    from pathlib import Path

    from scrapy.crawler import Crawler

    from krowlspider.cluster.transport.posts import Plain
    from tests.mockweb.log import Entry

ASK = OrderAsk(1, "a", 7, "HTTP from 127.0.0.1", "block", {"name": "b.test"})


def changed(message: OrderAsk | OrderReply, **fields: object) -> bytes:
    return json.dumps({**json.loads(encode_order(message)), **fields}).encode()


def test_messages_are_read_as_written() -> None:
    reply = OrderReply(1, 7, {"done": True, "message": "it goes on"})
    listed = OrderReply(1, 7, {"sheets": ["delay = 5.0: sheet news, line 12"]})
    for message in (ASK, reply, listed, OrderReply(1, 7, error="no host", status=404)):
        assert decode_order(encode_order(message)) == message


@table("data", [
    b"",
    b"[]",
    b"\x80\x04.",
    changed(ASK, type="set"),
    changed(ASK, version=2),
    changed(ASK, more=1),
    changed(ASK, node=""),
    changed(ASK, number=-1),
    changed(ASK, who="x\nBlock by y"),
    changed(ASK, fields={"name": ["b.test"]}),
    changed(OrderReply(1, 7), status=200),
    encode_order(OrderReply(1, 7, error="x" * MAX_ORDER_MESSAGE)),
])  # fmt: skip
def test_others_are_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        decode_order(data)


class Ring:
    """Two nodes that crawl, and a person at node ``a``."""

    def __init__(self, folder: Path) -> None:
        settings = {"KROWL_DELAY_MIN": 5.0, "KROWL_WARC_DIR": str(folder)}
        self.cluster = SimulatedCluster(ClusterWeb(6, 600), folder, settings)
        for name in "ab":
            self.cluster.start(name)
        self.cluster.until(lambda: len({each.ua for each in self.cluster.pages()}) == 2, 60)
        # Signals keep only weak references to their listeners.
        self.extensions = {name: ClusterOrders(self.crawler(name)) for name in "ab"}
        self.host = next(
            name for host in range(6) if self.owner(name := self.cluster.web.name(host)) == "b"
        )

    def crawler(self, name: str) -> Any:
        crawl = self.cluster.running[name].crawl
        assert crawl is not None
        return crawl.crawler

    def frontier(self, name: str) -> Any:
        crawl = self.cluster.running[name].crawl
        assert crawl is not None
        return crawl.job.frontier

    def owner(self, host: str) -> str:
        crawl = self.cluster.running["a"].crawl
        assert crawl is not None
        return crawl.node.foreign_owner(host) or "a"

    def is_settled(self) -> bool:
        """Return whether both nodes are there, and the owner of the host has URLs of it."""
        if any(self.cluster.running[name].crawl is None for name in "ab"):
            return False
        states = [row.state for row in Control(self.crawler("a")).nodes()]
        return (
            states == ["agreed", "agreed"]
            and self.owner(self.host) == "b"
            and self.frontier("b").schedule.cache.get(self.host).queue.queued > 0
        )

    def orders(self) -> Ordering:
        crawler = self.crawler("a")
        return Ordering(crawler, "a person")

    def result(self, work: Coroutine[Any, Any, Any], within: float = 20.0) -> Any:
        """Let node ``a`` do something; return or raise what it does."""
        task = self.cluster.running["a"].loop.create_task(work)
        self.cluster.run_while(lambda: not task.done(), within)
        return task.result()


@pytest.fixture(scope="module")
def _ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:
    with simulated_time():
        yield Ring(tmp_path_factory.mktemp("ring"))


@pytest.fixture
def ring(_ring: Ring) -> Ring:
    """The nodes agree again, after what an earlier test has done to them."""
    _ring.cluster.until(_ring.is_settled, 120)
    return _ring


def test_an_order_reaches_the_owner(
    ring: Ring, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is carried out there, durably, and logged with who gave it; errors come back too."""
    give, host = ring.orders().give, ring.host
    job = job_of(ring.crawler("b"))
    node = node_of(ring.crawler("b"))
    assert node is not None
    orders = node.orders
    # What happens at the owner, in order: "durable", or a step with the number of its order.
    steps: list[str] = []
    carry_out, reply = cluster_orders.carry_out, orders.reply

    async def make_durable(_: object) -> None:
        steps.append("durable")

    def carry(crawler: Crawler, order: OrderAsk) -> Plain:
        steps.append(f"carried {order.number}")
        return carry_out(crawler, order)

    def send(node: str, outcome: OrderReply) -> None:
        steps.append(f"reply {outcome.number}")
        reply(node, outcome)

    monkeypatch.setattr(job.commits, "make_durable", make_durable)
    monkeypatch.setattr(cluster_orders, "carry_out", carry)
    monkeypatch.setattr(orders, "reply", send)
    outcome = ring.result(give("pause", {"host": host}))
    assert outcome.done
    assert outcome.message.startswith(f"{host} is paused: krowl.resume({host!r}) lets it go on. It")
    assert (outcome.covered.hosts, outcome.covered.queued > 0) == ([host], True)
    frontier = ring.frontier("b")
    assert frontier.schedule.orders.holder_of(host)[1] == host
    assert f"Pause by a person at node a: {host}" in caplog.text
    assert ring.result(give("resume", {"host": host})).done
    assert frontier.schedule.orders.holder_of(host) is None
    rule = ring.result(give("block", {"name": f"https://{host}/"})).message
    assert "is blocked: krowl.unblock(" in rule
    for name in "ab":
        (note,) = ring.frontier(name).schedule.orders.blocks.rules.values()
        assert note.startswith("a person at node a, 2")
    assert ring.result(give("unblock", {"name": f"https://{host}/"})).done
    assert not ring.frontier("b").schedule.orders.is_holding
    ring.result(give("delay", {"host": host}))
    assert ring.result(give("delay", {"host": host, "seconds": 9})).done
    assert frontier.schedule.rule.of(host).minimum == 9
    with pytest.raises(OrderError, match="5 s"):
        ring.result(give("delay", {"host": host, "seconds": 1}))
    with pytest.raises(OwnerError, match="node b: the frontier has no host") as refused:
        ring.result(give("forget", {"name": f"{host}:1"}))
    assert refused.value.status == 404
    assert ring.result(give("delay", {"host": host})).done
    # Each was durable before its reply was there to be sent.
    replies = [step for step in steps if step.startswith("reply")]
    assert len(replies) >= 6
    for step in replies:
        begun = steps.index(step.replace("reply", "carried"))
        assert "durable" in steps[begun : steps.index(step)]


def test_the_owner_explains(ring: Ring) -> None:
    control, url = Control(ring.crawler("a")), f"http://{ring.host}/"
    here = control.explain(url)
    assert (here.state, here.owner) == ("foreign", "b")
    told = ring.result(ring.orders().explain_at(here))
    assert (told.state, told.owner, told.host) != ("foreign", "b", "")


def test_each_node_knows_the_others(ring: Ring) -> None:
    """Their shares, whether they agree on the ring, and what waits at each."""
    ring.cluster.run_for(2)
    rows = Control(ring.crawler("a")).nodes()
    assert [(each.node, each.is_own, each.state) for each in rows] == [
        ("a", True, "agreed"),
        ("b", False, "agreed"),
    ]
    assert sum(each.share for each in rows) == pytest.approx(1.0)
    assert all(each.done > 0 and each.queued > 0 for each in rows)
    assert [(each.outbox >= 0, each.inbox >= 0) for each in rows] == [(True, True)] * 2


def test_a_killed_node_is_silent_within_a_bound(ring: Ring) -> None:
    """Long before its lease ends; docs/watching.md names the bound."""
    control = Control(ring.crawler("a"))
    ring.cluster.until(lambda: control.nodes()[1].state == "agreed", 60)
    ring.cluster.freeze("b")
    begun = ring.cluster.now
    ring.cluster.until(lambda: control.nodes()[1].state != "agreed", 60)
    took = ring.cluster.now - begun
    ring.cluster.thaw("b")
    assert SILENT_AFTER - 1 <= took <= SILENT_AFTER + 3
    ring.cluster.until(lambda: control.nodes()[1].state == "agreed", 60)


def test_a_node_is_not_ready_without_its_redis(ring: Ring) -> None:
    control, redis = Control(ring.crawler("a")), ring.cluster.redis[ring.cluster.redis_url("a")]

    async def why_not() -> str:
        return control.why_nothing_is_sent()

    ring.cluster.until(lambda: ring.result(why_not()) == "", 60)
    redis.is_down = True
    ring.cluster.until(lambda: "its Redis does not answer" in ring.result(why_not()), 60)
    redis.is_down = False
    ring.cluster.until(lambda: ring.result(why_not()) == "", 60)


def test_the_console_shows_the_reply_when_it_comes(ring: Ring) -> None:
    """The console of Twisted prints the result of a Deferred."""
    crawler = ring.crawler("a")
    console = Console(crawler, "a person")

    async def shown(text: Text | Deferred[Text]) -> str:
        assert isinstance(text, Deferred)
        return repr(await text.asFuture(asyncio.get_running_loop()))

    async def asked() -> list[str]:
        host = ring.host
        return [
            await shown(each)
            for each in (
                console.delay(host, 9),
                console.delay(host, 1e9),
                console.explain(f"http://{host}/"),
            )
        ]

    done, refused, told = ring.result(asked())
    assert done.startswith(f"{ring.host} waits 9 s or more")
    assert refused.startswith("1e+09 s is no delay")
    assert "\n  node        b" in told


def test_an_owner_that_does_not_answer_is_named(ring: Ring) -> None:
    """The wait has an end; it is said whether the order may still be carried out."""
    give, redis = ring.orders().give, ring.cluster.redis[ring.cluster.redis_url("b")]
    ring.cluster.freeze("b")
    began = ring.cluster.now
    with pytest.raises(OwnerError, match=r"node b owns its host, .* still be carried") as silent:
        ring.result(give("forget", {"name": f"{ring.host}:1"}), WAIT + 1)
    assert silent.value.status == 504
    assert ring.cluster.now - began < WAIT + 1
    redis.is_down = True
    with pytest.raises(OwnerError, match="not sent, and nothing is changed"):
        ring.result(give("forget", {"name": f"{ring.host}:1"}), WAIT + 1)
    redis.is_down = False
    ring.cluster.thaw("b")
    ring.cluster.run_for(2)


def test_a_standing_order_reaches_a_node_that_comes_back(ring: Ring) -> None:
    """Of two that are given while it is away, the later one holds."""
    give, redis = ring.orders().give, ring.cluster.redis[ring.cluster.redis_url("b")]
    ring.cluster.freeze("b")
    redis.is_down = True
    given = ring.result(give("pause", {"host": "later.test"}), WAIT + 1)
    assert given.message.endswith("Node b does not answer, and gets the order when it is back.")
    assert "It is unknown: the order holds when it comes. " in given.message
    redis.is_down = False
    ring.cluster.thaw("b")
    orders = ring.frontier("b").schedule.orders
    ring.cluster.until(lambda: orders.holder_of("later.test:8080") is not None, 30)
    ring.cluster.freeze("b")
    ring.result(give("resume", {"host": "later.test"}), WAIT + 1)
    ring.cluster.thaw("b")
    ring.cluster.until(lambda: not orders.is_holding, 30)
    ring.result(give("block", {"name": "later.test"}))
    ring.cluster.kill("b")
    ring.result(give("unblock", {"name": "later.test"}), WAIT + 1)
    ring.result(give("block", {"name": "com,"}), WAIT + 1)
    ring.cluster.start("b")
    ring.cluster.until(lambda: ring.cluster.running["b"].crawl is not None, 60)
    ring.extensions["b"] = ClusterOrders(ring.crawler("b"))
    rules = ring.frontier("b").schedule.orders.blocks.rules
    ring.cluster.until(lambda: list(rules) == ["com,"], 60)
    ring.result(give("unblock", {"name": "com,"}))


def test_a_node_that_comes_back_fetches_nothing_against_an_order(ring: Ring) -> None:
    """It waits for the orders that were given while it was away, and then goes on."""
    ring.cluster.kill("b")
    ring.result(ring.orders().give("block", {"name": ring.host}), WAIT + 1)
    mark = len(ring.cluster.web.log)
    ring.cluster.start("b")
    ring.cluster.until(lambda: ring.cluster.running["b"].crawl is not None, 60)
    ring.extensions["b"] = ClusterOrders(ring.crawler("b"))
    # The other node sends them late.
    ring.cluster.freeze("a")
    ring.cluster.run_for(8)
    ring.cluster.thaw("a")

    def asked() -> list[Entry]:
        return [entry for entry in ring.cluster.web.log[mark:] if entry.ua == "b"]

    ring.cluster.until(lambda: len(asked()) > 5, 120)
    assert ring.owner(ring.host) == "b"
    assert [entry for entry in asked() if entry.host.startswith(ring.host)] == []
    ring.result(ring.orders().give("unblock", {"name": ring.host}))
    ring.cluster.until(lambda: asked()[-1].host.startswith(ring.host), 60)


def test_a_pause_of_the_crawl_holds_at_all_nodes(ring: Ring) -> None:
    """Given at one node, by API or console, and so does its end, given at the other."""

    def asked(seconds: float) -> set[str]:
        mark = len(ring.cluster.web.log)
        ring.cluster.run_for(seconds)
        return {entry.ua for entry in ring.cluster.web.log[mark:]}

    done, message, _ = ring.result(ring.orders().give("pause", {}))
    assert done
    assert message.startswith("paused at all nodes")
    asked(5)
    assert asked(20) == set()
    for name in "ab":
        assert pause_reason(crawl_of(ring.crawler(name))).startswith("paused by a person at all")

    async def resumed() -> str:
        said = Console(ring.crawler("b"), "a person").resume()
        assert isinstance(said, Deferred)
        return repr(await said.asFuture(asyncio.get_running_loop()))

    assert ring.result(resumed()) == "it goes on at all nodes, within 5 s"
    asked(5)
    assert asked(20) == {"a", "b"}


def test_a_pause_that_may_not_have_been_sent_is_no_pause(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_of(ring.crawler("a"))
    assert node is not None

    async def unanswered(name: str, value: str) -> None:
        raise UnansweredError("no answer")

    monkeypatch.setattr(node.cluster.keys, "put", unanswered)
    with pytest.raises(OrderError, match="may be sent or not: no answer; give the order again"):
        ring.result(ring.orders().give("pause", {}))
    assert not node.is_paused


def test_without_the_extension_orders_are_refused(ring: Ring) -> None:
    crawler, extension = ring.crawler("b"), ring.extensions["b"]
    crawler.signals.disconnect(extension.on_order, order_received)
    give = ring.orders().give
    with pytest.raises(OwnerError, match="ClusterOrders is off; give") as refused:
        ring.result(give("forget", {"name": ring.host}))
    paused = ring.result(give("pause", {"host": ring.host}))
    crawler.signals.connect(extension.on_order, order_received)
    assert refused.value.status == 409
    assert " Not carried out by node b: it takes no orders of other nodes" in paused.message
    ring.cluster.until(lambda: ring.frontier("b").schedule.orders.is_holding, 30)
    ring.result(give("resume", {"host": ring.host}))


def test_what_is_no_order_goes_to_the_dead_list(ring: Ring) -> None:
    redis = ring.cluster.redis[ring.cluster.redis_url("b")]
    bad = (
        b"{",
        changed(ASK, node="z"),
        changed(ASK, name="add"),
        changed(ASK, fields={"host": "b.test"}),
        changed(ASK, name="forget", fields={"name": 7}),
        changed(ASK, name="take_orders", fields={}),
    )
    redis.do(("LPUSH", orders_key("broad"), *bad))
    ring.cluster.run_for(1)
    notes = [json.loads(each)["reason"] for each in redis.data["broad:dead"]]
    assert len(notes) == len(bad)


def test_each_url_of_a_file_goes_to_its_owner(ring: Ring) -> None:
    """Also in lines of an export, with what they say. The answer counts those that are sent."""
    urls = [f"http://{ring.cluster.web.name(host)}/p900" for host in range(6)]
    owners = {url: ring.owner(url.split("/")[2]) for url in urls}
    lines = [*urls[:3], *(json.dumps({"url": url, "depth": 2}) for url in urls[3:]), "a b"]

    async def pieces() -> AsyncIterator[list[bytes]]:
        yield [line.encode() for line in lines]

    found = ring.result(ring.orders().take(pieces()))
    here = sum(owner == "a" for owner in owners.values())
    assert (found.new, found.sent, found.bad) == (here, 6 - here, 1)
    assert here < 6
    again = ring.result(ring.orders().take(pieces()))
    assert (again.done, again.known) == (False, 6)

    def places() -> dict[str, str]:
        """The nodes that have them queued, or have asked for them already."""
        asked = {entry.url: entry.ua for entry in ring.cluster.pages() if entry.url in owners}
        return asked | {
            entry.url: name
            for name in "ab"
            for key, value in all_entries(ring.frontier(name).store)
            if (entry := entry_of(key, value)).url in owners
        }

    ring.cluster.until(lambda: places() == owners, 60)

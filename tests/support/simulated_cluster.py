"""A cluster in simulated time: nodes that join, leave, die, freeze, and lose their servers.

Each process of a node has an event loop of its own, which is run in steps; frontier, scheduler,
politeness, membership, hand-over, inbox, outbox and heartbeats are real. Simulated are the web, the
clocks, Scrapy's engine, and the servers of Consul and Redis.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from heapq import heapify
from random import Random
from types import SimpleNamespace, coroutine
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from scrapy.exceptions import CloseSpider
from scrapy.settings import Settings
from scrapy.utils.defer import maybe_deferred_to_future

from krowlspider.cluster.controller import OwnershipController
from krowlspider.cluster.membership import ClusterError
from krowlspider.cluster.register import lease, membership
from krowlspider.cluster.register import lease as seed
from krowlspider.cluster.transport.forwarder import Forwarder, Streams
from krowlspider.fetch.errors import ConnectionLost
from krowlspider.job.answers.retries import as_scrapy
from krowlspider.job.nodes import cluster as cluster_node
from krowlspider.job.nodes import leaving
from krowlspider.job.nodes.node import Node
from krowlspider.job.nodes.receiver import LoopShare, Time
from krowlspider.job.nodes.sender import HandoverSender
from krowlspider.urls.canonical import IdentityHasher
from tests.frontier.memory import MemoryStore
from tests.mockweb.audit import violations
from tests.support.crawling import CONTACT
from tests.support.memory_servers import MemoryAgent, MemoryClients, MemoryConsul, MemoryRedis
from tests.support.simulation import (
    COMMIT_S,
    Answer,
    Clocks,
    SimulatedHandler,
    SimulatedJob,
    Simulation,
    Web,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from scrapy.http import Request, Response

    from krowlspider.frontier.store.store import Batch
    from tests.mockweb.audit import Crowd
    from tests.mockweb.log import Entry

NAME = "tests"
START = 1000.0
_WALL = 1_700_000_000.0
# Seconds of a step, in which each process runs by itself.
STEP = 0.2
# Seconds after the last page within which every process ends.
END_WITHIN = 30.0


class _Selector(selectors.DefaultSelector):
    """Advances the time of its loop instead of waiting."""

    now = START

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None and timeout > 0:
            self.now += timeout
        return super().select(0)


class ProcessLoop(asyncio.SelectorEventLoop):
    """The loop of one process; it runs only in `run_to`. What was due before is then late."""

    def __init__(self, now: float) -> None:
        self._jumping = _Selector()
        self._jumping.now = now
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def skip_to(self, now: float) -> None:
        """Let time pass in which the process does not run."""
        self._jumping.now = max(self._jumping.now, now)

    def run_to(self, now: float) -> None:
        self.call_at(now, self.stop)
        self.run_forever()


class _ProcessClocks(Clocks):
    """The clocks of a process: its loop's, but those of its crawl, which is behind, while that
    ``works``."""

    def __init__(self, loop: ProcessLoop, wall: float) -> None:
        self._loop = loop
        self._lead = wall - loop.time()
        self.works = False
        self.worked_until = loop.time()

    @property
    def monotonic(self) -> float:  # type: ignore[override]
        return self.worked_until if self.works else self._loop.time()

    @property
    def wall(self) -> float:  # type: ignore[override]
        return self.monotonic + self._lead

    def pass_(self, seconds: float) -> None:
        self.worked_until += seconds


class _HungUpError(Exception):
    """Thrown into a download whose connection is closed, ``answered_at`` or before."""

    def __init__(self, answered_at: float) -> None:
        self.answered_at = answered_at


class ClusterHandler(SimulatedHandler):
    """Fetches from the simulated web, as the node that the User-Agent names; can be hung up."""

    async def download_request(self, request: Request) -> Response:
        crawl = self._crawl
        assert isinstance(crawl, _Crawl)
        try:
            return await super().download_request(request)
        except _HungUpError as hung_up:
            entry = crawl.open.pop(request)
            # A server may have sent its answer while this process was frozen.
            entry.end = min(hung_up.answered_at, crawl.clocks.monotonic)
            entry.complete = entry.end == hung_up.answered_at
            crawl.web.log.append(entry)
            error = ConnectionLost("hung up as simulated")
            raise as_scrapy(error) from error
        finally:
            # An exchange that took place is the last entry; without one, that has its node.
            for entry in crawl.web.log[-1:]:
                entry.ua = entry.ua or crawl.node.own


class _Job(SimulatedJob):
    """The job of a process."""

    def commit_now(self) -> None:
        super().commit_now()
        crawl = self._simulation
        assert isinstance(crawl, _Crawl)
        crawl.uncommitted.clear()


class _Commits:
    """Only writes: a kill loses nothing that is written."""

    is_open = True

    def __init__(self, job: _Job) -> None:
        self._job = job

    async def commit(self) -> None:
        self._job.commit_now()

    async def make_durable(self, batch: Batch | None = None) -> None:
        if batch is not None:
            batch.write()


class _Crawl(Simulation):
    """The crawl of a process. It sends nothing any more while ``is_closing``.

    ``uncommitted`` are the URLs that have ended since the last commit.
    """

    is_closing = False
    clocks: _ProcessClocks

    def __post_init__(self) -> None:
        self.uncommitted: set[str] = set()
        super().__post_init__()

    def _ended(self, request: Request, result: Response | Request | None) -> None:
        self.uncommitted.add(request.url)
        super()._ended(request, result)

    def work_until(self, now: float) -> None:
        """Crawl in the time since the last call, and commit every second."""
        before = self.clocks.worked_until
        self.clocks.works = True
        self.run_until(now)
        self.clocks.works = False
        if int(before / COMMIT_S) != int(now / COMMIT_S):
            self.job.commit_now()

    def _send(self, end: float) -> None:
        if not self.is_closing:
            super()._send(end)

    def hang_up(self) -> None:
        now, events = self.clocks.monotonic, self._events
        self._events = []
        for at, _, work, request in events:
            if request in self.open:
                self._throw(work, request, at)
            else:
                self._events.append((now, next(self._numbers), work, request))
        heapify(self._events)

    def _throw(self, work: Any, request: Request, answered_at: float) -> None:
        @coroutine
        def thrown() -> Generator[Any, None, Any]:
            """Throw into the download, and be the download from then on."""
            try:
                pause = work.throw(_HungUpError(answered_at))
            except StopIteration as end:
                return end.value
            yield pause
            return (yield from work)

        self._step(thrown(), request)  # type: ignore[arg-type]

    def idle_until(self, now: float) -> None:
        """Let time pass in which this process is frozen."""
        self.clocks.worked_until = max(now, self.clocks.worked_until)


class Process:
    """One start of node ``name``, on the data that the last one left. ``end`` is its reason."""

    def __init__(self, cluster: SimulatedCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.disk = cluster.disks.setdefault(name, {})
        self.loop = ProcessLoop(cluster.now)
        self.is_alive = True
        self.is_frozen = False
        self.asked_to_stop = False
        self.reason = self.error = ""
        self.end: float | None = None
        self.crawl: _Crawl | None = None
        self._main = self.loop.create_task(self._live())

    @property
    def has_joined(self) -> bool:
        return self.crawl is not None and self.crawl.node.joined

    def run_to(self, now: float) -> None:
        if self.is_frozen:
            return
        if self.crawl is not None and self.loop.time() < self.cluster.now - STEP / 2:
            self.crawl.idle_until(self.cluster.now)
        self.loop.skip_to(self.cluster.now)
        self.loop.run_to(now)
        if self._main.done():
            self._main.result()
            self._cancel_all()
            self._close_loop(now)

    def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def kill(self) -> set[str]:
        """End without a word. Return the URLs that were in flight or not committed."""
        lost: set[str] = set()
        if self.crawl is not None:
            crawl = self.crawl
            lost = {request.url for request in crawl.open} | crawl.uncommitted
            for entry in crawl.open.values():
                entry.end, entry.complete, entry.status = self.cluster.now, False, 0
                entry.ua = self.name
                self.cluster.web.log.append(entry)
        self.disk = dict(self.disk)
        self.cluster.disks[self.name] = self.disk
        self.is_alive, self.reason = False, "killed"
        if self.crawl is not None:
            for _, _, work, _ in self.crawl._events:
                work.close()
        self._cancel_all()
        self._close_loop(self.cluster.now)
        return lost

    def _close_loop(self, now: float) -> None:
        self.end = now
        self.is_alive = False
        self.loop.close()

    async def _live(self) -> None:
        try:
            await self._crawl_all()
        except ClusterError as error:
            self.reason, self.error = "refused", str(error)

    async def _crawl_all(self) -> None:
        cluster = self.cluster
        node = cluster.make_node(self)
        offered = cluster.seeds.get(self.name)
        found = await node.cluster.membership.seed.agree(offered)
        cluster.seeds[self.name] = found
        crawl = self.crawl = cluster.make_crawl(self, node, found)
        engine: Any = crawl.crawler.engine
        engine.close_spider_async, engine._start = self._closed, None
        with suppress(CloseSpider):
            await crawl.scheduler.join()
            # A node that starts when the others have ended would begin the crawl anew.
            if not cluster.pages():
                crawl.discover(cluster.seed_urls)
        leaving: asyncio.Future[None] | None = None
        while not (node.over or self.reason or crawl.job.failure or (leaving and leaving.done())):
            await asyncio.sleep(STEP)
            crawl.work_until(self.loop.time())
            if self.asked_to_stop and leaving is None:
                leaving = asyncio.ensure_future(crawl.scheduler.shrink())
        if crawl.job.failure is not None:
            self.reason, self.error = "refused", str(crawl.job.failure)
        self.reason = self.reason or ("finished" if node.over else "shutdown")
        crawl.is_closing = True
        while crawl.open:
            await asyncio.sleep(STEP)
            crawl.work_until(self.loop.time())
        await maybe_deferred_to_future(crawl.scheduler.close(self.reason))

    async def _closed(self, reason: str) -> None:
        self.reason = reason


class ClusterWeb(Web):
    """``hosts`` hosts, each a domain of its own, with ``pages`` pages that form a tree.

    The root links to roots of other hosts, pages link to pages elsewhere. Each ``redirecting``-th
    host has its robots.txt at the next host. All have one ``address`` if it is given.
    """

    def __init__(
        self, hosts: int, pages: int, *, redirecting: int = 0, shared_address: str = ""
    ) -> None:
        super().__init__()
        self.hosts = hosts
        self.pages = pages
        self._redirecting = redirecting
        self._address = shared_address

    def name(self, host: int) -> str:
        return f"site{host % self.hosts}.test"

    def _number(self, host: str) -> int:
        return int(host.removeprefix("site").removesuffix(".test"))

    def answer(self, host: str, path: str, now: float) -> Answer:
        number = self._number(host)
        latency = 0.05 + (hash((number, len(path))) % 20) / 100
        if path != "/robots.txt":
            return Answer(latency)
        if self._redirecting and number % self._redirecting == 0:
            return Answer(latency, 301, location=f"http://{self.name(number + 1)}/robots.txt")
        return Answer(latency, body=b"User-agent: *\nDisallow: /private\n")

    def address(self, host: str) -> str:
        number = self._number(host)
        return self._address or f"192.0.{number // 200}.{number % 200}"

    def links(self, host: str, path: str) -> list[str]:
        number, page = self._number(host), int(path.removeprefix("/p") or 0) if path != "/" else 0
        own = [each for each in (2 * page + 1, 2 * page + 2) if each < self.pages]
        found = [f"http://{host}/p{each}" for each in own]
        chance = Random(number * 1000 + page)
        for _ in range(3):
            other = self.name(chance.randrange(self.hosts))
            found.append(f"http://{other}/p{chance.randrange(1, self.pages)}")
        if page == 0:
            found += [f"http://{self.name(each)}/" for each in (2 * number + 1, 2 * number + 2)]
        return [*found, f"http://{host}/private"]

    def all_urls(self) -> set[str]:
        paths = ["/", *(f"/p{page}" for page in range(1, self.pages))]
        return {f"http://{self.name(host)}{path}" for host in range(self.hosts) for path in paths}


@dataclass(eq=False)
class SimulatedCluster:
    """Nodes that crawl ``web``.

    ``skew`` has the seconds by which a node's wall clock is wrong, ``ids`` and ``redis_urls`` the
    ids and Redis of nodes that are not their own. Waits after failures are partly by ``chances``.
    """

    web: ClusterWeb
    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    skew: dict[str, float] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    redis_urls: dict[str, str] = field(default_factory=dict)
    chances: Random = field(default_factory=lambda: Random(1))

    def __post_init__(self) -> None:
        self.now = START
        self.consul = MemoryConsul(lambda: self.now)
        # As if the cluster were old: leases begin at once.
        self.consul.put(f"krowlspider/{NAME}/founded", "1")
        self.consul.put(f"krowlspider/{NAME}/seed", b"anyseed8".hex())
        self.redis: defaultdict[str, MemoryRedis] = defaultdict(MemoryRedis)
        self.disks: dict[str, dict[bytes, bytes]] = {}
        self.seeds: dict[str, bytes] = {}
        self.seed_urls = [f"http://{self.web.name(0)}/"]
        self.running: dict[str, Process] = {}
        self.ended: list[Process] = []
        # URLs that kills may have had fetched again: in flight or not committed.
        self.may_repeat: Counter[str] = Counter()
        # The time of the last trouble: processes need not end before.
        self.quiet_since = START
        self._folders = 0

    # --- parts of a process ---

    def _settings(self, name: str) -> Settings:
        settings = Settings()
        settings.setmodule("krowlspider.settings")
        place = {
            "KROWL_CONTACT": CONTACT,
            "KROWL_CONSUL": "http://consul.test",
            "KROWL_CLUSTER": NAME,
            "KROWL_NODE_ID": self.ids.get(name, name),
            "REDIS_URL": self.redis_url(name),
        }
        settings.setdict({**place, **self.settings})
        return settings

    def redis_url(self, name: str) -> str:
        return self.redis_urls.get(name, f"redis://{name}.test/0")

    def make_node(self, process: Process) -> Node:
        def is_alive() -> bool:
            return process.is_alive

        agent = MemoryAgent(self.consul, is_alive)
        clients = MemoryClients(self.redis, is_alive)
        with (
            patch.object(cluster_node, "open_register", lambda *_: agent),
            patch.object(cluster_node, "RedisClients", lambda: clients),
        ):
            return Node(self._settings(process.name), "broad", cluster_node.Cluster)

    def make_crawl(self, process: Process, node: Node, seed: bytes) -> _Crawl:
        self._folders += 1
        folder = self.folder / str(self._folders)
        folder.mkdir()
        crawls: list[_Crawl] = []

        class Store(MemoryStore):
            def __init__(self) -> None:
                super().__init__()
                self._data = process.disk
                self.get = process.disk.get

            def close(self) -> None:
                pass

        class OwnJob(_Job):
            def __init__(self, simulation: Simulation, settings: Settings) -> None:
                super().__init__(simulation, settings)
                self.commits = _Commits(self)  # type: ignore[assignment]
                self.fetching.client = SimpleNamespace(hang_up=simulation.hang_up)

            def _open(self, asked: Any) -> None:
                super()._open(asked)
                self.hasher = IdentityHasher(int.from_bytes(seed, "big"))
                node.robots_post._wall = self.wall

        wall = _WALL + process.loop.time() - START + self.skew.get(process.name, 0.0)
        clocks = _ProcessClocks(process.loop, wall)
        handlers = dict.fromkeys(
            ("http", "https"), "tests.support.simulated_cluster.ClusterHandler"
        )
        overrides = {
            "KROWL_SITEMAPS": False,
            "KROWL_DISK_FLOOR": 0,
            **self.settings,
            "DOWNLOAD_HANDLERS": handlers,
        }
        crawls.append(
            _Crawl(
                self.web,
                lambda _: Store(),
                folder,
                overrides,
                clocks,
                chances=self.chances,
                job_class=OwnJob,
                node=node,
                may_fetch=node.may_fetch,
                peers=node.robots_post,
            )
        )
        return crawls[0]

    # --- acts ---

    def start(self, name: str) -> Process:
        assert name not in self.running
        process = Process(self, name)
        self.running[name] = process
        return process

    def stop(self, name: str) -> None:
        """As Ctrl-C does."""
        self.running[name].asked_to_stop = True

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        self.may_repeat.update(process.kill())
        self.ended.append(process)

    def freeze(self, name: str) -> None:
        """As SIGSTOP does. When it thaws, it drops answers that are too old to be its own."""
        process = self.running[name]
        process.is_frozen = True
        if process.crawl is not None:
            self.may_repeat.update(request.url for request in process.crawl.open)

    def thaw(self, name: str) -> None:
        """As SIGCONT does."""
        self.running[name].is_frozen = False

    def run_for(self, seconds: float) -> None:
        self.run_while(lambda: True, seconds)

    def run_while(self, condition: Callable[[], bool], most: float) -> None:
        """Run while a condition holds, for ``most`` seconds at most."""
        end = self.now + most
        while self.now < end and condition():
            then = self.now + STEP
            for name, process in list(self.running.items()):
                process.run_to(then)
                if process.end is not None:
                    del self.running[name]
                    self.ended.append(process)
            self.now = then

    def until(self, condition: Callable[[], bool], most: float = 600.0) -> None:
        self.run_while(lambda: not condition(), most)
        assert condition(), "it never happened"

    def finish(self, most: float = 900.0) -> None:
        """Run until no process runs."""
        self.run_while(lambda: bool(self.running), most)

    # --- judgement ---

    @property
    def pending_nodes(self) -> list[str]:
        """The nodes that may have work on their disks, by Consul."""
        prefix = f"krowlspider/{NAME}/crew/"
        return [key.removeprefix(prefix) for key in self.consul.names(prefix)]

    def pages(self, *nodes: str) -> list[Entry]:
        """Return the requests for pages by these nodes, or by any."""
        found = [entry for entry in self.web.log if entry.path != "/robots.txt"]
        return [entry for entry in found if not nodes or entry.ua in nodes]

    def faults(self, *, repeats: Iterable[str] = (), crowds: Sequence[Crowd] = ()) -> list[str]:
        """Return what went wrong, a line each; pages of ``repeats`` may be fetched once more."""
        delay = self.settings.get("KROWL_DELAY_MIN", 0.25)
        fetched = Counter(entry.url for entry in self.pages() if entry.complete)
        allowed = Counter(dict.fromkeys(fetched, 1)) + self.may_repeat + Counter(repeats)
        last = max(self.quiet_since, *(entry.end for entry in self.pages()))
        late = [
            f"node {each.name} ended {each.end - last:.0f} s after all was done"
            for each in self.ended
            if each.end is not None and each.end > last + END_WITHIN
        ]
        return [
            *(f"missing: {url}" for url in sorted(self.web.all_urls() - fetched.keys())),
            *(f"unknown: {url}" for url in sorted(fetched.keys() - self.web.all_urls())),
            *(f"{number} too often: {url}" for url, number in (fetched - allowed).items()),
            *violations(
                self.web.log,
                min_delay=delay,
                allowed=lambda _, path: path != "/private",
                crowds=crowds,
            ),
            *late,
            *(f"node {name} is still pending" for name in self.pending_nodes),
            *(f"node {name} still runs" for name in self.running),
            *(f"{each.name}: {each.error}" for each in self.ended if each.error),
        ]


def _monotonic() -> float:
    return asyncio.get_running_loop().time()


@contextmanager
def simulated_time() -> Iterator[None]:
    """Let all parts of a node read the clock of the running loop."""
    time = Time(_monotonic, asyncio.sleep)
    with ExitStack() as stack:
        for module in (lease, membership, seed, leaving):
            stack.enter_context(patch.object(module, "monotonic", _monotonic))
        fake = SimpleNamespace(monotonic=_monotonic)
        stack.enter_context(patch.object(cluster_node, "time", fake))
        for function, name in (
            (OwnershipController.__init__, "clock"),
            (Forwarder.__init__, "clock"),
            (Streams.__init__, "clock"),
        ):
            stack.enter_context(patch.dict(function.__kwdefaults__, {name: _monotonic}))
        stack.enter_context(patch.dict(HandoverSender.__init__.__kwdefaults__, {"time": time}))
        stack.enter_context(patch.object(LoopShare.__init__, "__defaults__", (time,)))
        yield

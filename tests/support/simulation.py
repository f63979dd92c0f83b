"""A crawl in simulated time, in which an hour takes seconds.

Scheduler, downloader, middlewares, robots gate and frontier are real; web, engine and clocks are
simulated.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from email.utils import formatdate
from heapq import heappop, heappush
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Request, Response
from scrapy.settings import Settings
from scrapy.signalmanager import SignalManager
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.defer import maybe_deferred_to_future

from krowlspider.engine.downloader import Downloader
from krowlspider.engine.handler import DownloadHandler
from krowlspider.engine.scheduler import Scheduler
from krowlspider.fetch.errors import AddressBusy, FetchError, NameFailed, NameNotFound
from krowlspider.fetch.memory import FetchMemory
from krowlspider.fetch.resolver import ResolverStats
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.seen import SeenSet
from krowlspider.frontier.work_mark import WorkMark
from krowlspider.job import crawls
from krowlspider.job.answers.outages import Outages
from krowlspider.job.answers.retries import as_scrapy
from krowlspider.job.job import Job, LastProcess
from krowlspider.job.parts import frontier_limits, robots_fetches
from krowlspider.spiders.broad import BroadSpider
from krowlspider.urls.canonical import IdentityHasher, host_of
from tests.frontier.memory import MemoryStore
from tests.mockweb.log import Entry
from tests.support.crawling import CONTACT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable

    from krowlspider.frontier.robots.fetches import Peers
    from krowlspider.frontier.store.store import Store
    from krowlspider.job.nodes.node import Node
    from krowlspider.urls.scope import AskedScope

COMMIT_S = 1.0
# Seconds of the loop that sending a request takes.
SEND_S = 0.0002
DATE = "date"


@dataclass(slots=True)
class Clocks:
    """The clocks of a machine, in seconds: a wall clock, which may be set, and a monotonic one."""

    monotonic: float = 1000.0
    wall: float = 1_700_000_000.0

    def pass_(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds


@dataclass(slots=True)
class Answer:
    """An answer, or a failure of the class ``failure``, ``latency`` seconds after the request.

    ``retry_after`` is the text of that header, or `DATE` for a date; ``rest`` is its meaning in
    seconds.
    """

    latency: float
    status: int = 200
    body: bytes = b""
    location: str | None = None
    retry_after: str | None = None
    rest: float = 0.0
    failure: type[FetchError] | None = None

    def headers(self, wall: float) -> dict[str, str]:
        """Return the headers of the answer, sent at the time ``wall``."""
        after = self.retry_after
        if after == DATE:
            # A date has whole seconds only, so round up.
            after = formatdate(wall + self.rest + 1, usegmt=True)
        given = {"Location": self.location, "Retry-After": after}
        if after is not None:
            given["Date"] = formatdate(wall, usegmt=True)
        return {name: value for name, value in given.items() if value is not None}


class Web:
    """The simulated web. ``log`` is the request log of its servers."""

    def __init__(self) -> None:
        self.log: list[Entry] = []

    def answer(self, host: str, path: str, now: float) -> Answer:
        """Answer a request at the time ``now``, in monotonic seconds."""
        raise NotImplementedError

    def address(self, host: str) -> str:
        """Return the address of a host."""
        raise NotImplementedError

    def links(self, host: str, path: str) -> list[str]:
        """Return the links of a page."""
        raise NotImplementedError


class _Pause:
    """Awaited by a coroutine that waits for ``seconds`` of simulated time."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def __await__(self) -> Generator[_Pause, None, None]:
        yield self


class SimulatedHandler(DownloadHandler):
    """Replaces the download handler: fetches from the simulated web."""

    def __init__(self, crawler: SimulatedCrawler):
        BaseDownloadHandler.__init__(self, crawler)  # type: ignore[arg-type]
        self._crawl = crawler.simulation

    async def download_request(self, request: Request) -> Response:
        crawl, clocks = self._crawl, self._crawl.clocks
        in_flight = crawl.scheduler.flights.get(request)
        assert in_flight is not None
        host = in_flight.host.name
        path = "/" + in_flight.url.split("/", 3)[3]
        start = clocks.monotonic
        address = crawl.web.address(host)
        if not crawl.job.frontier.schedule.reserve_address(in_flight.host, address):
            raise AddressBusy(address)
        in_flight.memory = FetchMemory(crawl.job.memory)
        answer = crawl.web.answer(host, path, start)
        entry = Entry(
            start, 0.0, host, path, "GET", answer.status, 0, "", "", 0, "", False, True, 0
        )
        entry.address = address
        crawl.open[request] = entry
        await _Pause(answer.latency)
        del crawl.open[request]
        # The server ends it then, also while this process is frozen.
        entry.end, entry.retry_after = min(clocks.monotonic, start + answer.latency), answer.rest
        crawl.web.log.append(entry)
        nameless = answer.failure is not None and issubclass(answer.failure, NameFailed)
        if not nameless or answer.failure is NameNotFound:
            crawl.job.fetching.resolver.stats.answered += 1
        if answer.failure is not None:
            entry.status, entry.complete = 0, False
            error = answer.failure(f"{host} as simulated")
            raise as_scrapy(error) from error
        request.meta["download_latency"] = entry.end - start
        return Response(
            in_flight.url,
            status=answer.status,
            headers=answer.headers(clocks.wall),
            body=answer.body,
            request=request,
            ip_address=ip_address(address),
        )

    async def close(self) -> None:
        """Do nothing: no connection is open."""


class _Slot:
    """The slot of the engine. ``wanted`` is set when it must look for requests."""

    closing = None

    def __init__(self) -> None:
        self.nextcall = self
        self.wanted = False

    def schedule(self, delay: float = 0) -> None:
        self.wanted = True

    def remove_request(self, request: Request) -> None:
        """Do nothing: the scheduler wraps this method."""


class _Scraper:
    concurrent_items = 16

    async def _scrape(self, result: object, request: Request) -> None:
        raise AssertionError("a simulation scrapes no pages")


class _Engine:
    def __init__(self) -> None:
        self._slot = _Slot()
        self.scraper = _Scraper()
        self.scheduler: Scheduler


class SimulatedCrawler:
    """The parts of a Crawler that this project uses."""

    def __init__(self, simulation: Simulation, settings: Settings):
        self.simulation = simulation
        self.settings = settings
        self.signals = SignalManager(self)
        self.stats = MemoryStatsCollector(self)  # type: ignore[arg-type]
        self.engine = _Engine()
        self.spider = BroadSpider()


class _Room:
    """An empty disk with room: stands for the folder, the archive and the result of a mend."""

    temporary = stalled = full = False
    open_to_others = ""
    files = bytes_cut = 0
    damaged = salvaged = ()
    path = "simulated"
    directory = Path("simulated")

    def lines_with(self, _: str) -> list[str]:
        return []


class SimulatedJob(Job):
    """A job with the clocks and the store of a simulation, and no archive."""

    def __init__(self, simulation: Simulation, settings: Settings):
        self._simulation = simulation
        self.wall = lambda: simulation.clocks.wall
        self.cpu = lambda: simulation.clocks.monotonic
        self.chance = simulation.chances.random
        super().__init__(settings, asked=simulation.crawler.spider.asked_scope)

    def _open(self, asked: AskedScope | None) -> None:
        self.scope, self.replaces_scope = None if asked is None else asked.rules, False
        self.folder = self.archive = mended = _Room()  # type: ignore[assignment]
        self.is_paused = False
        self._open_note = None  # type: ignore[assignment]
        self.last_process = LastProcess([], [], mended, None)  # type: ignore[arg-type]
        names = ResolverStats()
        self.fetching = SimpleNamespace(  # type: ignore[assignment]
            resolver=SimpleNamespace(stats=names)
        )
        self.mark = WorkMark(self._simulation.folder / "mark", b"boot")
        self.notes = self.traces = self.signer = None  # type: ignore[assignment]
        settings, clocks = self._settings, self._simulation.clocks
        self.store = self._simulation.store  # type: ignore[assignment]
        self.hasher = IdentityHasher(1)
        self.frontier = Frontier(
            self._simulation.store,
            SeenSet(self._simulation.store, 200_000),
            frontier_limits(settings),
            self.rule,
            monotonic=lambda: clocks.monotonic,
            wall=self.wall,
            boot=b"boot",
            may_fetch=self._simulation.may_fetch,
        )
        self.robots_fetches = robots_fetches(
            settings, self.frontier, self.wall, self._robots_found, self._simulation.peers
        )
        self.outages = Outages(self.frontier, names, self.stop_for)

    def give_up(self) -> None:
        """Wait for no archive: there is none."""

    def run(self, **calls: object) -> None:
        """Start no timers: the simulation commits."""

    @property
    def stalled(self) -> None:
        return None

    @property
    def full(self) -> None:
        return None

    def commit_now(self) -> None:
        commit = self.frontier.begin_commit()
        commit.write()
        self.frontier.end_commit(commit)

    async def close(self) -> None:
        self.commit_now()
        self.frontier.close()


@dataclass(eq=False)
class Simulation:
    """A crawl of a web by successive processes with a common store.

    ``reopen`` returns the store of the next process, after a clean end (True) or a kill (False).
    ``may_fetch`` and ``peers`` are those of ``node`` in a cluster. Waits after failures are partly
    by ``chances``; all else is the same in each run.
    """

    web: Web
    reopen: Callable[[bool], Store]
    folder: Path
    overrides: dict[str, Any] = field(default_factory=dict)
    clocks: Clocks = field(default_factory=Clocks)
    chances: Random = field(default_factory=lambda: Random(1))
    job_class: type[SimulatedJob] = SimulatedJob
    node: Node | None = None
    may_fetch: Callable[[str], bool] | None = None
    peers: Peers | None = None

    def __post_init__(self) -> None:
        self._numbers = count()
        self.dropped: Counter[str] = Counter()
        # The times at which processes were killed, in monotonic seconds.
        self.deaths: list[float] = []
        # Most requests in flight at a time.
        self.busiest = 0
        self._start(in_order=True)

    # --- processes ---

    def _start(self, *, in_order: bool) -> None:
        settings = Settings()
        settings.setmodule("krowlspider.settings")
        handlers = dict.fromkeys(("http", "https"), "tests.support.simulation.SimulatedHandler")
        settings.setdict({"DOWNLOAD_HANDLERS": handlers, "KROWL_CONTACT": CONTACT})
        settings.setdict(self.overrides)
        self.store = self.reopen(in_order)
        self.open: dict[Request, Entry] = {}
        self._events: list[tuple[float, int, Coroutine[Any, Any, Any], Request]] = []
        self.crawler = SimulatedCrawler(self, settings)
        self.job = self.job_class(self, settings)
        if self.node is None:
            self.node = crawls._node(settings, self.crawler.spider.name, None)
        crawls._crawls[self.crawler] = crawls.Crawl(  # type: ignore[index]
            self.job, self.node
        )
        self.scheduler = Scheduler(self.crawler)  # type: ignore[arg-type]
        self.crawler.engine.scheduler = self.scheduler
        self.downloader = Downloader(self.crawler)  # type: ignore[arg-type]
        self.scheduler.open(self.crawler.spider)

    async def restart(self, down: float, wall_jump: float = 0.0) -> None:
        """Stop by SIGINT, which lets requests in flight end; start again ``down`` seconds later.

        The wall clock jumps by ``wall_jump`` seconds meanwhile.
        """
        while self._events:
            self._advance(self._events[0][0])
        await maybe_deferred_to_future(self.scheduler.close("shutdown"))
        self._again(down, wall_jump, in_order=True)

    def crash(self, down: float, wall_jump: float = 0.0) -> None:
        """Kill the process: connections break. The next process has the data written so far."""
        self.deaths.append(self.clocks.monotonic)
        for entry in self.open.values():
            entry.end, entry.complete, entry.status = self.clocks.monotonic, False, 0
            self.web.log.append(entry)
        old, events = self.store, self._events
        self._again(down, wall_jump, in_order=False)
        # Further work of the killed process goes to a store that is not used any more.
        for _, _, work, _ in events:
            work.close()
        old.close()

    def _again(self, down: float, wall_jump: float, *, in_order: bool) -> None:
        self.dropped += self.scheduler.counted()
        self.clocks.pass_(down)
        self.clocks.wall += wall_jump
        self._start(in_order=in_order)

    # --- time ---

    def run_until(self, end: float) -> None:
        """Crawl until a time, in monotonic seconds."""
        commit_at = self.clocks.monotonic + COMMIT_S
        while (now := self.clocks.monotonic) < end:
            self._send(end)
            due = self.job.frontier.schedule.next_due()
            wait = end if due is None else max(due - self.job.frontier.now(), 0.001)
            if self.job.outages.is_out:
                wait = max(wait, self.job.outages.next_probe())
            wake = now + wait
            if self.downloader.needs_backout():
                wake = end
            first = self._events[0][0] if self._events else end
            self._advance(min(first, wake, commit_at, end))
            if self.clocks.monotonic >= commit_at:
                self.job.commit_now()
                commit_at += COMMIT_S

    def _advance(self, to: float) -> None:
        """Run the events until the time ``to``, each at its own time."""
        while self._events and self._events[0][0] <= to:
            at, _, work, request = heappop(self._events)
            self._pass_until(at)
            self._step(work, request)
        self._pass_until(to)

    def _pass_until(self, to: float) -> None:
        self.clocks.pass_(max(0.0, to - self.clocks.monotonic))

    def _send(self, end: float) -> None:
        slot = self.crawler.engine._slot
        while not self.downloader.needs_backout() and self.clocks.monotonic < end:
            slot.wanted = False
            request = self.scheduler.next_request()
            if request is None and not slot.wanted:
                break
            if request is None:
                # The scheduler has used its time slice and lets others run.
                self._advance(self.clocks.monotonic + 0.001)
            else:
                self.clocks.pass_(SEND_S)
                self.downloader.active.add(request)
                self._step(self.downloader.download(request), request)
        self.busiest = max(self.busiest, len(self.downloader.active))

    def _step(self, work: Coroutine[Any, Any, Any], request: Request) -> None:
        """Run a download until it waits again, or to its end with the engine's part after it."""
        try:
            while not isinstance(pause := work.send(None), _Pause):
                pass
        except StopIteration as end:
            self._ended(request, end.value)
        except Exception as error:
            # The engine passes these to the errback; any other error is a bug.
            if not isinstance(error, IgnoreRequest) and not isinstance(error.__cause__, FetchError):
                raise
            self._ended(request, None)
        else:
            at = self.clocks.monotonic + pause.seconds
            heappush(self._events, (at, next(self._numbers), work, request))

    def _ended(self, request: Request, result: Response | Request | None) -> None:
        # A request was put back.
        if isinstance(result, Response):
            host = host_of(result.url)
            path = "/" + result.url.split("/", 3)[3]
            self.discover(self.web.links(host, path), via=host)
        self.crawler.engine._slot.remove_request(request)

    def discover(self, urls: Iterable[str], via: str | None = None) -> int:
        """Pass seeds or links to the intake, as the spider does."""
        return self.scheduler.intake.discover(urls, depth=int(via is not None), via=via)


def in_memory() -> Callable[[bool], Store]:
    """Return a ``reopen`` with stores in memory. After a kill, the next store is a copy."""
    data: dict[bytes, bytes] = {}

    class CommonStore(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self._data = data
            self.get = data.get

        def close(self) -> None:
            pass

    def reopen(in_order: bool) -> Store:
        nonlocal data
        if not in_order:
            data = dict(data)
        return CommonStore()

    return reopen

"""Run a crawl of several processes as one: start, server, status line, stop, exit code."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.spiderloader import get_spider_loader
from scrapy.utils.log import configure_logging

from krowlspider.cluster.membership import end
from krowlspider.config.validation import name_jobdir, validate
from krowlspider.errors import JobError, SettingsError, counted, error_text
from krowlspider.frontier.store.store import StoreError
from krowlspider.job.limits import CrawlLimits
from krowlspider.job.monitoring.access import CONTROL_TOKEN, PAGE, Secret, forget_urls, note_url
from krowlspider.job.monitoring.hangup import Hangup
from krowlspider.job.monitoring.page_server import Servers, shown
from krowlspider.job.parts import process_warc_folder
from krowlspider.job.report import seeds_of_all
from krowlspider.node.figures import FAILURES, LAST_CODE, Figures, Served, exit_code, reason
from krowlspider.node.processes import (
    LOG,
    PrivateRedis,
    ProcessRegister,
    Relay,
    SupervisedProcess,
    find_redis,
)
from krowlspider.node.tree import (
    StoppedError,
    Tree,
    Words,
    check_reserved,
    ids,
    process_folders,
    processes,
)
from krowlspider.rpc.options import check_before_start
from krowlspider.rpc.process import ServingPlan, ServingProcess
from krowlspider.spiders.broad import BroadSpider
from krowlspider.views.live_line import StatusLog
from krowlspider.views.report import write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scrapy.settings import Settings

    from krowlspider.job.monitoring.endpoint import Route


class Serving:
    """Serves page, API and metrics of all processes of a crawl, from `open` to `close`."""

    def __init__(self, crawl: Served):
        self._crawl = crawl
        self._token: Secret | None = None
        self._servers: Servers | None = None
        self._routes: Mapping[str, Route] | None = None
        self._rpc: ServingProcess | None = None
        # What its process has counted, and those before it that have died.
        self._rpc_counts: dict[str, int] = {}
        self._rpc_before: Counter[str] = Counter()

    async def open(self, settings: Settings) -> str:
        """Listen, and return where, as the end of a sentence; "" if it is off, or fails."""
        if not settings.getbool("PROMETHEUS_ENABLED"):
            return ""
        path = "/" + settings["PROMETHEUS_PATH"].lstrip("/")
        given = settings["KROWL_CONTROL_TOKEN"]
        self._token = Secret(given)
        page_maker = partial(self._page, self._token.text, settings)
        self._servers = Servers(partial(self._metrics, path), page_maker)
        page, metrics = await self._servers.open(settings)
        if page:
            note_url(self._crawl.tree.path, PAGE, page)
        where = self._token.keep(self._crawl.tree.path / CONTROL_TOKEN) if page else ""
        if page and settings["KROWL_GRPC"]:
            self._serve_rpc(settings, self._token.text)
        places = [
            *([f"page of all: {page}/"] if page else []),
            *([f"token of its buttons {where}"] if where else []),
            *([f"metrics of all: {shown(metrics)}{path}"] if metrics else []),
        ]
        return "".join(f"; {place}" for place in places)

    def _serve_rpc(self, settings: Settings, token: str) -> None:
        tree, archive = self._crawl.tree, {}
        if settings.getbool("KROWL_ARCHIVE"):
            # Processes of earlier starts have results too.
            earlier = (each.name for each in process_folders(tree.path))
            for name in dict.fromkeys((*self._crawl.processes, *earlier)):
                archive[name] = process_warc_folder(settings, tree.path / name)
        plan = ServingPlan.of(settings, token, tree.path, archive)
        self._rpc = ServingProcess(plan, self._take_rpc_counts)
        self._rpc.start()

    def _take_rpc_counts(self, counts: Mapping[str, int]) -> None:
        # A process that was started again counts from 0.
        if any(counts.get(name, 0) < count for name, count in self._rpc_counts.items()):
            self._rpc_before.update(self._rpc_counts)
        self._rpc_counts = dict(counts)

    def _rpc_total(self) -> Counter[str]:
        return self._rpc_before + Counter(self._rpc_counts)

    def _log_rpc_counts(self) -> None:
        total = self._rpc_total()
        refused = ", ".join(f"{name} {n:,}" for name, n in sorted(total.items()) if name != "call")
        logger.info("gRPC: %s; refused: %s", counted(total["call"], "call"), refused or "none")

    def _metrics(self, path: str) -> Mapping[str, Route]:
        # Importing aiohttp is slow, so it is imported for the first client.
        from krowlspider.node.metrics import TreeMetrics  # noqa: PLC0415

        # Both servers may ask for it.
        if self._routes is None:
            crawl = self._crawl
            metrics = TreeMetrics(
                crawl.tree, path, crawl.processes, crawl.restarts, self._rpc_total
            )
            self._routes = metrics.routes()
        return self._routes

    def _page(self, token: str, settings: Settings) -> Mapping[str, Route]:
        from krowlspider.cdx.archives import Archives  # noqa: PLC0415
        from krowlspider.cdx.pace import SHARE_OF_CRAWL  # noqa: PLC0415
        from krowlspider.cdx.route import CdxRoute  # noqa: PLC0415
        from krowlspider.node.live_page import CrawlOfAll  # noqa: PLC0415
        from krowlspider.views.live_page import HEADERS, searching_page  # noqa: PLC0415

        made = CrawlOfAll(self._crawl, token, settings["KROWL_CONTROL_TOKEN"]).routes()
        if settings.getbool("KROWL_ARCHIVE"):
            # Processes of earlier starts have captures too.
            path = self._crawl.tree.path
            folders = {*process_folders(path), *(path / name for name in self._crawl.processes)}
            warcs = [process_warc_folder(settings, each) for each in sorted(folders)]
            share = SHARE_OF_CRAWL * len(self._crawl.processes)
            made |= CdxRoute(Archives(warcs), HEADERS, share).routes()
        if settings["KROWL_SEARCH"]:
            from krowlspider.search.formats import Captures  # noqa: PLC0415 - most crawls have none
            from krowlspider.search.route import SearchRoute  # noqa: PLC0415

            made["/"] = searching_page()
            captures = Captures(has_cdx=settings.getbool("KROWL_ARCHIVE"))
            share = SHARE_OF_CRAWL * len(self._crawl.processes)
            made |= SearchRoute(Path(settings["KROWL_SEARCH"]), captures, share).routes()
        if settings.getbool("KROWL_CONTROL_MCP"):
            from krowlspider.views.mcp import tool_route  # noqa: PLC0415

            made |= tool_route(made, token)
        return made

    async def close(self) -> None:
        if self._rpc is not None:
            await self._rpc.stop()
            self._log_rpc_counts()
        if self._servers is not None:
            self._servers.close()
        if self._token is not None:
            self._token.forget()
        forget_urls(self._crawl.tree.path)


logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds for the last server of the Redis to end, and between two looks.
_PATIENCE = 60.0
_LOOK = 0.1
# Seconds between two looks whether all processes are members.
_SEND_AWAY = 0.5
# The exit code of a process that could not hand everything over.
_NOT_HANDED_OVER = 6


@dataclass(frozen=True, slots=True)
class CrawlPlan:
    """A crawl of ``count`` processes in ``tree``, which is taken. ``redis`` is the server's
    program, ``settings`` are those of ``spider``. ``max_pages`` is the page budget of all processes
    for this start; 0 is none."""

    tree: Tree
    count: int
    spider: str
    words: Words
    settings: Settings
    redis: Path
    max_pages: int


class Supervisor:
    """Runs a `CrawlPlan` once, on the running event loop."""

    def __init__(self, plan: CrawlPlan):
        self._plan = plan
        wanted = ids(plan.count)
        self._register = ProcessRegister(plan.tree, plan.settings["KROWL_CLUSTER"], wanted)
        self._ids = [*wanted, *self._register.leaving]
        # Those that page and metrics ask.
        self._served = list(self._ids)
        self._redis = PrivateRedis(plan.redis, plan.tree.redis)
        self._figures = Figures(plan.tree, self._ids)
        self._server: SupervisedProcess | None = None
        self._children: dict[str, SupervisedProcess] = {}
        self._ended: set[str] = set()
        self._releasing: list[asyncio.Task[None]] = []
        self._hangup = Hangup()
        self._reloading: asyncio.Task[None] | None = None
        self._is_stopped = self._is_interrupted = False
        self._began = time.monotonic()
        self._limits = CrawlLimits(
            pages=plan.max_pages, seconds=plan.settings.getfloat("CLOSESPIDER_TIMEOUT")
        )
        self._status = StatusLog(
            logger,
            lambda: self._figures.line(self._running()),
            self._live_line,
            interval=plan.settings.getfloat("KROWL_STATUS_INTERVAL"),
            is_live=plan.settings.getbool("KROWL_PROGRESS"),
        )

    async def run(self) -> int:
        """Crawl to the end, and return the exit code.

        :raises KrowlError: the crawl cannot begin
        :raises StoreError: the frontier in a folder cannot be used
        """
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            # Under nohup SIGHUP stays ignored. SIGINT is ignored in each "command &" of a script.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number)
        try:
            return await self._run()
        except StoppedError:
            logger.info("Stopped before the crawl has begun: the next start does the rest")
            return 0
        finally:
            self._redis.remove_sockets()

    async def _run(self) -> int:
        """:raises StoppedError: the crawl was stopped before it began"""
        folder = self._plan.tree.redis
        lock = await asyncio.to_thread(_locked, folder / "lock", self._stopped)
        server = self._server = SupervisedProcess(
            "redis",
            lambda _: self._redis.command(),
            environment=os.environ,
            is_end=lambda _: False,
            log=folder / LOG,
            lock=lock,
            # It ignores SIGHUP.
            last_signal=signal.SIGTERM,
        )
        serving = asyncio.create_task(server.run())
        # Without it the processes could not send URLs to each other.
        serving.add_done_callback(lambda _: self._stop())
        try:
            await self._redis.wait(lambda: self._is_stopped)
            await asyncio.to_thread(self._plan.tree.wait, self._stopped)
            if self._is_stopped:
                raise StoppedError
            await self._register.open(self._redis.register, anew=bool(self._plan.max_pages))
            code = await self._crawl()
            # A crawl whose Redis was given up is stopped.
            return code or int(serving.done())
        finally:
            self._register.close()
            server.stop()
            await serving
            os.close(lock)

    # --- the crawl ---

    async def _crawl(self) -> int:
        above = self._status.write_above
        relay = None if above is None else Relay(above)
        register = f"unix://{self._redis.register}"
        for name in self._ids:
            folder = self._plan.tree.path / name
            forget_urls(folder)
            # Its pages would count as those of this start.
            self._plan.tree.folder(name).forget_status()
            self._children[name] = SupervisedProcess(
                name,
                partial(
                    self._plan.words.of,
                    name,
                    folder,
                    is_live=relay is not None,
                    leaves=name in self._register.leaving,
                ),
                environment={
                    **os.environ,
                    "KROWL_CONSUL": register,
                    "KROWL_NODE_ID": name,
                    "REDIS_URL": self._redis.url_of(name),
                },
                is_end=lambda code: 0 <= code <= LAST_CODE,
                on_death=partial(self._on_death, name),
                # One that hands its hosts over would try so for a day, without a Redis.
                last_signal=signal.SIGKILL if name in self._register.leaving else signal.SIGHUP,
                errors=None if relay is None else relay.end,
            )
        plan = self._plan
        crawl = Served(
            plan.tree, self._served, self._figures, plan.spider, plan.max_pages, self._restarts
        )
        serving = Serving(crawl)
        served = await serving.open(self._plan.settings)
        logger.info(
            "Crawl of %s in %s, each with its own folder there%s",
            *(processes(self._plan.count), self._plan.tree.path, served),
        )
        self._status.start()
        sending = asyncio.create_task(self._send_away())
        try:
            ended = await asyncio.gather(*map(self._end_of, self._children.values()))
            codes = dict(zip(self._ids, ended, strict=True))
        finally:
            reloading = [] if self._reloading is None else [self._reloading]
            await end([sending, *reloading, *self._releasing])
            await serving.close()
            if relay is not None:
                relay.close()
            self._status.stop()
        ends, total, stopped = codes.values(), self._figures.total(), self._is_stopped
        seconds = time.monotonic() - self._began
        why = reason(ends, total, self._limits, seconds, stopped=stopped)
        seeds = await asyncio.to_thread(self._write_seeds, is_spent=why == "max_pages")
        summary = self._figures.summary(why, seconds, codes, seeds)
        logger.info("%s", summary, extra={"event": "summary"})
        return exit_code(ends, total, stopped=stopped)

    def _write_seeds(self, *, is_spent: bool) -> str:
        """Write what became of each seed; return the file, "" if there is none."""
        tree = self._plan.tree
        # Processes of earlier starts have taken seeds too.
        earlier = [each.name for each in process_folders(tree.path) if each.name not in self._ids]
        frontiers = [tree.folder(name).frontier for name in (*self._ids, *earlier)]
        frontiers = [each for each in frontiers if each.exists()]
        try:
            tree.reports.mkdir(exist_ok=True)
            with seeds_of_all(frontiers, tree.reports, is_spent=is_spent) as tables:
                return str([write_table(tree.reports, table) for table in tables][-1])
        except (StoreError, OSError) as error:
            logger.warning("The table of seeds is not written: %s", error_text(error))
            return ""

    async def _end_of(self, child: SupervisedProcess) -> int:
        code = await child.run()
        self._ended.add(child.name)
        if code in FAILURES and not self._is_stopped:
            logger.error("Process %s has failed with exit code %d: stopping all", child.name, code)
            self._stop()
        if child.name in self._register.leaving:
            self._served.remove(child.name)
            self._figures.left(child.name)
            if code == _NOT_HANDED_OVER and not self._is_stopped:
                logger.error(
                    "Process %s has requests with objects that no other process can read: go on"
                    " with the number of processes that this crawl had before",
                    child.name,
                )
                self._stop()
        return code

    async def _send_away(self) -> None:
        """Have the processes that are too many hand over what they have and end, once all are
        members; again after they have died."""
        leaving = [self._children[name] for name in self._register.leaving]
        if leaving:
            logger.info("%s hand over all hosts, and end", ", ".join(self._register.leaving))
        told: set[tuple[str, int]] = set()
        while any(map(self._is_there, leaving)):
            there = {each.name for each in self._children.values() if self._is_there(each)}
            if there <= self._register.joined():
                for child in leaving:
                    if child.is_running and (child.name, child.restarts) not in told:
                        told.add((child.name, child.restarts))
                        child.send(signal.SIGTERM)
            await asyncio.sleep(_SEND_AWAY)

    def _is_there(self, child: SupervisedProcess) -> bool:
        """Return whether a process runs, or is to be started again."""
        return child.name not in self._ended

    def _on_death(self, name: str) -> None:
        self._figures.died(name)
        self._releasing.append(asyncio.create_task(self._register.end_lease(name)))
        # Another program may get its port.
        forget_urls(self._plan.tree.path / name)

    def _restarts(self) -> int:
        return sum(child.restarts for child in self._children.values())

    def _running(self) -> int:
        return sum(child.is_running for child in self._children.values())

    def _live_line(self) -> str:
        seconds = time.monotonic() - self._began
        return self._figures.live_line(self._running(), seconds, self._limits)

    # --- signals ---

    def _reload(self) -> None:
        """Have all processes read the files of settings again."""
        if self._reloading is not None:
            self._reloading.cancel()
        self._reloading = asyncio.create_task(self._send_reload())

    async def _send_reload(self) -> None:
        """Send SIGHUP to each process, once it is a member: before, it would die of it."""
        waiting = set(self._children)
        while waiting := {name for name in waiting if self._is_there(self._children[name])}:
            for name in waiting & self._register.joined():
                self._children[name].send(signal.SIGHUP)
                waiting.discard(name)
            await asyncio.sleep(_SEND_AWAY)

    def _on_signal(self, number: signal.Signals) -> None:
        is_reload = self._plan.settings["KROWL_POLICIES"] is not None and not self._is_stopped
        if number == signal.SIGHUP and is_reload and self._hangup.is_order():
            logger.info("SIGHUP received: all processes read the files of settings again")
            self._reload()
        elif number == signal.SIGHUP:
            # systemd sends it together with SIGTERM.
            logger.info("SIGHUP received: the terminal or the session has ended")
            self._stop()
        elif self._is_interrupted:
            logger.warning("Second signal: ending all processes at once, as a crash would")
            for child in self._children.values():
                child.stop(signal.SIGKILL)
            # It may be frozen, or hang at its last snapshot.
            if self._server is not None and not self._running():
                self._server.stop(signal.SIGKILL)
        else:
            self._is_interrupted = True
            logger.info("%s received: stopping all processes; a second one ends them", number.name)
            self._stop()

    def _stopped(self) -> bool:
        return self._is_stopped

    def _stop(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            for child in self._children.values():
                child.stop()


def _locked(path: Path, is_stopped: Callable[[], bool]) -> int:
    """Lock a file, when no server of an earlier start has it any more; return it open.

    :raises StoppedError: ``is_stopped`` has returned true meanwhile
    :raises JobError: such a server does not end
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if is_stopped():
                raise StoppedError from None
            if time.monotonic() >= end:
                raise JobError(
                    f"{path} is locked by a redis-server of an earlier start: end that server"
                ) from None
            time.sleep(_LOOK)
        else:
            return lock


_PAGES = "KROWL_CLUSTER_PAGES"


def crawl(
    settings: Settings, spider: str, spargs: dict[str, str], given: Sequence[str], count: int
) -> int:
    """Crawl with ``count`` processes to the end; return the exit code.

    ``settings`` are checked, ``given`` are those of the command line as NAME=VALUE, ``spargs`` the
    arguments of the spider.

    :raises KrowlError: the crawl cannot begin
    :raises StoreError: the frontier in a folder cannot be used
    """
    settings = settings.copy()
    kind = get_spider_loader(settings).load(spider)
    kind.update_settings(settings)
    validate(settings)
    check_reserved(settings)
    name_jobdir(settings, spider)
    if not settings["JOBDIR"]:
        raise SettingsError(
            "JOBDIR is not set, and scrapy node needs a folder for its processes: give -s"
            " JOBDIR=jobs/default"
        )
    spargs, given, max_pages = dict(spargs), list(given), 0
    if issubclass(kind, BroadSpider) and (pages := spargs.pop("max_pages", "0")) != "0":
        if settings.getint(_PAGES):
            raise SettingsError(f"max_pages and {_PAGES} are both given: give one of them")
        if not pages.isdecimal():
            raise SettingsError(f"-a max_pages={pages}: give a whole number, 0 for no limit")
        given.append(f"{_PAGES}={pages}")
        max_pages = int(pages)
    words = Words(spider, spargs, given, settings, count)
    if settings["KROWL_GRPC"]:
        check_before_start(settings)
    tree = Tree(Path(settings["JOBDIR"]))
    # Nobody should install a server for a folder that is refused.
    tree.check()
    redis = find_redis()
    tree.take()
    configure_logging(settings)
    plan = CrawlPlan(tree, count, spider, words, settings, redis, max_pages)
    return asyncio.run(_run(plan))


async def _run(plan: CrawlPlan) -> int:
    return await Supervisor(plan).run()

"""One crawl's parts, built from its settings: folder, frontier, robots gate, client, archive."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from contextlib import AsyncExitStack
from functools import partial
from inspect import isawaitable
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import plyvel
from scrapy.utils.asyncio import run_in_thread

from krowlspider.archive.disk import make_directory, sync_directory
from krowlspider.archive.errors import ArchiveError
from krowlspider.archive.payloads.payload_index import PayloadIndex, forget_others, note_place
from krowlspider.archive.upload.notes import uploaded
from krowlspider.archive.write.writer import WarcWriter
from krowlspider.config.validation import check
from krowlspider.crawl.answers.decoders import Decoders
from krowlspider.crawl.answers.outages import Outages
from krowlspider.crawl.archiving.open_note import OpenWarcNote, settle_open_file
from krowlspider.crawl.archiving.other_crawls import open_other_crawls
from krowlspider.crawl.archiving.provenance import Provenance, warcinfo
from krowlspider.crawl.cap_warnings import CapWarnings
from krowlspider.crawl.checkpoint import Checkpoint
from krowlspider.crawl.folder import JobFolder, JobHead
from krowlspider.crawl.meters import Meters
from krowlspider.crawl.monitoring.disk_guard import DiskGuard
from krowlspider.crawl.parts import (
    crawl_log,
    delay_policy,
    fetch_client,
    frontier_limits,
    memory_account,
    page_rows,
    resolver,
    robots_fetches,
    seen_set,
    traces,
    warc_folder,
    warc_writer,
)
from krowlspider.crawl.snapshots.running import RunningSnapshot
from krowlspider.crawl.turns import LoopThrottle, Turns
from krowlspider.errors import JobError, SettingsError, error_text, lacks_room
from krowlspider.fetch.loop_clock import LoopClock
from krowlspider.fetch.spills import Spills
from krowlspider.frontier.admin.repair import way_out
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.hosts.holds import NOTES, settle_holds
from krowlspider.frontier.poison import strike
from krowlspider.frontier.store.owner import check_owner, put_owner
from krowlspider.frontier.store.schema import CRAWL_PAUSED
from krowlspider.frontier.store.store import LevelStore, StoreError, delete, put
from krowlspider.frontier.work_mark import MARK, THREAD_MARK, WorkMark, boot_id, left_key
from krowlspider.urls.canonical import IdentityHasher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from os import PathLike

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from krowlspider.archive.reading import Synced
    from krowlspider.crawl.monitoring.page_server import RouteMaker
    from krowlspider.crawl.nodes.node import Node
    from krowlspider.crawl.snapshots.taking import Snapshot
    from krowlspider.crawl.tracing import Traces
    from krowlspider.fetch.client import Client
    from krowlspider.frontier.hosts.host import RobotsFetch
    from krowlspider.frontier.robots.fetches import RobotsFetches
    from krowlspider.frontier.robots.gate import RobotsGate
    from krowlspider.frontier.store.store import Batch
    from krowlspider.urls.scope import AskedScope, ScopeRules

logger = logging.getLogger(__name__)

_jobs: WeakKeyDictionary[Crawler, Job] = WeakKeyDictionary()


class Job:
    """The parts of one crawl.

    The first component that asks for it makes it, the downloader opens it, and the scheduler runs
    and closes it. ``frontier``, ``robots_fetches``, ``archive``, ``notes``, ``client``,
    ``spills``, ``decoders`` and ``hasher`` exist from `open` to `close`. The job owns the group
    commit and the disk guard: no component setting can remove them.
    """

    frontier: Frontier
    robots_fetches: RobotsFetches
    archive: WarcWriter
    notes: Provenance
    client: Client
    spills: Spills
    decoders: Decoders
    hasher: IdentityHasher
    # The clocks, in seconds, a random number from 0 to 1, and the writer's class. A simulation has
    # its own.
    wall = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    # CPU seconds of the event loop's thread: other processes may hold the cores for longer.
    cpu = staticmethod(time.thread_time)
    chance = staticmethod(random.random)
    writer = WarcWriter

    def __init__(self, settings: BaseSettings, spider: str = ""):
        self._settings = settings
        self.spider = spider
        # When this start began, in epoch seconds.
        self.began = self.wall()
        # What is measured for the metrics; None if they are not served.
        self.meters = Meters() if settings.getbool("PROMETHEUS_ENABLED") else None
        # What sends traces, from `open` on; None without KROWL_TRACES.
        self.traces: Traces | None = None
        # This process as a node of a cluster; None for a crawl of one process.
        self.node = _node(settings, spider, self.meters)
        self.rule = delay_policy(settings)
        self.memory = memory_account(settings, self._has_memory)
        self.contact: str = settings["KROWL_CONTACT"]
        self.user_agent: str = settings["USER_AGENT"].replace("{contact}", self.contact)
        # The error of the archive or the frontier that stops the crawl, once there is one.
        self.failure: Exception | None = None
        # What a person has to mend, and why the crawl has stopped; "" for nothing.
        self.wrong = ""
        # Whether the crawl has ended by itself without fetching one of its pages.
        self.nothing_fetched = False
        # Number of finished files that KROWL_WARC_UPLOAD has not taken by the end.
        self.not_uploaded = 0
        # Whether a file of URLs is being taken.
        self.takes_lines = False
        # Whether a person has paused it; kept in the frontier's store.
        self.is_paused = False
        self.turns = Turns()
        self.throttle = LoopThrottle(self.turns, self.monotonic)
        # Where this process can be watched, in words: extensions add to it as the engine starts.
        self.watched_at: list[str] = []
        # The maker of the routes of page and API; None if they are not served.
        self.page: RouteMaker | None = None
        # Files that can be read again while the crawl runs, by their setting.
        self.reloads: dict[str, Callable[[], None]] = {}
        # Called in a thread after the last commit, while the frontier is still open.
        self.at_close: list[Callable[[], None]] = []
        # Returns for what a crawl waits that is being stopped, else "".
        self.stopping: Callable[[], str] = str
        self._on_failure: Callable[[Exception], None] | None = None
        self._on_wrong: Callable[[str], None] | None = None
        self._on_robots: Callable[[RobotsFetch, list[str]], None] | None = None
        # Number of times that the crawl waited for room on its disk.
        self.pauses = 0
        # The scope that the folder keeps; None if the spider has none.
        self.scope: ScopeRules | None = None
        self.replaces_scope = False
        self._checkpoint: Checkpoint | None = None
        floor = settings.getint("KROWL_DISK_FLOOR")
        self.guard = DiskGuard(floor, self._written_folders, self.fail) if floor else None
        self.snapshot = RunningSnapshot(self._commit_for)
        self._commit_lock = asyncio.Lock()
        self._opened = False

    @classmethod
    def of(cls, crawler: Crawler) -> Job:
        """Return the job of a crawler; make it at the first call.

        :raises SettingsError: as of `check`
        """
        job = _jobs.get(crawler)
        if job is None:
            # Here, because no setting can take away every component that needs the job.
            check(crawler.settings)
            job = _jobs[crawler] = cls(crawler.settings, crawler.spidercls.name)
        return job

    def open(self, asked: AskedScope | None = None) -> None:
        """Lock the folder and open everything in it; do nothing if it is open.

        ``asked`` is the scope that the spider asks for; ``scope`` is then the one that holds.

        :raises JobError: the folder, the frontier or the archive cannot be used, or it is of
            another spider or scope
        :raises SettingsError: the folder that is set for the WARC files cannot be used, or what
            KROWL_WARC_DEDUP names
        :raises ClusterError: the cluster cannot be reached
        """
        if self._opened:
            return
        settings = self._settings
        _prepare_archive(settings["KROWL_WARC_DIR"])
        self.folder = JobFolder.of(settings["JOBDIR"])
        cluster = None if self.node is None else self.node.cluster
        seed, ring = None, "" if cluster is None else cluster.place
        if cluster is not None:
            seed = cluster.prepare(self.folder.seed_of(ring))
        head = self.folder.take(
            seed=seed,
            ring=ring,
            spider=self.spider,
            scope=asked,
            delays=self.rule,
        )
        self.scope = head.scope
        self.replaces_scope = asked is not None and asked.replaces and not head.new
        try:
            self._open_parts(head, new=head.new or self.folder.untouched)
            if self.guard is not None:
                # A disk below the floor must be known before anything is popped.
                self.guard.look()
        except SettingsError:
            self.folder.leave()
            raise
        except (StoreError, ArchiveError, ValueError, OSError, plyvel.Error) as error:
            self.folder.leave()
            way = way_out(error, self.folder.path)
            raise JobError(
                f"JOBDIR {self.folder.path} cannot be used: {error_text(error)}{way}"
            ) from error
        self._opened = True

    def run(
        self,
        *,
        on_failure: Callable[[Exception], None],
        on_wrong: Callable[[str], None],
        on_room: Callable[[], None],
        is_ending: Callable[[], bool],
        stopping: Callable[[], str] = str,
        on_robots: Callable[[RobotsFetch, list[str]], None] | None = None,
    ) -> None:
        """Start the group commit every KROWL_COMMIT_INTERVAL and the disk guard, until `close`.

        ``on_failure`` is called once, when the crawl cannot go on, and ``on_wrong`` as `stop_for`.
        ``on_room`` is called when disk or memory has room again, ``on_robots`` for each robots.txt
        that is found, as in `RobotsFetches`. While ``is_ending`` returns true, nothing waits for
        room. ``stopping`` returns for what a crawl waits that is being stopped, else "".
        """
        self._on_failure = on_failure
        self._on_wrong = on_wrong
        self._on_robots = on_robots
        self.stopping = stopping
        self._checkpoint = Checkpoint(
            self,
            self._settings.getfloat("KROWL_COMMIT_INTERVAL"),
            on_room=on_room,
            is_ending=is_ending,
        )
        self._checkpoint.start()
        if self.guard is not None:
            self.guard.start()

    def _open_parts(self, head: JobHead, *, new: bool) -> None:
        settings = self._settings
        self.hasher = IdentityHasher(head.seed)
        meters = self.meters
        on_write = None if meters is None else meters.batch.observe
        self.store = LevelStore(self.folder.frontier, create=new, on_write=on_write)
        check_owner(self.store, head.seed, head.ring)
        put_owner(self.store, head.seed, head.ring)
        self.is_paused = self.store.get(CRAWL_PAUSED) is not None
        if new:
            sync_directory(self.folder.path)
        paths, boot = [self.folder.path / name for name in (MARK, THREAD_MARK)], boot_id()
        # Pages that the last process was working on when it died, with their strikes counted.
        strikes = [strike(self.store, left_key(path, boot)) for path in paths]
        self.struck = [entry for entry in strikes if entry is not None]
        self.holds = settle_holds(self.store, self.folder.path / NOTES, self.wall())
        self.mark, thread_mark = (WorkMark(path, boot) for path in paths)
        self.decoders = Decoders(self.mark, thread_mark)
        self.frontier = Frontier(
            self.store,
            seen_set(settings, self.folder, self.store),
            frontier_limits(settings),
            self.rule,
            monotonic=self.monotonic,
            wall=self.wall,
            boot=boot,
            may_fetch=None if self.node is None else self.node.may_fetch,
            may_overflow=self.may_overflow,
            pages=page_rows(settings, self.store, self.hasher),
        )
        self._cap_warnings = CapWarnings(self.frontier, settings, self.monotonic)
        self.robots_fetches = robots_fetches(
            settings,
            self.frontier,
            self.wall,
            self._robots_found,
            None if self.node is None else self.node.robots_post,
        )
        archive = warc_folder(settings, self.folder.path)
        payloads = self._payloads(archive)
        about = warcinfo(settings, self.contact, self.user_agent)
        self.archive = warc_writer(
            self.writer,
            settings,
            archive,
            seed=head.seed,
            about=about,
            payloads=payloads,
            on_pair=None if meters is None else meters.pair.observe,
        )
        self.notes = Provenance(settings, self.archive)
        own = "" if self.node is None else self.node.own
        self.crawl_log = crawl_log(settings, self.folder.path, own)
        self.traces = traces(settings, self.spider, own, self.wall)
        # With CrawlerProcess the loop does not run yet.
        loop = asyncio.get_event_loop()
        self._loop_clock = LoopClock(loop, self.monotonic)
        self._loop_clock.start()
        on_answer = self.notes.name if "dns" in settings.getlist("KROWL_WARC_ALSO") else None
        on_look_up = None if meters is None else meters.dns.observe
        self.resolver = resolver(settings, self._loop_clock, on_answer, on_look_up)
        self.names = self.resolver.stats
        self.outages = Outages(self.frontier, self.names, self.stop_for)
        self.client = fetch_client(settings, self._loop_clock, self.resolver)
        # Where the disk guard looks too.
        self.spills = Spills(loop, archive)
        self._open_note = OpenWarcNote(self.store)
        self.mended = self.archive.open(loop, self._open_note.last)
        self.lost = settle_open_file(self._open_note, self.frontier, archive)
        if payloads is not None:
            if self.mended.damaged or self.lost:
                # A revisit record must not refer to a record that is put aside as damaged.
                payloads.clear()
            note_place(self.folder.payloads, archive, uploaded(archive))

    @property
    def robots(self) -> RobotsGate:
        """Return the gate that decides by robots.txt."""
        return self.robots_fetches.gate

    def _robots_found(self, robots_fetch: RobotsFetch, sitemaps: list[str]) -> None:
        if self._on_robots is not None:
            self._on_robots(robots_fetch, sitemaps)

    def _payloads(self, archive: Path) -> PayloadIndex | None:
        if not self._settings.getbool("KROWL_WARC_REVISIT"):
            return None
        forget_others(self.folder.payloads, archive, uploaded(archive))
        others = open_other_crawls(self._settings, self.folder.other_crawls)
        return PayloadIndex(self.folder.payloads, warn=logger.warning, others=others)

    def fail(self, error: Exception) -> None:
        """Stop the crawl because of an error. Only the first call has an effect."""
        if self.failure is None:
            self.failure = error
            if self._on_failure is not None:
                self._on_failure(error)

    def stop_for(self, wrong: str) -> None:
        """Stop the crawl because of what a person has to mend, and keep what is queued. Only the
        first call has an effect."""
        if not self.wrong:
            self.wrong = wrong
            if self._on_wrong is not None:
                self._on_wrong(wrong)

    def _has_memory(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint.on_room()

    @property
    def stalled(self) -> Path | None:
        """Return the folder of the archive if captures wait for room on its disk, else None."""
        return self.archive.directory if self.archive.stalled else None

    @property
    def full(self) -> Path | None:
        """Return the folder whose disk is full or below the disk guard's floor, else None.

        Nothing may be popped then.
        """
        if self.stalled is not None:
            return self.stalled
        # Below the floor, a crawl with nothing left to fetch must still end.
        if self.guard is None or not (self.frontier.hopeful or self.frontier.leased):
            return None
        return self.guard.low

    def may_overflow(self) -> bool:
        """Return whether the disk of the frontier has room for more than KROWL_FRONTIER_MAX
        URLs."""
        return self.guard is None or not self.guard.is_scarce(self.folder.path)

    def _written_folders(self) -> tuple[Path, Path]:
        return self.archive.directory, self.folder.path

    def pause(self) -> None:
        """Send no request until `unpause`, after restarts too."""
        put(self.store, CRAWL_PAUSED, b"")
        self.is_paused = True

    def unpause(self) -> None:
        delete(self.store, [CRAWL_PAUSED])
        self.is_paused = False

    def give_up(self) -> None:
        """Stop waiting for room on the archive's disk.

        If captures cannot be written then, the crawl has failed and their pages stay queued.
        """
        self.archive.give_up()

    async def commit(self) -> None:
        """Sync the archive, then remove the entries of acknowledged pages in one synced batch.

        If the archive's disk is full, the call lasts until there is room.

        :raises ArchiveError: the archive cannot be written; no entry was removed
        :raises StoreError: the frontier cannot be written
        """
        async with self._commit_lock:
            if self._opened:
                await self._commit()

    async def _commit_for(self, snapshot: Snapshot) -> None:
        async with self._commit_lock:
            if not self._opened:
                raise JobError("the crawl has ended")
            try:
                await self._commit(snapshot.note_archive)
            except Exception as error:
                # As of any commit: nothing can be acknowledged from now on.
                self.fail(error)
                raise
            await run_in_thread(snapshot.fix)

    async def _commit(self, on_sync: Callable[[Synced | None], None] | None = None) -> None:
        # Taken before the sync: a page that is acknowledged meanwhile may have an unsynced record.
        begun = self.monotonic()
        traced = [] if self.traces is None else self.traces.take()
        commit = self.frontier.begin_commit()
        self._open_note.put(commit, await self.archive.sync(on_sync))
        await _write(commit.write)
        self.frontier.end_commit(commit)
        self._cap_warnings.look()
        if self.meters is not None:
            self.meters.commit.observe(self.monotonic() - begun)
        if self.traces is not None:
            self.traces.committed(traced)

    async def make_durable(self, batch: Batch | None = None) -> None:
        """Return when everything that was written to the frontier is synced to disk.

        ``batch``, a synced one, is written after it.

        :raises StoreError: the disk is full or failed
        """
        async with self._commit_lock:
            await run_in_thread((batch or self.store.batch(sync=True)).write)

    async def close(self) -> None:
        """Commit, close the WARC files and the store, unlock the folder.

        Errors of disk and archive go to ``failure``. Any other is raised once all is closed.
        """
        self.give_up()
        async with AsyncExitStack() as parts:
            parts.push_async_callback(self._close_parts)
            if self.node is not None:
                parts.push_async_callback(self.node.stop)
            parts.push_async_callback(self.snapshot.end)

    async def _close_parts(self) -> None:
        async with self._commit_lock, AsyncExitStack() as parts:
            if not self._opened:
                return
            self._opened = False
            # Closing a large store may take long: the watchdog must not report a held event loop.
            self.mark.beat(inf)
            # The last one is closed first.
            closing: list[Callable[[], Awaitable[None] | None]] = [
                self.folder.leave,
                self.mark.close,
                self._loop_clock.stop,
                self.decoders.close,
                self.spills.close,
                self.resolver.close,
                self.client.close,
                self.store.close,
                *(clock.stop for clock in (self.guard, self._checkpoint) if clock is not None),
                self._cap_warnings.end,
                self._close_traces,
                *([] if self.crawl_log is None else [self.crawl_log.close]),
                partial(self._try, self._close_frontier),
                partial(self._try, self.archive.close),
                partial(self._try, self._look_back),
                partial(self._try, self._commit),
            ]
            for close in closing:
                parts.push_async_callback(_called, close)

    async def _try(self, part: Callable[[], Awaitable[None]]) -> None:
        try:
            await part()
        except (ArchiveError, StoreError, OSError) as error:
            self.fail(error)

    async def _close_traces(self) -> None:
        if self.traces is not None:
            await run_in_thread(self.traces.close)

    async def _look_back(self) -> None:
        for look in self.at_close:
            await run_in_thread(look)

    async def _close_frontier(self) -> None:
        if self.failure is None:
            # The file is finished: from now on it may be taken away.
            self._open_note.clear()
        await _write(self.frontier.close)


async def _called(call: Callable[[], Awaitable[None] | None]) -> None:
    if isawaitable(done := call()):
        await done


async def _write(write: Callable[[], None]) -> None:
    """Write the frontier in a thread. A full disk may refuse the filter of the seen set.

    All that the filter holds is in the store too.
    """
    try:
        await run_in_thread(write)
    except OSError as error:
        if not lacks_room(error):
            raise
        logger.warning("The seen filter is not saved, so the next start takes longer: %s", error)


def _node(settings: BaseSettings, spider: str, meters: Meters | None) -> Node | None:
    """Return this process as a node of the cluster; None for a crawl of one process.

    :raises ClusterError: this node is not among the members, or they cannot reach it
    """
    # Imported here, so that a crawl of one process does not load Redis.
    if settings["KROWL_CONSUL"]:
        from krowlspider.crawl.nodes.cluster import Cluster  # noqa: PLC0415
        from krowlspider.crawl.nodes.node import Node  # noqa: PLC0415

        on_answer = None if meters is None else meters.consul.observe
        return Node(settings, spider, partial(Cluster, on_answer=on_answer), meters)
    return None


def _prepare_archive(chosen: str | PathLike[str] | None) -> None:
    """Make the folder that KROWL_WARC_DIR names, so that its errors do not name JOBDIR.

    :raises SettingsError: the folder cannot be made or written to
    """
    if chosen is None:
        return
    folder = Path(chosen)
    try:
        make_directory(folder)
    except OSError as error:
        raise SettingsError(f"KROWL_WARC_DIR {folder} cannot be used: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"KROWL_WARC_DIR {folder} cannot be used: it is not writable")

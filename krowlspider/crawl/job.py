"""One crawl's parts, built from its settings: folder, frontier, robots gate, client, archive."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import plyvel
from scrapy.utils.asyncio import run_in_thread

from krowlspider.archive.disk import make_directory
from krowlspider.archive.errors import ArchiveError
from krowlspider.archive.payloads.payload_index import PayloadIndex, forget_others, note_place
from krowlspider.archive.write.writer import SeriesOptions, WarcWriter
from krowlspider.crawl.checkpoint import Checkpoint
from krowlspider.crawl.decoders import Decoders
from krowlspider.crawl.disk_guard import DiskGuard
from krowlspider.crawl.folder import JobFolder, JobHead, sync_folder
from krowlspider.crawl.outages import Outages
from krowlspider.crawl.parts import (
    delay_policy,
    fetch_client,
    frontier_limits,
    memory_account,
    robots_gate,
    warc_folder,
)
from krowlspider.crawl.provenance import Provenance, warcinfo
from krowlspider.errors import JobError, SettingsError, error_text, lacks_room
from krowlspider.fetch.dns.resolver import Resolver
from krowlspider.fetch.loop_clock import LoopClock
from krowlspider.frontier.admin.repair import way_out
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.hosts.holds import NOTES, settle_holds
from krowlspider.frontier.poison import MARK, THREAD_MARK, WorkMark, blame, boot_id
from krowlspider.frontier.seen.filter_file import FilterFile
from krowlspider.frontier.seen.seen_set import SeenSet
from krowlspider.frontier.store.owner import check_owner, put_owner
from krowlspider.frontier.store.store import LevelStore, StoreError
from krowlspider.urls.canonical import IdentityHasher

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from krowlspider.crawl.nodes.node import Node
    from krowlspider.fetch.client import Client
    from krowlspider.frontier.robots.gate import RobotsGate

logger = logging.getLogger(__name__)

_jobs: WeakKeyDictionary[Crawler, Job] = WeakKeyDictionary()


class Job:
    """The parts of one crawl.

    The first component that asks for it makes it, the downloader opens it, and the scheduler runs
    and closes it. ``frontier``, ``robots``, ``archive``, ``notes``, ``client``, ``decoders`` and
    ``hasher`` exist from `open` to `close`. The job owns the group commit and the disk guard: no
    component setting can remove them.
    """

    frontier: Frontier
    robots: RobotsGate
    archive: WarcWriter
    notes: Provenance
    client: Client
    decoders: Decoders
    hasher: IdentityHasher

    def __init__(self, settings: BaseSettings, spider: str = ""):
        self._settings = settings
        # This process as a node of a cluster; None for a crawl of one process.
        self.node = _node(settings, spider)
        self.rule = delay_policy(settings)
        self.memory = memory_account(settings)
        self.contact: str = settings["KROWL_CONTACT"]
        # Returns the time in epoch seconds.
        self.wall = time.time
        self.user_agent: str = settings["USER_AGENT"].replace("{contact}", self.contact)
        # The error of the archive or the frontier that stops the crawl, once there is one.
        self.failure: Exception | None = None
        # Called once with that error.
        self._on_failure: Callable[[Exception], None] | None = None
        # The folder whose disk is below the floor of the disk guard; None if both have room.
        self.low: Path | None = None
        # Number of times that the crawl waited for room on its disk.
        self.pauses = 0
        self._checkpoint: Checkpoint | None = None
        floor = settings.getint("KROWL_DISK_FLOOR")
        self._guard = DiskGuard(self, floor) if floor else None
        self._commit_lock = asyncio.Lock()
        self._opened = False

    @classmethod
    def of(cls, crawler: Crawler) -> Job:
        """Return the job of a crawler; make it at the first call."""
        job = _jobs.get(crawler)
        if job is None:
            job = _jobs[crawler] = cls(crawler.settings, crawler.spidercls.name)
        return job

    def open(self) -> None:
        """Lock the folder and open everything in it; do nothing if it is open.

        :raises JobError: the folder, the frontier or the archive cannot be used
        :raises SettingsError: the folder that is set for the WARC files cannot be used
        :raises ClusterError: the cluster cannot be reached
        """
        if self._opened:
            return
        settings = self._settings
        _prepare_archive(settings["KROWL_WARC_DIR"])
        self.folder = JobFolder.of(settings["JOBDIR"])
        cluster = None if self.node is None else self.node.cluster
        head = self.folder.take(
            seed=None if cluster is None else cluster.prepare(),
            ring="" if cluster is None else cluster.place,
            may_begin=cluster is None or cluster.may_begin,
        )
        try:
            self._open_parts(head, new=head.new or self.folder.untouched)
            if self._guard is not None:
                # A disk below the floor must be known before anything is popped.
                self._guard.look()
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
        on_room: Callable[[], None],
        is_ending: Callable[[], bool],
    ) -> None:
        """Start the group commit every KROWL_COMMIT_INTERVAL and the disk guard, until `close`.

        ``on_failure`` is called when the crawl cannot go on, ``on_room`` when a full disk has room
        again. While ``is_ending`` returns true, nothing waits for room.
        """
        self._on_failure = on_failure
        interval = self._settings.getfloat("KROWL_COMMIT_INTERVAL")
        self._checkpoint = Checkpoint(self, interval, on_room=on_room, is_ending=is_ending)
        self._checkpoint.start()
        if self._guard is not None:
            self._guard.start()

    def _open_parts(self, head: JobHead, *, new: bool) -> None:
        settings = self._settings
        self.hasher = IdentityHasher(head.seed)
        self.store = LevelStore(self.folder.frontier, create=new)
        check_owner(self.store, head.seed, head.ring)
        put_owner(self.store, head.seed, head.ring)
        if new:
            sync_folder(self.folder.path)
        paths, boot = [self.folder.path / name for name in (MARK, THREAD_MARK)], boot_id()
        # One for each mark that the last process left.
        self.blames = [blame(self.store, path, boot) for path in paths]
        self.holds = settle_holds(self.store, self.folder.path / NOTES, time.time())
        self.mark, thread_mark = (WorkMark(path, boot) for path in paths)
        self.decoders = Decoders(self.mark, thread_mark)
        seen = SeenSet(
            self.store,
            settings.getint("KROWL_SEEN_CAPACITY"),
            verify=settings.getbool("KROWL_SEEN_VERIFY"),
            file=FilterFile(self.folder.seen),
        )
        self.frontier = Frontier(
            self.store,
            seen,
            frontier_limits(settings),
            self.rule,
            monotonic=time.monotonic,
            wall=self.wall,
            boot=boot,
        )
        self.robots = robots_gate(settings, self.frontier, self.rule, self.wall)
        self._loop_clock = LoopClock(asyncio.get_running_loop())
        self._loop_clock.start()
        self._resolver = Resolver(
            overrides=settings.getdict("KROWL_RESOLVE"),
            servers=settings.getlist("KROWL_DNS_SERVERS"),
            cache_size=settings.getint("DNSCACHE_SIZE"),
            timeout=settings.getfloat("KROWL_DNS_TIMEOUT"),
            loop_clock=self._loop_clock,
        )
        self.names = self._resolver.stats
        self.outages = Outages(self.frontier, self.names)
        self.client = fetch_client(settings, self._loop_clock, self._resolver)
        payloads = self._payloads()
        self.archive = WarcWriter(
            warc_folder(settings, self.folder.path),
            SeriesOptions(
                prefix=settings["KROWL_WARC_PREFIX"],
                hostname=socket.gethostname(),
                max_size=settings.getint("KROWL_WARC_MAX_SIZE"),
                max_age=settings.getfloat("KROWL_WARC_MAX_AGE"),
                info=warcinfo(settings, self.contact, self.user_agent),
                digest=settings["KROWL_WARC_DIGEST"],
                compression=settings["KROWL_WARC_COMPRESSION"],
                seed=head.seed,
            ),
            queue_bytes=settings.getint("KROWL_WARC_QUEUE"),
            payloads=payloads,
        )
        self.notes = Provenance(settings, self.archive)
        if settings.getbool("KROWL_WARC_DNS"):
            self._resolver.told = self.notes.name
        self.mended = self.archive.open(asyncio.get_running_loop())
        if payloads is not None:
            if self.mended.damaged:
                # A revisit record must not refer to a record that is put aside as damaged.
                payloads.clear()
            note_place(self._payload_folder, self.archive.directory)

    @property
    def _payload_folder(self) -> Path:
        return self.folder.path / "payloads"

    def _payloads(self) -> PayloadIndex | None:
        if not self._settings.getbool("KROWL_WARC_REVISIT"):
            return None
        forget_others(self._payload_folder, warc_folder(self._settings, self.folder.path))
        return PayloadIndex(
            self._payload_folder,
            most=self._settings.getint("KROWL_WARC_REVISIT_MAX"),
            warn=logger.warning,
        )

    def fail(self, error: Exception) -> None:
        """Stop the crawl because of an error. Only the first call has an effect."""
        if self.failure is None:
            self.failure = error
            if self._on_failure is not None:
                self._on_failure(error)

    @property
    def stalled(self) -> Path | None:
        """Return the folder of the archive if captures wait there for room on the disk.

        Else return None.
        """
        return self.archive.directory if self.archive.stalled else None

    @property
    def full(self) -> Path | None:
        """Return the folder whose disk is full or below the disk guard's floor; else None.

        Nothing may be popped then. Answers in flight are kept in memory, or written while there is
        room.
        """
        if self.stalled is not None:
            return self.stalled
        # Below the floor, a crawl with nothing left to fetch must still end.
        waits = self.low is not None and (self.frontier.hopeful or self.frontier.leased)
        return self.low if waits else None

    def give_up(self) -> None:
        """Stop waiting for room on the archive's disk.

        If captures cannot be written then, the crawl has failed and their pages stay queued.
        """
        self.archive.give_up()

    async def commit(self) -> None:
        """Commit: sync the archive, then acknowledge the archived pages in one synced batch.

        If the archive's disk is full, the call lasts until there is room.

        :raises ArchiveError: the archive cannot be written; nothing was acknowledged
        :raises StoreError: the frontier cannot be written
        """
        async with self._commit_lock:
            if self._opened:
                await self._commit()

    async def _commit(self) -> None:
        commit = self.frontier.begin_commit()
        await self.archive.sync()
        try:
            await run_in_thread(commit.write)
        except OSError as error:
            self._let_pass(error)
        self.frontier.end_commit(commit)

    async def make_durable(self) -> None:
        """Return when everything that was written to the frontier is synced to disk.

        :raises StoreError: the disk is full or failed
        """
        async with self._commit_lock:
            await run_in_thread(self.store.batch(sync=True).write)

    async def close(self) -> None:
        """Commit, close the WARC files and the store, unlock the folder.

        Errors go to ``failure``. Pages that could not be committed stay queued.
        """
        self.give_up()
        if self.node is not None:
            await self.node.stop()
        async with self._commit_lock:
            if not self._opened:
                return
            self._opened = False
            # Closing a large store may take long: the watchdog must not report a held event loop.
            self.mark.beat(inf)
            for part in (self._commit, self.archive.close, self._close_frontier):
                try:
                    await part()
                except (ArchiveError, StoreError, OSError) as error:
                    self.fail(error)
            self._stop_clocks()
            self.store.close()
            await self.client.close()
            await self._resolver.close()
            self.decoders.close()
            self._loop_clock.stop()
            self.mark.close()
            self.folder.leave()

    def _stop_clocks(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint.stop()
        if self._guard is not None:
            self._guard.stop()

    async def _close_frontier(self) -> None:
        try:
            # Writing a table and the filter takes a while: the event loop need not wait.
            await run_in_thread(self.frontier.close)
        except OSError as error:
            self._let_pass(error)

    def _let_pass(self, error: OSError) -> None:
        """Log that the filter of the seen set was not saved for want of room.

        All that the filter holds is in the store too.

        :raises OSError: ``error`` itself, if it has another reason
        """
        if not lacks_room(error):
            raise error
        logger.warning(
            "The filter of the seen set is not saved, so a start takes longer: %s", error
        )


def _node(settings: BaseSettings, spider: str) -> Node | None:
    """Return this process as a node of the cluster; None for a crawl of one process.

    :raises ClusterError: this node is not among the members, or they cannot reach it
    """
    # Imported here, so that a crawl of one process does not load Redis.
    if settings.getlist("KROWL_STATIC_NODES"):
        from krowlspider.crawl.nodes.node import Node  # noqa: PLC0415
        from krowlspider.crawl.nodes.static import StaticCluster  # noqa: PLC0415

        return Node(settings, spider, StaticCluster)
    if settings["KROWL_CONSUL"]:
        from krowlspider.crawl.nodes.consul import ConsulCluster  # noqa: PLC0415
        from krowlspider.crawl.nodes.node import Node  # noqa: PLC0415

        return Node(settings, spider, ConsulCluster)
    return None


def _prepare_archive(chosen: str | PathLike[str] | None) -> None:
    """Make the folder that KROWL_WARC_DIR names, so that its errors are not blamed on JOBDIR.

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

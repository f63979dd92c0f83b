"""One crawl's parts, put together from its settings: folder, frontier, robots gate, fetch client, archive."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import plyvel
from scrapy.utils.asyncio import run_in_thread

from krowlspider.archive.errors import ArchiveError
from krowlspider.archive.payloadindex import PayloadIndex, forget_others, note_place
from krowlspider.archive.writer import SeriesOptions, WarcWriter
from krowlspider.decoders import Decoders
from krowlspider.errors import JobError, lacks_room, told
from krowlspider.fetch.client import Client
from krowlspider.fetch.dns import Resolver
from krowlspider.fetch.guard import AddressGuard
from krowlspider.fetch.loopclock import LoopClock
from krowlspider.fetch.memory import Memory
from krowlspider.frontier.filterfile import FilterFile
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.holds import NOTES, settle_holds
from krowlspider.frontier.owner import check_owner, put_owner
from krowlspider.frontier.poison import MARK, THREAD_MARK, WorkMark, blame, boot_id
from krowlspider.frontier.repair import way_out
from krowlspider.frontier.robots import Patience, RobotsGate
from krowlspider.frontier.seen import SeenSet
from krowlspider.frontier.sessions import SessionLimits
from krowlspider.frontier.store import LevelStore, NoRoomError, StoreError
from krowlspider.frontier.turns import Limits
from krowlspider.jobfolder import JobFolder, JobHead, sync_folder
from krowlspider.machine import memory_to_be_had
from krowlspider.notes import Notes, warcinfo
from krowlspider.outages import Outages
from krowlspider.politeness.pace import PaceRule
from krowlspider.urls.canonical import IdentityHasher
from krowlspider.urls.ports import Ports

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from krowlspider.node import Node

logger = logging.getLogger(__name__)

# Seconds between looks for room for the frontier, at first and at most: each may write 100 MB.
_TRY_AGAIN = 1.0
_TRY_AGAIN_MAX = 5.0
# Idle connections at most, about 12 MB (with TLS 130), and files that are open besides: LevelDB's 1,000 tables are mapped, and closed.
_IDLE_MAX = 2048
_OTHER_FILES = 300
# The part of the memory to be had that bodies may take: a crawl has the frontier and its caches
# besides, and the kernel keeps the files that are written.
_MEMORY_SHARE = 4
_jobs: WeakKeyDictionary[Crawler, Job] = WeakKeyDictionary()


class Job:
    """The parts of one crawl. Made with the first component that asks for it, opened by the scheduler.

    ``frontier``, ``robots``, ``archive``, ``notes``, ``client``, ``decoders`` and ``hasher`` are
    there from `open` to `close`.
    """

    frontier: Frontier
    robots: RobotsGate
    archive: WarcWriter
    notes: Notes
    client: Client
    decoders: Decoders
    hasher: IdentityHasher

    def __init__(self, settings: BaseSettings, spider: str = ""):
        self._settings = settings
        # This process's place in a cluster; None for a crawl of one process.
        self.node = _node(settings, spider)
        self.rule = pace_rule(settings)
        self.memory = memory_account(settings)
        self.contact: str = settings["KROWL_CONTACT"]
        self.user_agent: str = settings["USER_AGENT"].replace("{contact}", self.contact)
        # Why the crawl cannot go on, once it cannot: the archive or the frontier failed.
        self.failure: Exception | None = None
        # What is to be done then.
        self.on_failure: Callable[[Exception], None] | None = None
        # What is to be done when there is room again on a disk that was full.
        self.on_room: Callable[[], None] | None = None
        # The folder whose disk is short of room, while the disk guard finds one.
        self.low: Path | None = None
        # A full disk is no longer waited for: the crawl is to end.
        self._given_up = asyncio.Event()
        self._commit_lock = asyncio.Lock()
        self._opened = False

    @classmethod
    def of(cls, crawler: Crawler) -> Job:
        """The job of a crawler."""
        job = _jobs.get(crawler)
        if job is None:
            job = _jobs[crawler] = cls(crawler.settings, crawler.spidercls.name)
        return job

    def open(self) -> None:
        """Lock the folder and open everything in it; nothing when it is open.

        :raises JobError: the folder, the frontier or the archive cannot be used
        :raises ClusterError: the cluster cannot be reached
        """
        if self._opened:
            return
        settings = self._settings
        self.folder = JobFolder.of(settings["JOBDIR"])
        node = self.node
        if node is not None:
            node.prepare()
        head = self.folder.take(
            seed=None if node is None else node.seed,
            ring="" if node is None else node.place,
            may_begin=node is None or node.may_begin,
        )
        try:
            self._open_parts(head, new=head.new or self.folder.untouched)
        except (StoreError, ArchiveError, ValueError, OSError, plyvel.Error) as error:
            self.folder.leave()
            way = way_out(error, self.folder.path)
            raise JobError(
                f"JOBDIR {self.folder.path} cannot be used: {told(error)}{way}"
            ) from error
        self._opened = True

    def _open_parts(self, head: JobHead, *, new: bool) -> None:
        settings = self._settings
        self.hasher = IdentityHasher(head.seed)
        self.store = LevelStore(self.folder.frontier, create=new)
        check_owner(self.store, head.seed, head.ring)
        put_owner(self.store, head.seed, head.ring)
        if new:
            sync_folder(self.folder.path)
        paths, boot = [self.folder.path / name for name in (MARK, THREAD_MARK)], boot_id()
        # Of each mark that the last process left.
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
            wall=time.time,
            boot=boot,
        )
        self.robots = robots_gate(settings, self.frontier, self.rule, time.time)
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
        self.notes = Notes(settings, self.archive)
        if settings.getbool("KROWL_WARC_DNS"):
            self._resolver.told = self.notes.name
        self.mended = self.archive.open(asyncio.get_running_loop())
        if payloads is not None:
            if self.mended.damaged:
                # What lies in there is not to be referred to.
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
        """The crawl cannot go on: its disk failed. The first failure counts."""
        if self.failure is None:
            self.failure = error
            if self.on_failure is not None:
                self.on_failure(error)

    @property
    def stalled(self) -> Path | None:
        """The folder in which something waits to be written for want of room."""
        if self.store.stalled:
            return self.store.folder
        return self.archive.directory if self.archive.stalled else None

    @property
    def full(self) -> Path | None:
        """The folder for which there is no room on its disk, or less than the disk guard's floor, while there is not.
        Nothing may be popped then: what is in transit is kept in memory, or written as long as there is some."""
        if self.stalled is not None:
            return self.stalled
        # With nothing left to fetch, a crawl ends below the floor too.
        waits = self.low is not None and (self.frontier.hopeful or self.frontier.leased)
        return self.low if waits else None

    def give_up(self) -> None:
        """Wait for room no longer: what cannot be written stays queued, and the crawl has failed."""
        self._given_up.set()
        self.archive.give_up()

    async def commit(self) -> None:
        """Group commit: what is archived goes to disk, then the pages in it are acknowledged in one synced batch.
        While the disk is full, it lasts until there is room.

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
        except NoRoomError:
            # The batch is kept with the others; its upkeep can wait for another commit.
            await self._room_in_store()
        except OSError as error:
            self._let_pass(error)
        self.frontier.end_commit(commit)

    async def make_durable(self) -> None:
        """Return when all that was written to the frontier is on the disk to stay, when there is room again if there is
        none.

        :raises StoreError: the disk failed, or nobody waits for room any longer
        """
        async with self._commit_lock:
            try:
                await run_in_thread(self.store.batch(sync=True).write)
            except NoRoomError:
                await self._room_in_store()

    async def _room_in_store(self) -> None:
        """Return when the store has written what it kept.

        :raises NoRoomError: it has not, and nobody waits any longer
        """
        wait = _TRY_AGAIN
        while not await run_in_thread(self.store.recover):
            if self._given_up.is_set():
                raise NoRoomError(f"{self.store.folder}: no room")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._given_up.wait(), wait)
            wait = min(2 * wait, _TRY_AGAIN_MAX)

    async def close(self) -> None:
        """Commit, close the WARC files and the store, unlock the folder. What fails is in ``failure``: pages that
        could not be committed stay queued."""
        self.give_up()
        if self.node is not None:
            await self.node.stop()
        async with self._commit_lock:
            if not self._opened:
                return
            self._opened = False
            # To close a large store may take long.
            self.mark.beat(inf)
            for part in (self._last_commit, self.archive.close, self._close_frontier):
                try:
                    await part()
                except (ArchiveError, StoreError, OSError) as error:
                    self.fail(error)
            self.store.close()
            await self.client.close()
            await self._resolver.close()
            self.decoders.close()
            self._loop_clock.stop()
            self.mark.close()
            self.folder.leave()

    async def _last_commit(self) -> None:
        await self._room_in_store()
        await self._commit()

    async def _close_frontier(self) -> None:
        try:
            # A table to write, and the filter: 0.2 s that others need not wait for.
            await run_in_thread(self.frontier.close)
        except OSError as error:
            self._let_pass(error)

    def _let_pass(self, error: OSError) -> None:
        """The filter of the seen set found no room: all that it holds is in the store.

        :raises OSError: it was something else
        """
        if not lacks_room(error):
            raise error
        logger.warning(
            "The filter of the seen set is not saved, so a start takes longer: %s", error
        )


def _node(settings: BaseSettings, spider: str) -> Node | None:
    """:raises ClusterError: this node is not among the members, or cannot be reached by them"""
    # A crawl of one process starts without what they need: Redis.
    if settings.getlist("KROWL_RING"):
        from krowlspider.staticnode import StaticNode  # noqa: PLC0415

        return StaticNode(settings, spider)
    if settings["KROWL_CONSUL"]:
        from krowlspider.consulnode import ConsulNode  # noqa: PLC0415

        return ConsulNode(settings, spider)
    return None


def warc_folder(settings: BaseSettings, folder: Path) -> Path:
    """Where the WARC files of a job folder are."""
    chosen: str | None = settings["KROWL_WARC_DIR"]
    return Path(chosen) if chosen else folder / "warc"


def frontier_limits(settings: BaseSettings) -> Limits:
    return Limits(
        host_queue=settings.getint("KROWL_HOST_QUEUE_MAX"),
        total=settings.getint("KROWL_FRONTIER_MAX"),
        domain_concurrency=settings.getint("KROWL_DOMAIN_CONCURRENCY"),
        address_concurrency=settings.getint("KROWL_IP_CONCURRENCY"),
        address_delay=settings.getfloat("KROWL_IP_DELAY_MIN"),
        slots=settings.getint("CONCURRENT_REQUESTS"),
        domain_budget=settings.getint("KROWL_DOMAIN_BUDGET"),
        domain_share=settings.getfloat("KROWL_DOMAIN_SHARE"),
        outbox=settings.getint("KROWL_OUTBOX_MAX"),
        sessions=SessionLimits(
            requests=settings.getint("KROWL_SESSION_REQUESTS"),
            wait=settings.getfloat("KROWL_KEEPALIVE"),
            hosts=idle_connections(settings),
        ),
        ports=Ports(map(str, settings.getlist("KROWL_PORTS"))),
    )


def memory_account(settings: BaseSettings) -> Memory:
    limit = settings.getint("KROWL_MEMORY_LIMIT") or memory_to_be_had() // _MEMORY_SHARE
    return Memory(limit, settings.getint("CONCURRENT_REQUESTS"))


def pace_rule(settings: BaseSettings) -> PaceRule:
    return PaceRule(
        factor=settings.getfloat("KROWL_DELAY_FACTOR"),
        minimum=settings.getfloat("KROWL_DELAY_MIN"),
        maximum=settings.getfloat("KROWL_DELAY_MAX"),
        crawl_delay_max=settings.getfloat("KROWL_CRAWL_DELAY_MAX"),
        retry_after_max=settings.getfloat("KROWL_RETRY_AFTER_MAX"),
    )


def robots_gate(
    settings: BaseSettings, frontier: Frontier, rule: PaceRule, wall: Callable[[], float]
) -> RobotsGate:
    """``wall`` is a clock in epoch seconds."""
    return RobotsGate(
        frontier,
        agent=settings["ROBOTSTXT_USER_AGENT"],
        ttl=settings.getfloat("KROWL_ROBOTS_TTL"),
        patience=Patience(settings.getint("RETRY_TIMES"), settings.getint("KROWL_DISTRESS_TIMES")),
        crawl_delay_max=rule.crawl_delay_max,
        wall=wall,
    )


def idle_connections(settings: BaseSettings) -> int:
    """Idle connections that may be kept, besides those in transit: as many as there are files to be had for, as each host
    has its turn again after a delay only."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return _IDLE_MAX
    in_transit = settings.getint("CONCURRENT_REQUESTS")
    return max(1, min(_IDLE_MAX, files - in_transit - _OTHER_FILES))


def fetch_client(settings: BaseSettings, clock: LoopClock, resolver: Resolver) -> Client:
    return Client(
        clock=clock,
        resolver=resolver,
        guard=AddressGuard(settings.getlist("KROWL_ALLOW_ADDRESSES")),
        connect_timeout=settings.getfloat("KROWL_CONNECT_TIMEOUT"),
        first_byte_timeout=settings.getfloat("KROWL_FIRST_BYTE_TIMEOUT"),
        rate_min=settings.getint("KROWL_BODY_RATE_MIN"),
        idle_timeout=settings.getfloat("KROWL_KEEPALIVE"),
        max_idle=idle_connections(settings),
    )

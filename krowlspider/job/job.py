"""One crawl's parts, built from its settings: folder, frontier, robots gate, client, archive."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import plyvel
from scrapy.utils.asyncio import run_in_thread

from krowlspider.archive.disk import ArchiveError, RecordError, make_directory, sync_directory
from krowlspider.archive.uploads import uploaded
from krowlspider.archive.write.composer import PayloadIndex, forget_others, note_place
from krowlspider.archive.write.none import NoArchive
from krowlspider.archive.write.writer import WarcWriter
from krowlspider.errors import JobError, SettingsError, error_text
from krowlspider.frontier.admin.repair import way_out
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.hosts.host_record import NOTES, HostHolds, settle_holds
from krowlspider.frontier.served import read_state
from krowlspider.frontier.shares import address_in
from krowlspider.frontier.store.schema import CRAWL_PAUSED
from krowlspider.frontier.store.store import (
    LevelStore,
    StoreError,
    check_owner,
    delete,
    put,
    put_owner,
)
from krowlspider.frontier.work_mark import MARK, THREAD_MARK, WorkMark, boot_id, left_key, strike
from krowlspider.job.answers.outages import Outages
from krowlspider.job.commits import Checkpoint, Commits, Loss, OpenWarcNote, settle_open_file
from krowlspider.job.folder import JobFolder, JobHead
from krowlspider.job.in_flight import Decoders, LoopThrottle, LoopTurns, cpu_clock
from krowlspider.job.limits import CapWarnings
from krowlspider.job.monitoring.disk_guard import DiskGuard
from krowlspider.job.parts import (
    Fetching,
    crawl_log,
    delay_policy,
    frontier_limits,
    gemini_delays,
    keep_gemini_on,
    memory_account,
    page_rows,
    robots_fetches,
    seen_set,
    signer,
    site_policies,
    sites,
    traces,
    warc_folder,
    warc_writer,
)
from krowlspider.job.provenance import Provenance, open_other_crawls, warcinfo
from krowlspider.job.snapshots import RunningSnapshot
from krowlspider.politeness.silence import SilentServers
from krowlspider.urls.canonical import IdentityHasher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from os import PathLike

    from scrapy.settings import BaseSettings

    from krowlspider.archive.tools.mend import MendReport
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.hosts.host import Host, RobotsFetch
    from krowlspider.frontier.quotas import Quotas
    from krowlspider.frontier.robots.fetches import Peers
    from krowlspider.frontier.robots.gate import RobotsGate
    from krowlspider.job.hooking.hooked import Hooked
    from krowlspider.job.meters import Meters
    from krowlspider.urls.scope import AskedScope

logger = logging.getLogger(__name__)

# A folder with a failed disk or with damaged files. Any other error is ours, and has its traceback.
_UNUSABLE = (
    *(StoreError, ArchiveError, RecordError, OSError, plyvel.Error),
    *(json.JSONDecodeError, msgspec.DecodeError, UnicodeDecodeError),
)


class ClusterContext(NamedTuple):
    """What a job needs of the cluster in which it is a node.

    ``node`` is its name, ``ring`` names the ring that its folder belongs to. ``agree_on_seed``
    takes the hash seed of the folder, None for a new one, and returns the one of all nodes.
    ``may_fetch`` is as in `Frontier`, ``peers`` as in `RobotsFetches`.
    """

    node: str
    ring: str
    agree_on_seed: Callable[[int | None], int]
    may_fetch: Callable[[str], bool]
    peers: Peers


class LastProcess(NamedTuple):
    """What a start found of the process before it: pages and hosts that it may have died of, and
    how its archive was mended. ``lost`` is None if no synced record is lost."""

    struck: list[Entry]
    holds: list[HostHolds]
    mended: MendReport
    lost: Loss | None


class Job:
    """One crawl, open from its creation to `close`: its folder, and all that is open in it.

    `krowlspider.job.crawls.Crawl` owns it. A start that fails closes what was open. The job owns
    the group commit and the disk guard: no component setting can remove them.

    ``asked`` is the scope that the spider asks for; ``scope`` is the one that holds. ``meters`` are
    measured for the metrics; None if they are not served. ``cluster`` is None for a crawl of one
    process, ``hooks`` without KROWL_HOOKS.

    :raises JobError: the folder, the frontier or the archive cannot be used, or it is of another
        spider or scope
    :raises SettingsError: the folder of KROWL_WARC_DIR, a crawl that KROWL_WARC_DEDUP names, or a
        name in KROWL_WARC_PREFIX cannot be used
    :raises ClusterError: the cluster cannot be reached
    """

    # The clocks, in seconds, a random number from 0 to 1, and the writer's class. A simulation has
    # its own.
    wall = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    # CPU seconds of the event loop's thread: other processes may hold the cores for longer.
    cpu = staticmethod(cpu_clock())
    chance = staticmethod(random.random)
    writer = WarcWriter

    def __init__(
        self,
        settings: BaseSettings,
        spider: str = "",
        asked: AskedScope | None = None,
        *,
        meters: Meters | None = None,
        cluster: ClusterContext | None = None,
        hooks: Hooked | None = None,
    ):
        self._settings = settings
        self.spider = spider
        # When this start began, in epoch seconds.
        self.began = self.wall()
        self.meters = meters
        # What KROWL_HOOKS names; None without it.
        self.hooks = hooks
        self._cluster = cluster
        # The sheets of KROWL_POLICIES; None without them.
        self.policies = site_policies(settings, self._address_of)
        self.memory = memory_account(settings, self._has_memory)
        self.contact: str = settings["KROWL_CONTACT"]
        self._archives = settings.getbool("KROWL_ARCHIVE")
        self.user_agent: str = settings["USER_AGENT"].replace("{contact}", self.contact)
        # The hosts in memory.
        self._hosts: Mapping[str, Host] = {}
        # What they say of a pop or a fetch; None without them.
        self.sites = sites(self.policies, self.user_agent)
        self.rule = delay_policy(settings)
        if self.sites is not None:
            self.rule = self.sites.delays(self.rule)
        self.rule = gemini_delays(self.rule, settings)
        self.silent_servers = SilentServers(self.rule, self.chance)
        # The error of the archive or the frontier that stops the crawl, once there is one.
        self.failure: Exception | None = None
        # Why the crawl has stopped, if a person has to mend something before the next start.
        self.stop_reason = ""
        self.loop_turns = LoopTurns()
        self.throttle = LoopThrottle(self.loop_turns, self.monotonic)
        # Called in a thread after the last commit, while the frontier is still open.
        self.at_close: list[Callable[[], None]] = []
        self._on_failure: Callable[[Exception], None] | None = None
        self._on_stop: Callable[[str], None] | None = None
        self._on_robots: Callable[[RobotsFetch, list[str]], None] | None = None
        self._checkpoint: Checkpoint | None = None
        floor = settings.getint("KROWL_DISK_FLOOR")
        self.guard = DiskGuard(floor, self._written_folders, self.fail) if floor else None
        self._is_closing = False
        self._open(asked)
        # What is done at each commit, every second. Tasks that make all durable wait for it.
        self.commits = Commits(
            self.frontier,
            self.archive,
            self._open_note,
            fail=self.fail,
            observe=self._committed,
            monotonic=self.monotonic,
            traces=self.traces,
        )
        self.snapshot = RunningSnapshot(self.commits.commit_for)

    def _open(self, asked: AskedScope | None) -> None:
        """Lock the folder and open everything in it, or nothing."""
        settings = self._settings
        with ExitStack() as undo:
            _prepare_archive(settings["KROWL_WARC_DIR"])
            self.folder = JobFolder.of(settings["JOBDIR"])
            undo.callback(self.folder.leave)
            cluster, seed, ring = self._cluster, None, ""
            if cluster is not None:
                ring = cluster.ring
                seed = cluster.agree_on_seed(self.folder.seed_of(ring))
            head = self.folder.take(
                seed=seed,
                ring=ring,
                spider=self.spider,
                scope=asked,
                delays=self.rule,
            )
            keep_gemini_on(settings, self.folder.path)
            # The scope that the folder keeps; None if the spider has none.
            self.scope = head.scope
            self.replaces_scope = asked is not None and asked.replaces and not head.new
            try:
                self._open_parts(head, undo, new=head.new or self.folder.untouched)
            except _UNUSABLE as error:
                way = way_out(error, self.folder.path)
                raise JobError(
                    f"JOBDIR {self.folder.path} cannot be used: {error_text(error)}{way}"
                ) from error
            undo.pop_all()

    def run(
        self,
        *,
        on_failure: Callable[[Exception], None],
        on_stop: Callable[[str], None],
        on_room: Callable[[], None],
        is_ending: Callable[[], bool],
        on_robots: Callable[[RobotsFetch, list[str]], None] | None = None,
    ) -> None:
        """Start the group commit every KROWL_COMMIT_INTERVAL and the disk guard, until `close`.

        ``on_failure`` is called once, with the error after which the crawl cannot go on;
        ``on_stop`` once, with the reason given to `stop_for`. ``on_room`` is called when disk or
        memory has room again, ``on_robots`` for each robots.txt that is found, as in
        `RobotsFetches`. While ``is_ending`` returns true, nothing waits for room.
        """
        self._on_failure = on_failure
        self._on_stop = on_stop
        self._on_robots = on_robots
        self._checkpoint = Checkpoint(
            self._settings.getfloat("KROWL_COMMIT_INTERVAL"),
            commit=self.commits.commit,
            fail=self.fail,
            full=lambda: self.full,
            give_up=self.give_up,
            on_room=on_room,
            is_ending=is_ending,
        )
        self._checkpoint.start()
        if self.guard is not None:
            self.guard.start()

    def _open_parts(self, head: JobHead, undo: ExitStack, *, new: bool) -> None:
        """Open what is in the folder; ``undo`` closes it again if a later part cannot be opened."""
        self._open_store(head, undo, new=new)
        boot = boot_id()
        struck, holds, decoders = self._open_marks(boot, undo)
        self._open_frontier(boot)
        mended, lost = self._open_archive(head, undo)
        self.last_process = LastProcess(struck, holds, mended, lost)
        if self.guard is not None:
            # A disk below the floor must be known before anything is popped.
            self.guard.look()
        self._prepare_fetching(decoders)

    def _open_store(self, head: JobHead, undo: ExitStack, *, new: bool) -> None:
        self.hasher = IdentityHasher(head.seed)
        on_write = None if self.meters is None else self.meters.batch.observe
        self.store = LevelStore(self.folder.frontier, create=new, on_write=on_write)
        undo.callback(self.store.close)
        check_owner(self.store, head.seed, head.ring)
        put_owner(self.store, head.seed, head.ring)
        # Whether a person has paused it.
        self.is_paused = self.store.get(CRAWL_PAUSED) is not None
        if new:
            sync_directory(self.folder.path)

    def _open_marks(
        self, boot: bytes, undo: ExitStack
    ) -> tuple[list[Entry], list[HostHolds], Decoders]:
        """Count strikes for what the marks of the last process name, and begin new marks."""
        paths = [self.folder.path / name for name in (MARK, THREAD_MARK)]
        strikes = [strike(self.store, left_key(path, boot)) for path in paths]
        holds = settle_holds(self.store, self.folder.path / NOTES, self.wall())
        self.mark = WorkMark(paths[0], boot)
        undo.callback(self.mark.close)
        decoders = Decoders(self.mark, WorkMark(paths[1], boot))
        undo.callback(decoders.close)
        return [entry for entry in strikes if entry is not None], holds, decoders

    def _keep_served_delay(self) -> None:
        """Let the least delay hold that a client of URLFrontier has set for all hosts."""
        served = read_state(self.store)
        if served is not None and served.delay > self.rule.minimum:
            self.frontier.schedule.orders.delays.change_policy("minimum", served.delay)
            logger.info(
                "Least delay of all hosts: %g s, set by a client of URLFrontier; it ends by"
                " SetDelay with 0",
                served.delay,
            )

    def _open_frontier(self, boot: bytes) -> None:
        settings, cluster = self._settings, self._cluster
        limits = frontier_limits(settings)
        if self.sites is not None:
            limits = replace(limits, concurrency_of=self.sites.concurrency)
        self.frontier = Frontier(
            self.store,
            seen_set(settings, self.folder, self.store),
            limits,
            self.rule,
            monotonic=self.monotonic,
            wall=self.wall,
            boot=boot,
            may_fetch=None if cluster is None else cluster.may_fetch,
            may_overflow=self.may_overflow,
            pages=page_rows(settings, self.store, self.hasher),
            quotas=self._quotas(),
            on_admitted=None if self.hooks is None else self.hooks.links.note,
        )
        self._keep_served_delay()
        self._hosts = self.frontier.schedule.cache.hosts
        self._cap_warnings = CapWarnings(self.frontier, settings, self.monotonic)
        self.robots_fetches = robots_fetches(
            settings,
            self.frontier,
            self.wall,
            self._robots_found,
            None if cluster is None else cluster.peers,
        )

    def _quotas(self) -> Quotas | None:
        """Return what counts against the limits of sheets; None without sheets."""
        if self.policies is None:
            return None
        if self._cluster is None:
            return self.policies.quotas(self.store, self.wall)
        from krowlspider.cluster.register.port import portion_of  # noqa: PLC0415 - for clusters
        from krowlspider.frontier.grants import Grants  # noqa: PLC0415

        grants = Grants(self.store, self.monotonic, portion_of)
        return self.policies.quotas(self.store, self.wall, grants)

    def _open_archive(self, head: JobHead, undo: ExitStack) -> tuple[MendReport, Loss | None]:
        """Mend the archive and open it, and queue again what it has lost."""
        settings, meters = self._settings, self.meters
        folder = warc_folder(settings, self.folder.path)
        payloads = self._payloads(folder, undo)
        self.archive = warc_writer(
            self.writer if self._archives else NoArchive,
            settings,
            folder,
            seed=head.seed,
            about=warcinfo(settings, self.contact, self.user_agent),
            payloads=payloads,
            on_pair=None if meters is None else meters.pair.observe,
        )
        undo.callback(self.archive.abandon)
        self.notes = Provenance(settings, self.archive)
        self._open_note = OpenWarcNote(self.store)
        # With CrawlerProcess the loop does not run yet.
        mended = self.archive.open(asyncio.get_event_loop(), self._open_note.last)
        lost = settle_open_file(self._open_note, self.frontier, folder)
        if payloads is not None:
            if mended.damaged or lost:
                # A revisit record must not refer to a record that is put aside as damaged.
                payloads.clear()
            note_place(self.folder.payloads, folder, uploaded(folder))
        return mended, lost

    def _prepare_fetching(self, decoders: Decoders) -> None:
        """Make the parts that fetch, log and trace. They open nothing before the crawl runs."""
        settings, meters = self._settings, self.meters
        node = "" if self._cluster is None else self._cluster.node
        self.crawl_log = crawl_log(settings, self.folder.path, node)
        self.fetching = Fetching(
            settings,
            asyncio.get_event_loop(),
            self.monotonic,
            decoders=decoders,
            # Where the disk guard looks too.
            spilled=self.archive.directory,
            on_answer=self.notes.name if "dns" in settings.getlist("KROWL_WARC_ALSO") else None,
            on_look_up=None if meters is None else meters.dns.observe,
        )
        # What signs requests; None without KROWL_SIGN_KEY.
        self.signer = signer(settings, self.wall)
        self.outages = Outages(self.frontier, self.fetching.resolver.stats, self.stop_for)
        # What sends traces; None without KROWL_TRACES.
        self.traces = traces(settings, self.spider, node, self.wall)
        self.fetching.start()

    @property
    def is_open(self) -> bool:
        return self.commits.is_open

    @property
    def robots(self) -> RobotsGate:
        """Return the gate that decides by robots.txt."""
        return self.robots_fetches.gate

    def _robots_found(self, robots_fetch: RobotsFetch, sitemaps: list[str]) -> None:
        if self._on_robots is not None:
            self._on_robots(robots_fetch, sitemaps)

    def _payloads(self, archive: Path, undo: ExitStack) -> PayloadIndex | None:
        if not self._archives or not self._settings.getbool("KROWL_WARC_REVISIT"):
            return None
        forget_others(self.folder.payloads, archive, uploaded(archive))
        others = open_other_crawls(self._settings, self.folder.other_crawls)
        payloads = PayloadIndex(self.folder.payloads, warn=logger.warning, others=others)
        undo.callback(payloads.close)
        return payloads

    def fail(self, error: Exception) -> None:
        """Stop the crawl because of an error. Only the first call has an effect."""
        if self.failure is None:
            self.failure = error
            if self._on_failure is not None:
                self._on_failure(error)

    def stop_for(self, reason: str) -> None:
        """Stop the crawl for a ``reason`` that a person has to mend. What is queued stays queued.
        Only the first call has an effect."""
        if not self.stop_reason:
            self.stop_reason = reason
            if self._on_stop is not None:
                self._on_stop(reason)

    def _committed(self, seconds: float) -> None:
        self._cap_warnings.look()
        if self.meters is not None:
            self.meters.commit.observe(seconds)

    def _has_memory(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint.on_room()

    @property
    def pauses(self) -> int:
        """Return how many times the crawl has waited for room on its disk."""
        return 0 if self._checkpoint is None else self._checkpoint.pauses

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
        if self.guard is None or not (self.frontier.has_fetchable or self.frontier.leased):
            return None
        return self.guard.low

    def _address_of(self, host: str) -> str:
        """Return the last IP address of a host in memory, of IPv6 its /64; "" if unknown."""
        found = self._hosts.get(host)
        return "" if found is None else address_in(found.shares.address)

    def admission(self, host: Host, *, is_page: bool) -> Callable[[str], bool]:
        """Return what decides at an IP address whether a request of a host may be sent there now:
        it has room, and no other sheets hold there."""
        reserve, policies = self.frontier.schedule.reserve_address, self.policies
        if policies is None:
            return partial(reserve, host)
        permit = partial(policies.permit, host.name, is_page=is_page)
        return lambda address: permit(address) and reserve(host, address)

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

    async def close(self) -> None:
        """Commit, close the WARC files and the store, and unlock the folder. A second call does
        nothing.

        Errors of disk and archive go to ``failure``. Any other is raised once all is closed.
        """
        if self._is_closing:
            return
        self._is_closing = True
        self.give_up()
        async with AsyncExitStack() as parts:
            parts.push_async_callback(self._close_parts)
            parts.push_async_callback(self.snapshot.end)

    async def _close_parts(self) -> None:
        async with self.commits.ending(), AsyncExitStack() as parts:
            # Closing a large store may take long: the watchdog must not report a held event loop.
            self.mark.beat(inf)
            # The last one is closed first.
            closing: list[Callable[[], Awaitable[None] | None]] = [
                self.folder.leave,
                self.mark.close,
                self.fetching.close,
                self.store.close,
                *(clock.stop for clock in (self.guard, self._checkpoint) if clock is not None),
                self._cap_warnings.end,
                self._close_traces,
                *([] if self.crawl_log is None else [self.crawl_log.close]),
                partial(self._close_or_fail, self._close_frontier),
                partial(self._close_or_fail, self.archive.close),
                partial(self._close_or_fail, self._run_at_close),
                partial(self._close_or_fail, self.commits.write),
            ]
            for close in closing:
                parts.push_async_callback(_call, close)

    async def _close_or_fail(self, part: Callable[[], Awaitable[None]]) -> None:
        try:
            await part()
        except (ArchiveError, StoreError, OSError) as error:
            self.fail(error)

    async def _close_frontier(self) -> None:
        await self.commits.close_frontier(is_finished=self.failure is None)

    async def _close_traces(self) -> None:
        if self.traces is not None:
            await run_in_thread(self.traces.close)

    async def _run_at_close(self) -> None:
        for look in self.at_close:
            await run_in_thread(look)


async def _call(call: Callable[[], Awaitable[None] | None]) -> None:
    if isawaitable(done := call()):
        await done


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

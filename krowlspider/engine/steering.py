"""Changes to a running crawl by a person: each is logged and counted.

Pauses, blocks and delays of hosts stand after restarts; settings are those of the process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from time import perf_counter
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.log import get_scrapy_root_handler

from krowlspider.cluster.membership import UnansweredError
from krowlspider.engine.downloader import Downloader
from krowlspider.engine.importing import LineIntake, Taken
from krowlspider.engine.scheduler import Scheduler
from krowlspider.errors import KrowlError, counted
from krowlspider.frontier.admin.edit import Covered, UnknownHostError, coverage, covered_hosts
from krowlspider.frontier.moves.transfer import FORGOTTEN_MAX, forget_now
from krowlspider.frontier.schedule.orders import DELAY, PAUSE, OrderError, Orders, StandingOrder
from krowlspider.job.crawls import crawl_of
from krowlspider.job.parts import DELAYS, changed, new_delay, page_limit
from krowlspider.job.snapshots import Snapshot
from krowlspider.urls.canonical import host_of, normalise
from krowlspider.urls.seeds import rule_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scrapy.crawler import Crawler

    from krowlspider.cluster.transport.posts import OrderFields, Plain

logger = logging.getLogger(__name__)

# The longest delay of a host that a person may set, in seconds: a day.
DELAY_MAX = 86_400.0
# The orders that end others.
_ENDS = {"pause": "resume", "block": "unblock", "delay": "delay"}
# Lines of a file that are taken at a time, some milliseconds of work, and seconds of work after
# which the event loop has its turn.
_LINES_AT_ONCE = 25
_TURN = 0.005


class ForeignHostError(KrowlError):
    """Another node of the cluster owns a host."""

    def __init__(self, name: str, owner: str):
        super().__init__(f"node {owner} owns {name}: give the order there")
        self.owner = owner


class Steering:
    """Changes one crawl that is open. ``who`` is what the log calls the person."""

    def __init__(self, crawler: Crawler, who: str):
        self._crawler = crawler
        self._crawl = crawl_of(crawler)
        self._job, self._node = self._crawl.job, self._crawl.node
        self._who = who

    # --- the crawl ---

    def pause(self) -> None:
        """Send no request until `resume`, after restarts too; what is in flight ends."""
        self._job.pause()
        self._note("pause", "the crawl")

    def resume(self) -> None:
        """Let the crawl go on."""
        self._job.unpause()
        self._note("resume", "the crawl")

    async def set_all_paused(self, *, paused: bool) -> None:
        """Pause all nodes of the cluster by its signal, or let them go on.

        :raises OrderError: the server of the signal does not answer
        """
        assert self._node is not None
        try:
            await self._node.set_paused(paused=paused)
        except UnansweredError as error:
            raise OrderError(
                f"the signal to all nodes may be sent or not: {error}; give the order again"
            ) from error
        if not paused:
            self._job.unpause()
        self._note("pause" if paused else "resume", "the crawl at all nodes")

    def add(self, url: str, priority: int = 0) -> bool:
        """Queue a URL as a seed, at the node that owns it; return False if it is known or refused.

        :raises KrowlError: it is no URL that a crawl fetches
        """
        self._checked(url)
        request = Request(url, priority=priority, meta={"is_start_request": True})
        return self._queue(request, "add")

    async def take(self, pieces: AsyncIterator[list[bytes]]) -> Taken:
        """Queue the URLs in lines, each at the node that owns it; return what became of them, once
        that is on disk. Half of the event loop's time is left to the crawl.

        Lines that were taken before an error stay queued.

        :raises OrderError: another file is being taken, a disk has no room, or the nodes of the
            cluster are not known yet
        """
        job = self._job
        if self._crawl.takes_lines:
            raise OrderError("another file is being taken: give this one again after it")
        if self._node is not None and not self._node.knows_owners:
            raise OrderError("the nodes of the cluster are not known yet: try again in a minute")
        self._crawl.takes_lines = True
        try:
            lines = LineIntake(self._crawler)
            begun = perf_counter()
            async for piece in pieces:
                for at in range(0, len(piece), _LINES_AT_ONCE):
                    if (full := job.full) is not None:
                        raise OrderError(
                            f"no room in {full}: {counted(lines.taken.good, 'URL')} before were"
                            " taken; make room, and give the file again"
                        )
                    lines.take(piece[at : at + _LINES_AT_ONCE])
                    for _ in lines.promote_known():
                        await asyncio.sleep(0)
                    if (took := perf_counter() - begun) >= _TURN:
                        await asyncio.sleep(took)
                        begun = perf_counter()
            await job.commits.make_durable()
        finally:
            self._crawl.takes_lines = False
        taken = lines.taken
        what = f"{taken.new:,} new, {taken.sent:,} for other nodes, {taken.known:,} known"
        self._note_if(bool(taken.new or taken.sent), "import", what)
        return taken

    def forget_page(self, url: str) -> bool:
        """Queue a URL whether it is known or not; return False if it is refused.

        The seen mark of a single URL cannot be removed; this has the same effect. See
        docs/decisions/control.md#a-host-of-a-running-crawl-is-forgotten-as-if-it-were-handed-over

        :raises ForeignHostError: another node owns its host
        :raises KrowlError: as of `add`
        """
        checked = self._checked(url)
        self._check_owner(host_of(checked))
        if (pages := self._job.frontier.pages) is not None:
            batch = self._job.store.batch()
            pages.forget([checked], batch)
            batch.write()
        return self._queue(Request(url, dont_filter=True), "forget")

    def _queue(self, request: Request, order: str) -> bool:
        done = Scheduler.of(self._crawler).enqueue_request(request)
        return self._note_if(done, order, request.url)

    def reload(self) -> list[str]:
        """Have the files of settings read again within two seconds; return the settings. The log
        says what is in force.

        :raises KrowlError: no setting names a file that can be read again
        """
        if not (reloads := self._crawl.reloads):
            raise KrowlError(
                "there is nothing to reload: KROWL_EXCLUDE is not set, nor is KROWL_POLICIES"
            )
        for reload in reloads.values():
            reload()
        self._note("reload", ", ".join(reloads))
        return list(reloads)

    async def begin_snapshot(self, target: Path) -> None:
        """Begin to take a snapshot of the crawl's folder to ``target``, which ``Job.snapshot``
        goes on with.

        :raises JobError: it cannot be made there, or another one is under way
        """
        job = self._job
        # The disk of the folder may hang.
        snapshot = await run_in_thread(
            Snapshot, job.folder, job.store, job.archive.directory, target
        )
        job.snapshot.begin(snapshot)
        logger.info("Snapshot by %s: %s", self._who, target)

    def set(self, name: str, value: object) -> None:
        """Change a setting of `LIVE` until the process ends.

        :raises SettingsError: it cannot be changed now, or the value is invalid
        """
        scheduler, settings = Scheduler.of(self._crawler), self._crawler.settings
        if name == "max_pages":
            scheduler.set_page_limit(page_limit(value))
        else:
            made = changed(settings, name, value, self._job.rule)
            if name in DELAYS:
                self._orders.delays.change_policy(DELAYS[name], new_delay(made, name))
            elif name == "CONCURRENT_REQUESTS":
                downloader = self._crawler.engine.downloader
                assert isinstance(downloader, Downloader)
                downloader.total_concurrency = made.getint(name)
            elif name == "KROWL_SITEMAPS":
                scheduler.reads_sitemaps = made.getbool(name)
            elif (handler := get_scrapy_root_handler()) is not None:
                handler.setLevel(made.get(name))
        self._note("set", f"{name}={value}")

    # --- hosts ---

    def stand(
        self, kind: str, rule: str, seconds: float = 0.0, *, ended: bool = False
    ) -> tuple[StandingOrder, bool]:
        """Give a standing order for the hosts that a rule covers, those that come later included,
        or end it; after restarts too. Return it, and whether it changed anything here.

        :raises OrderError: it cannot be carried out
        """
        if kind == DELAY and not (ended or 0 <= seconds <= DELAY_MAX):
            raise OrderError(f"{seconds:g} s is no delay: give 0 to {DELAY_MAX:,.0f}")
        moment = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(self._job.wall()))
        node = "" if self._node is None else f" at node {self._node.own}"
        note = f"{self._who}{node}, {moment}"
        order = self._orders.made(kind, rule, note, seconds, ended=ended)
        return order, self.take_order(order)

    def take_order(self, order: StandingOrder) -> bool:
        """Put a standing order into force, unless a later one is known. Return whether that changed
        anything."""
        changed = self._orders.take(order)
        if changed and order.kind == DELAY and not order.ended:
            cache = self._job.frontier.schedule.cache
            for host in covered_hosts(self._job.frontier, order.rule)[0]:
                self._orders.wait(cache.get(host.name))
        action = _ENDS[order.kind] if order.ended else order.kind
        what = order.rule
        if order.kind == DELAY:
            what += ", as set" if order.ended else f", {order.seconds:g} s"
        if not order.note.startswith(self._who):
            what += f" ({order.note})"
        return self._note_if(changed, action, what)

    def covers(self, rule: str) -> Covered:
        """Return what a rule covers here."""
        return coverage(self._job.frontier, rule)

    def holder_of(self, rule: str) -> tuple[str, str, str] | None:
        """Return the order that holds the host of a rule back, as `Orders.holder_of`."""
        return self._orders.holder_of(rule_name(rule))

    def forget(self, name: str) -> list[tuple[str, int]]:
        """Remove everything of the hosts of a name, or of the one at its port, so that their URLs
        count as new where they are found again. Return each, with how many URLs were queued. A
        pause of the name ends.

        :raises UnknownHostError: the crawl does not know one
        :raises ForeignHostError: another node owns them
        :raises OrderError: a request to one is under way, or one has too many URLs; hosts before it
            are forgotten
        """
        self._check_owner(name)
        frontier = self._job.frontier
        hosts = [host.name for host in covered_hosts(frontier, name)[0]]
        if not hosts:
            raise UnknownHostError(name)
        busy = [host for host in hosts if frontier.schedule.cache.get(host).is_busy]
        if busy:
            raise OrderError(
                f"{busy[0]} is being fetched or waits for a robots.txt: pause it, and forget it"
                " some seconds later"
            )
        forgotten = [(host, self._forget_host(host)) for host in hosts]
        if name in self._orders.pauses.rules:
            self.stand(PAUSE, name, ended=True)
            for node in self.other_nodes:
                self.send_orders_again(node)
        return forgotten

    def _forget_host(self, host: str) -> int:
        queued = forget_now(self._job.frontier, host)
        if queued is None:
            raise OrderError(
                f"{host} has more than {FORGOTTEN_MAX:,} URLs, which takes too long while the crawl"
                " runs: block it, or stop the crawl and forget it by scrapy frontier"
                f" {self._job.folder.path} --forget HOST"
            )
        self._note("forget", host)
        return queued

    # --- other nodes ---

    async def ask_owner(self, owner: str, name: str, fields: Plain) -> OrderFields:
        """Have a node carry an order out; return its outcome.

        :raises OwnerError: it cannot carry it out, or does not answer
        """
        assert self._node is not None
        return await self._node.orders.ask(owner, self._who, name, fields)

    @property
    def is_node(self) -> bool:
        """Return whether this process is a node of a cluster."""
        return self._node is not None

    @property
    def other_nodes(self) -> list[str]:
        """Return the other nodes of the cluster, those away included; none without one."""
        node = self._node
        return [] if node is None else node.other_nodes

    def send_orders_again(self, node: str) -> None:
        """Have all standing orders sent again to a node that has not answered, once it is there."""
        assert self._node is not None
        self._node.forget_sent_orders(node)

    # --- parts ---

    @staticmethod
    def _checked(url: str) -> str:
        """Return a URL normalised.

        :raises KrowlError: it is no URL that a crawl fetches
        """
        if (normalised := normalise(url)) is None:
            raise KrowlError(
                f"{url!r} is not a URL that a crawl fetches: give one with http:// or https://"
            )
        return normalised

    @property
    def _orders(self) -> Orders:
        return self._job.frontier.schedule.orders

    def _check_owner(self, host: str) -> None:
        node = self._node
        if node is None or not node.knows_owners:
            return
        if (owner := node.foreign_owner(host)) is not None:
            raise ForeignHostError(host, owner)

    def _note_if(self, done: bool, action: str, what: str) -> bool:
        """Note a change if it was made; return whether it was."""
        if done:
            self._note(action, what)
        return done

    def _note(self, action: str, what: str) -> None:
        """Count and log a change that was made. The engine asks for requests: it may allow some."""
        Scheduler.of(self._crawler).intake.wake()
        self._crawler.stats.inc_value(f"krowl/control/change_count/{action}")
        logger.warning("%s by %s: %s", action.capitalize(), self._who, what)

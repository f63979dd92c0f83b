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

from krowlspider.crawl.job import Job
from krowlspider.crawl.live_settings import DELAYS, changed, new_delay, page_limit
from krowlspider.crawl.snapshots.taking import Snapshot
from krowlspider.engine.downloader import Downloader
from krowlspider.engine.importing import LineIntake
from krowlspider.engine.scheduler import Scheduler
from krowlspider.errors import KrowlError
from krowlspider.frontier.admin.edit import UnknownHostError
from krowlspider.frontier.admin.live import host_now
from krowlspider.frontier.admin.words import counted
from krowlspider.frontier.handover.forgetting import FORGOTTEN_MAX, forget_now
from krowlspider.frontier.schedule.own_delays import OrderError
from krowlspider.frontier.schedule.ownership import HostBusyError
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import domain_of, host_of
from krowlspider.urls.rules.blocks import block_rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scrapy.crawler import Crawler

    from krowlspider.cluster.transport.order_post import Plain
    from krowlspider.engine.importing import Taken
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.schedule.orders import Orders

logger = logging.getLogger(__name__)

# The longest delay of a host that a person may set, in seconds: a day.
DELAY_MAX = 86_400.0
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
        self._job = Job.of(crawler)
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
        if job.takes_lines:
            raise OrderError("another file is being taken: give this one again after it")
        if job.node is not None and not job.node.knows:
            raise OrderError("the nodes of the cluster are not known yet: try again in a minute")
        job.takes_lines = True
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
                    if (took := perf_counter() - begun) >= _TURN:
                        await asyncio.sleep(took)
                        begun = perf_counter()
            await job.make_durable()
        finally:
            job.takes_lines = False
        taken = lines.taken
        what = f"{taken.new:,} new, {taken.sent:,} for other nodes, {taken.known:,} known"
        self._note_if(bool(taken.new or taken.sent), "import", what)
        return taken

    def forget_page(self, url: str) -> bool:
        """Queue a URL whether it is known or not; return False if it is refused.

        The seen mark of a single URL cannot be removed (decision 94); this has the same effect.

        :raises ForeignHostError: another node owns its host
        :raises KrowlError: as of `add`
        """
        self._check_owner(host_of(self._checked(url)))
        return self._queue(Request(url, dont_filter=True), "forget")

    def _queue(self, request: Request, order: str) -> bool:
        done = Scheduler.of(self._crawler).enqueue_request(request)
        return self._note_if(done, order, request.url)

    def reload(self) -> list[str]:
        """Have the files of settings read again within two seconds; return the settings. The log
        says what is in force.

        :raises KrowlError: no setting names a file that can be read again
        """
        if not (reloads := self._job.reloads):
            raise KrowlError("there is nothing to reload: KROWL_EXCLUDE is not set")
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

    def pause_host(self, name: str) -> bool:
        """Send nothing to a host until `resume_host`, after restarts too. Its URLs stay queued.

        Return False for a deferred host: nothing is sent to it now anyway.

        :raises UnknownHostError: the crawl does not know it
        :raises ForeignHostError: another node owns it
        """
        host = self._host(name)
        return self._note_if(self._orders.pause(host), "pause", name)

    def resume_host(self, name: str) -> bool:
        """Let a host go on after its delay. Return False if it is not paused.

        :raises UnknownHostError: the crawl does not know it
        :raises ForeignHostError: another node owns it
        """
        host = self._host(name)
        return self._note_if(self._orders.unpause(host), "resume", name)

    def block(self, text: str) -> tuple[str, bool]:
        """Send nothing to the hosts that `block_rule` makes of a text, those found later included,
        until `unblock`, after restarts too. Their URLs stay queued. Return the rule, and False if
        it is in effect already.

        A rule that covers several domains is in effect at this node of a cluster only.

        :raises ValueError: the text is no host, domain or SURT prefix
        :raises ForeignHostError: another node owns the domain
        """
        rule = block_rule(text)
        self._check_owner_of(rule)
        moment = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(self._job.wall()))
        done = self._orders.block(rule, f"{self._who}, {moment}")
        return rule, self._note_if(done, "block", rule)

    def unblock(self, text: str) -> tuple[str, bool]:
        """End a block, given as in `block`: its hosts go on after their delay. Return its rule, and
        False if there is no such block.

        :raises ValueError: as of `block`
        :raises ForeignHostError: there is no such block here, and another node owns the domain
        """
        rule = block_rule(text)
        if rule not in self._orders.blocks.rules:
            self._check_owner_of(rule)
        return rule, self._note_if(self._orders.unblock(rule), "unblock", rule)

    def delay(self, name: str, seconds: float | None) -> bool:
        """Make the delay of a host at least so long, after restarts too; None ends that. Return
        False if it had none to end.

        :raises UnknownHostError: the crawl does not know it
        :raises ForeignHostError: another node owns it
        :raises OrderError: the settings ask for a longer delay, or it is longer than a day
        """
        host = self._host(name)
        if seconds is None:
            done = self._orders.delays.end(name)
        elif not 0 <= seconds <= DELAY_MAX:
            raise OrderError(f"{seconds:g} s is no delay: give 0 to {DELAY_MAX:,.0f}")
        else:
            self._orders.set_delay(host, float(seconds))
            done = True
        what = f"{name}, {'as set' if seconds is None else f'{seconds:g} s'}"
        return self._note_if(done, "delay", what)

    def forget(self, name: str) -> int:
        """Remove everything of a host, so that its URLs count as new where they are found again.
        Return how many URLs were queued.

        :raises UnknownHostError: the crawl does not know it
        :raises ForeignHostError: another node owns it
        :raises OrderError: a request to it is under way, or it has too many URLs
        """
        self._host(name)
        try:
            queued = forget_now(self._job.frontier, name)
        except HostBusyError:
            raise OrderError(
                f"{name} is being fetched or waits for a robots.txt: pause it, and forget it some"
                " seconds later"
            ) from None
        if queued is None:
            raise OrderError(
                f"{name} has more than {FORGOTTEN_MAX:,} URLs, which takes too long while the crawl"
                " runs: block it, or stop the crawl and forget it by scrapy frontier"
                f" {self._job.folder.path} --forget HOST"
            )
        self._note("forget", name)
        return queued

    # --- other nodes ---

    async def ask_owner(self, owner: str, name: str, fields: Plain) -> Plain:
        """Have the node that owns a host carry an order out; return its outcome.

        :raises OwnerError: it cannot carry it out, or does not answer
        """
        assert self._job.node is not None
        return await self._job.node.orders.ask(owner, self._who, name, fields)

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

    def _host(self, name: str) -> Host:
        self._check_owner(name)
        frontier = self._job.frontier
        if host_now(frontier, name) is None:
            raise UnknownHostError(name)
        return frontier.schedule.cache.get(name)

    def _check_owner_of(self, rule: str) -> None:
        name = ".".join(reversed(rule[:-1].split(","))) if rule[-1] in ",)" else rule
        # All names below a public suffix are of many domains.
        if rule[-1] != "," or domain_of(f"www.{name}") == domain_of(name):
            self._check_owner(name)

    def _check_owner(self, host: str) -> None:
        node = self._job.node
        if node is None or not node.knows:
            return
        if (owner := node.others([host])[0]) is not None:
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

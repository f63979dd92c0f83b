"""Changes to a running crawl by a person: each is durable, logged and counted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Request

from krowlspider.crawl.job import Job
from krowlspider.engine.scheduler import Scheduler
from krowlspider.frontier.admin.edit import UnknownHostError
from krowlspider.frontier.admin.live import host_now

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from krowlspider.frontier.hosts.host import Host

logger = logging.getLogger(__name__)


class Steering:
    """Changes one crawl that is open. ``who`` is what the log calls the person."""

    def __init__(self, crawler: Crawler, who: str):
        self._crawler = crawler
        self._job = Job.of(crawler)
        self._who = who

    def pause(self) -> None:
        """Send no request until `resume`, after restarts too; what is in flight ends."""
        self._job.pause()
        self._note("pause", "the crawl")

    def resume(self) -> None:
        """Let the crawl go on."""
        self._job.unpause()
        Scheduler.of(self._crawler).wake()
        self._note("resume", "the crawl")

    def pause_host(self, name: str) -> bool:
        """Send nothing to a host until `resume_host`, after restarts too. Its URLs stay queued.

        Return False for a deferred host: nothing is sent to it now anyway.

        :raises UnknownHostError: the crawl does not know it
        """
        done = self._job.frontier.schedule.pause(self._host(name))
        if done:
            self._note("pause", name)
        return done

    def resume_host(self, name: str) -> bool:
        """Let a host go on after its delay. Return False if it is not paused.

        :raises UnknownHostError: the crawl does not know it
        """
        done = self._job.frontier.schedule.unpause(self._host(name))
        if done:
            Scheduler.of(self._crawler).wake()
            self._note("resume", name)
        return done

    def add(self, url: str, priority: int = 0) -> bool:
        """Queue a URL as a seed; return False if it is known or refused."""
        scheduler = Scheduler.of(self._crawler)
        request = Request(url, priority=priority, meta={"is_start_request": True})
        done = scheduler.enqueue_request(request)
        if done:
            scheduler.wake()
            self._note("add", url)
        return done

    def _host(self, name: str) -> Host:
        frontier = self._job.frontier
        if host_now(frontier, name) is None:
            raise UnknownHostError(name)
        return frontier.schedule.cache.get(name)

    def _note(self, action: str, what: str) -> None:
        self._crawler.stats.inc_value(f"krowl/control/change_count/{action}")
        logger.warning("%s by %s: %s", action.capitalize(), self._who, what)

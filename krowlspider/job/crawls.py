"""The crawl of each crawler: its job, and its node in a cluster. One owner closes both."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from krowlspider.config.validation import check
from krowlspider.job.job import ClusterContext, Job
from krowlspider.job.meters import Meters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from krowlspider.job.hooking.hooked import Hooked
    from krowlspider.job.monitoring.page_server import RouteMaker
    from krowlspider.job.nodes.node import Node
    from krowlspider.recrawl.indexnow import Submission
    from krowlspider.urls.scope import AskedScope

    # Takes what a reader returns, given the characters of the longest URL, and returns the status
    # of the answer, and what it says.
    TakeSubmission = Callable[[Callable[[int], Submission]], Awaitable[tuple[int, str]]]

_crawls: WeakKeyDictionary[Crawler, Crawl] = WeakKeyDictionary()


class Crawl:
    """A job that is open, and this process as a node of a cluster; None for a crawl of one process.

    The scheduler runs both, and closes them as the engine ends.
    """

    def __init__(self, job: Job, node: Node | None):
        self.job = job
        self.node = node
        # Returns for what a crawl waits that is being stopped, else "".
        self.stopping: Callable[[], str] = str
        # Whether a file of URLs is being taken.
        self.takes_lines = False
        # Files that can be read again while the crawl runs, by their setting.
        self.reloads: dict[str, Callable[[], None]] = {}
        # Where this process can be watched, in words: extensions add to it as the engine starts.
        self.watched_at: list[str] = []
        # The maker of the routes of page and API; None if they are not served.
        self.page: RouteMaker | None = None
        # Takes submissions of IndexNow; None if none are taken.
        self.index_now: TakeSubmission | None = None
        # Whether the crawl has ended by itself without fetching one of its pages.
        self.nothing_fetched = False
        # Number of finished files that KROWL_WARC_UPLOAD has not taken by the end.
        self.not_uploaded = 0
        self._is_closed = False

    async def close(self) -> None:
        """Leave the cluster, and close the job, although the other fails. Only the first call
        does."""
        if self._is_closed:
            return
        self._is_closed = True
        self.job.give_up()
        async with AsyncExitStack() as parts:
            parts.push_async_callback(self.job.close)
            if self.node is not None:
                parts.push_async_callback(self.node.stop)


@runtime_checkable
class Scoped(Protocol):
    """A spider that has a scope."""

    asked_scope: AskedScope


def crawl_of(crawler: Crawler) -> Crawl:
    """Return the crawl of a crawler, whose spider exists; open it at the first call.

    :raises KrowlError: as of `check` and `Job`
    """
    crawl = opened_crawl(crawler)
    if crawl is None:
        # Here, because no setting can take away every component that needs the job.
        check(crawler.settings)
        crawl = open_crawl(crawler)
    return crawl


def job_of(crawler: Crawler) -> Job:
    """Return the job of a crawler, as `crawl_of`."""
    return crawl_of(crawler).job


def node_of(crawler: Crawler) -> Node | None:
    """Return the node of a crawler, None for a crawl of one process, as `crawl_of`."""
    return crawl_of(crawler).node


def open_crawl(crawler: Crawler, kind: type[Job] = Job) -> Crawl:
    """Open the crawl of a crawler; ``kind`` is the class of its job.

    :raises KrowlError: as of `Job`
    """
    settings, spider = crawler.settings, crawler.spider
    name = crawler.spidercls.name
    meters = Meters() if settings.getbool("PROMETHEUS_ENABLED") else None
    node = _node(settings, name, meters)
    cluster = None if node is None else _cluster(node)
    asked = spider.asked_scope if isinstance(spider, Scoped) else None
    job = kind(settings, name, asked, meters=meters, cluster=cluster, hooks=_hooks(crawler))
    crawl = _crawls[crawler] = Crawl(job, node)
    return crawl


def _hooks(crawler: Crawler) -> Hooked | None:
    """Return the hooks of a crawl; None without KROWL_HOOKS."""
    if not crawler.settings["KROWL_HOOKS"]:
        return None
    from krowlspider.job.hooking.hooked import hooked  # noqa: PLC0415 - for few crawls

    return hooked(crawler)


def opened_crawl(crawler: Crawler) -> Crawl | None:
    """Return the crawl of a crawler; None if the start has ended before it had one."""
    return _crawls.get(crawler)


def _node(settings: BaseSettings, spider: str, meters: Meters | None) -> Node | None:
    """Return this process as a node of the cluster; None for a crawl of one process.

    :raises ClusterError: this node is not among the members, or they cannot reach it
    """
    # Imported here, so that a crawl of one process does not load Redis.
    if settings["KROWL_CONSUL"]:
        from krowlspider.job.nodes.cluster import Cluster  # noqa: PLC0415
        from krowlspider.job.nodes.node import Node  # noqa: PLC0415

        on_answer = None if meters is None else meters.consul.observe
        return Node(settings, spider, partial(Cluster, on_answer=on_answer), meters)
    return None


def _cluster(node: Node) -> ClusterContext:
    cluster = node.cluster
    return ClusterContext(
        node.own,
        cluster.place,
        agree_on_seed=cluster.prepare,
        may_fetch=node.may_fetch,
        peers=node.robots_post,
    )

"""Take submissions of IndexNow: hold them until the key of their site is checked, then bring their
pages forward.

A submission that waits is in the queue entry of its key file, so it is as durable as a page, and
moves with its host. The file is fetched as a page of the host is, under its delay and robots.txt.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import DownloadCancelledError

from krowlspider.engine.scheduler import Scheduler
from krowlspider.frontier.pages.hinted import Hint
from krowlspider.frontier.robots.gate import Verdict
from krowlspider.frontier.store.schema import host_key
from krowlspider.job.crawls import job_of, node_of
from krowlspider.recrawl.indexnow import (
    EXPIRES,
    FILE_MAX,
    OK,
    TOO_MANY,
    UNFIT,
    WAITS,
    Keys,
    Refused,
    Submission,
    is_right,
)
from krowlspider.urls.canonical import authority_of, host_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure

logger = logging.getLogger(__name__)

# Another node owns the host: RFC 9110, section 15.5.20.
MISDIRECTED = 421
# URLs queued between two turns of the event loop.
_URLS_AT_ONCE = 200
# The depth of URLs that are not known: that of links of a seed.
_DEPTH = 1
_META = "krowl_indexnow"


class IndexNow:
    """Takes the submissions to one crawl."""

    def __init__(
        self,
        crawler: Crawler,
        callback: Callable[[Response], AsyncIterator[Any]],
        errback: Callable[[Failure], None],
    ):
        self._crawler = crawler
        self._request = partial(Request, callback=callback, errback=errback)
        self._keys = Keys()

    async def take(self, read: Callable[[int], Submission]) -> tuple[int, str]:
        """Take what ``read`` returns, given the characters of the longest URL. Return the status of
        the answer, and what it says.

        :raises StoreError: the store cannot be written
        """
        url_max = self._crawler.settings.getint("URLLENGTH_LIMIT") or FILE_MAX
        try:
            # Up to 10,000 URLs of a stranger.
            submission = await asyncio.to_thread(read, url_max)
            self._check_host(submission.host)
            is_known = self._keys.take(submission, job_of(self._crawler).monotonic())
            if is_known:
                await self._follow(submission, waits=False)
            else:
                self._hold(submission)
        except Refused as error:
            self._count(f"refused_count/{error.reason}")
            return error.status, str(error)
        if is_known:
            return OK, "taken"
        return WAITS, "taken, until the key is checked"

    def _check_host(self, host: str) -> None:
        """Refuse the URLs of a host that nobody asked this crawl to fetch.

        :raises Refused: this crawl knows nothing of it, or another node owns it
        """
        node, job = node_of(self._crawler), job_of(self._crawler)
        if (
            node is not None
            and node.knows_owners
            and (owner := node.foreign_owner(host)) is not None
        ):
            raise Refused(MISDIRECTED, "owner", f"node {owner} owns {host}: submit there")
        if job.store.get(host_key(host)) is None:
            raise Refused(UNFIT, "host", f"this crawl has no page of {host}")

    def _hold(self, submission: Submission) -> None:
        """Queue the key file, before all else of its host, with the submission in it."""
        job = job_of(self._crawler)
        about = [submission.key, job.wall(), "\n".join(submission.urls)]
        meta = {
            "depth": 0,
            "handle_httpstatus_all": True,
            "download_maxsize": FILE_MAX,
            _META: about,
        }
        queued = not self._is_disallowed(submission.location) and Scheduler.of(
            self._crawler
        ).intake.discover(
            [submission.location],
            depth=0,
            via=submission.host,
            request=partial(self._request, meta=meta),
            is_first=True,
            again=True,
        )
        if not queued:
            self._keys.checked(submission, job.monotonic(), right=None)
            raise Refused(UNFIT, "host", "this crawl does not fetch the file of the key")

    def _is_disallowed(self, url: str) -> bool:
        """Return whether the robots.txt that is known refuses a URL that no sheet may permit. A URL
        that is refused at the pop ends no check."""
        job = job_of(self._crawler)
        if job.sites is not None or not self._crawler.settings.getbool("ROBOTSTXT_OBEY"):
            return False
        return job.robots.verdict(authority_of(url), url) is Verdict.DISALLOWED

    async def read(self, response: Response) -> None:
        """Check a key by its file, and follow the submission that waits for it.

        :raises StoreError: the store cannot be written
        """
        job = job_of(self._crawler)
        key, submitted, text = response.meta[_META]
        location = response.url
        urls = tuple(url for url in text.split("\n") if host_of(url) == host_of(location))
        submission = Submission(host_of(location), key, location, urls)
        right = is_right(response.status, response.body, key)
        self._keys.checked(submission, job.monotonic(), right=right)
        if not right:
            self._count("refused_count/key")
            logger.debug("IndexNow: %s does not have the key: %d", location, response.status)
        elif abs(job.wall() - submitted) > EXPIRES:
            self._count("refused_count/late")
        else:
            await self._follow(submission, waits=True)

    def failed(self, failure: Failure) -> None:
        """End the check of a key whose file was not read: it is wrong if the file is too long,
        else unknown, so that a further submission has it checked again."""
        request: Request = failure.request  # type: ignore[attr-defined]
        key, _, _ = request.meta[_META]
        submission = Submission(host_of(request.url), key, request.url, ())
        right = False if failure.check(DownloadCancelledError) else None
        self._keys.checked(submission, job_of(self._crawler).monotonic(), right=right)
        self._count("refused_count/key")

    async def _follow(self, submission: Submission, *, waits: bool) -> None:
        """Bring known pages forward, and queue unknown ones as links of the host. If it ``waits``,
        return once that is written.

        :raises Refused: too many hints wait, and it does not wait
        """
        scheduler = Scheduler.of(self._crawler)
        recrawl, urls = scheduler.recrawl, submission.urls
        assert recrawl is not None
        hints = (Hint(recrawl.key(url)) for url in urls)
        while not recrawl.take_hints(hints, len(urls)):
            if not waits:
                raise Refused(TOO_MANY, "flood", "too many URLs wait: try again later")
            await self._hinted()
        self._count("taken_count", len(urls))
        for at in range(0, len(urls), _URLS_AT_ONCE):
            scheduler.intake.discover(
                urls[at : at + _URLS_AT_ONCE],
                depth=_DEPTH,
                via=submission.host,
                page=submission.location,
            )
            await asyncio.sleep(0)
        if waits:
            await self._hinted()

    async def _hinted(self) -> None:
        """Return once the hints that wait are written."""
        recrawl = Scheduler.of(self._crawler).recrawl
        if recrawl is not None and recrawl.hinting is not None:
            await asyncio.wait([recrawl.hinting])

    def _count(self, name: str, count: int = 1) -> None:
        self._crawler.stats.inc_value(f"krowl/indexnow/{name}", count)

"""The dupefilter seam: what a URL's identity is, and whether it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.dupefilters import BaseDupeFilter

from krowlspider.frontier.schema import KEY_SIZE
from krowlspider.job import Job
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler


class DupeFilter(BaseDupeFilter):
    """Identities of requests, and the seen set that knows them.

    It never marks anything: a seen mark is written by the frontier, in one batch with the queue entry.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._job = Job.of(crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def identity(self, request: Request, url: str) -> bytes:
        """The 8-byte identity of a request for a normalised URL; other methods than GET count their body."""
        if request.method == "GET" and not request.body:
            return self._job.hasher.key(url)
        return self._crawler.request_fingerprinter.fingerprint(request)[:KEY_SIZE]

    def request_seen(self, request: Request) -> bool:
        url = normalise(request.url)
        if url is None:
            return False
        return self._job.frontier.seen.known(host_of(url), self.identity(request, url))

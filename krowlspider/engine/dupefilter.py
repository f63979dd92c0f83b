"""The dupefilter: computes the identity of a request and looks it up in the seen set."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from scrapy.dupefilters import BaseDupeFilter

from krowlspider.crawl.crawls import job_of
from krowlspider.frontier.store.schema import KEY_SIZE
from krowlspider.urls.canonical import normalise, requisite_identity
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler

    from krowlspider.urls.canonical import IdentityHasher


class DupeFilter(BaseDupeFilter):
    """Computes the identities of requests and looks them up in the seen set.

    It marks nothing: the frontier writes the seen mark in one batch with the queue entry. Links of
    a page skip it: their identities are those of GETs, and the intake computes them for the whole
    page at a time.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @cached_property
    def hasher(self) -> IdentityHasher:
        """Computes the identities of URLs: that of the job, unless another one is set."""
        return job_of(self._crawler).hasher

    def identity(self, request: Request, url: str) -> bytes:
        """Return the 8-byte identity of a request for a normalised URL.

        A GET without a body has the identity of its URL, as a page or as a requisite. Any other
        request has the start of its Scrapy fingerprint, which includes method and body.
        """
        if request.method == "GET" and not request.body:
            is_requisite = "krowl_requisite" in request.meta
            return self.hasher.key(requisite_identity(url) if is_requisite else url)
        fingerprint = self._crawler.request_fingerprinter.fingerprint(request)
        # A fingerprinter of a user may return fewer bytes.
        return fingerprint[:KEY_SIZE].ljust(KEY_SIZE, b"\0")

    def request_seen(self, request: Request) -> bool:
        """Return whether the request is known; False for a URL that cannot be normalised."""
        url = normalise(request.url)
        if url is None:
            return False
        seen = job_of(self._crawler).frontier.seen
        return seen.known(host_of(url), self.identity(request, url))

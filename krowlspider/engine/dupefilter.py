"""Identities of requests, looked up in the seen set, and of entries that are read without a
crawl.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.misc import build_from_crawler, load_object

from krowlspider.frontier.entry import AS_JSON, JSON, Entry
from krowlspider.frontier.store.schema import KEY_SIZE
from krowlspider.job.codec import RequestCodec
from krowlspider.job.crawls import job_of
from krowlspider.urls.canonical import IdentityHasher, host_of, normalise, requisite_identity

if TYPE_CHECKING:
    from typing import Self

    from scrapy.settings import Settings


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


# Prefix of the request classes that such a request may name: those of Scrapy.
_CLASSES = "scrapy.http.request."


class _ImportSpider(Spider):
    """Stands for the spider that will crawl, which is unknown here."""

    name = "import"


def _dupefilter(settings: Settings, seed: int) -> DupeFilter:
    """Return the dupefilter of a crawl with these settings, which computes its identities."""
    crawler = Crawler(_ImportSpider, settings)
    crawler.addons.load_settings(crawler.settings)
    crawler.request_fingerprinter = build_from_crawler(
        load_object(crawler.settings["REQUEST_FINGERPRINTER_CLASS"]), crawler
    )
    found: DupeFilter = build_from_crawler(
        load_object(crawler.settings["DUPEFILTER_CLASS"]), crawler
    )
    found.hasher = IdentityHasher(seed)
    return found


class ImportedIdentity:
    """Returns the identity of an entry in a job with this seed; None for a request with
    ``dont_filter``.

    ``settings`` are those of a command that fetches nothing.
    """

    def __init__(self, settings: Settings, seed: int):
        self._dupefilter = _dupefilter(settings, seed)
        self._codec = RequestCodec(_ImportSpider())

    def __call__(self, entry: Entry) -> bytes | None:
        """:raises ValueError: the entry's request cannot be imported; the message says why"""
        request = self._request(entry) if entry.request else Request(entry.url)
        return None if request.dont_filter else self._dupefilter.identity(request, entry.url)

    def _request(self, entry: Entry) -> Request:
        if entry.is_plain or entry.is_requisite:
            return self._codec.request(entry)
        if entry.request[:1] not in AS_JSON:
            raise ValueError("its request is a pickle, which only the crawl that wrote it may read")
        try:
            fields = json.loads(entry.request[1:])
            if not fields.get("_class", _CLASSES).startswith(_CLASSES):
                raise ValueError(f"its request is a {fields['_class']}, no class of Scrapy")
            # The callbacks belong to the spider that will crawl.
            bare = json.dumps({**fields, "callback": None, "errback": None}).encode()
            request = self._codec.request(Entry(entry.url, request=JSON + bare))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its request cannot be read: {error!r}") from error
        if normalise(request.url) != entry.url:
            # The line's URL decides host and robots.txt, but the request would be fetched.
            raise ValueError("its request is for another URL")
        return request

"""The identities of entries that are read without their crawl: imported, or handed over."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.utils.misc import build_from_crawler, load_object

from krowlspider.crawl.codec import RequestCodec
from krowlspider.frontier.entry import AS_JSON, JSON, Entry
from krowlspider.urls.canonical import IdentityHasher, normalise

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from krowlspider.engine.dupefilter import DupeFilter

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

"""``scrapy frontier --import``: queue URLs from outside, by the settings of this project."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.utils.misc import build_from_crawler, load_object

from krowlspider.config.validation import offline
from krowlspider.crawl.codec import RequestCodec
from krowlspider.crawl.job import Job
from krowlspider.crawl.parts import delay_policy, frontier_limits
from krowlspider.frontier.admin.export import Imported, import_lines, parse_line
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.seen.filter_file import FilterFile
from krowlspider.frontier.seen.seen_set import SeenSet
from krowlspider.urls.canonical import IdentityHasher, normalise
from krowlspider.urls.length import REFERENCE_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy.settings import Settings

    from krowlspider.crawl.folder import JobFolder, JobHead
    from krowlspider.engine.dupefilter import DupeFilter
    from krowlspider.frontier.store.store import LevelStore

# The first byte of a request that is stored as JSON: see `krowlspider.crawl.codec`.
_JSON = b"J"
# Prefix of the request classes that an imported request may name: those of Scrapy.
_CLASSES = "scrapy.http.request."


class _ImportSpider(Spider):
    """Stands for the spider that will crawl, which is unknown here."""

    name = "import"


def _dupefilter(settings: Settings, seed: int) -> DupeFilter:
    """Return the dupefilter of a crawl with these settings, which computes its identities."""
    crawler = Crawler(_ImportSpider, offline(settings))
    crawler.addons.load_settings(crawler.settings)
    crawler.request_fingerprinter = build_from_crawler(
        load_object(crawler.settings["REQUEST_FINGERPRINTER_CLASS"]), crawler
    )
    # The job is never opened: identities need its hasher alone.
    Job.of(crawler).hasher = IdentityHasher(seed)
    found: DupeFilter = build_from_crawler(
        load_object(crawler.settings["DUPEFILTER_CLASS"]), crawler
    )
    return found


class _Identify:
    """Returns the identity of an imported entry; None for a request with ``dont_filter``."""

    def __init__(self, dupefilter: DupeFilter):
        self._dupefilter = dupefilter
        self._codec = RequestCodec(_ImportSpider())

    def __call__(self, entry: Entry) -> bytes | None:
        """:raises ValueError: the entry's request cannot be imported; the message says why"""
        request = self._request(entry) if entry.request else Request(entry.url)
        return None if request.dont_filter else self._dupefilter.identity(request, entry.url)

    def _request(self, entry: Entry) -> Request:
        if entry.is_requisite:
            return self._codec.request(entry)
        if entry.request[:1] != _JSON:
            raise ValueError("its request is a pickle, which only the crawl that wrote it may read")
        try:
            fields = json.loads(entry.request[1:])
            if not fields.get("_class", _CLASSES).startswith(_CLASSES):
                raise ValueError(f"its request is a {fields['_class']}, no class of Scrapy")
            # The callbacks belong to the spider that will crawl.
            bare = json.dumps({**fields, "callback": None, "errback": None}).encode()
            request = self._codec.request(Entry(entry.url, request=_JSON + bare))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its request cannot be read: {error!r}") from error
        if normalise(request.url) != entry.url:
            # The line's URL decides host and robots.txt, but the request would be fetched.
            raise ValueError("its request is for another URL")
        return request


def import_into(
    folder: JobFolder,
    head: JobHead,
    store: LevelStore,
    settings: Settings,
    lines: Iterable[bytes],
) -> Imported:
    """Queue the new URLs in ``lines``, and return the counts of the import.

    Each bad line is reported on standard error with its number. The store is left as after a
    crash: at the next start, each host waits its delay once.
    """
    seen = SeenSet(
        store,
        settings.getint("KROWL_SEEN_CAPACITY"),
        verify=settings.getbool("KROWL_SEEN_VERIFY"),
        file=FilterFile(folder.seen),
    )
    frontier = Frontier(
        store,
        seen,
        frontier_limits(settings),
        delay_policy(settings),
        monotonic=time.monotonic,
        wall=time.time,
    )
    # 0 means no limit, as in Scrapy, except the limit for URLs that are parsed.
    url_max = min(settings.getint("URLLENGTH_LIMIT") or REFERENCE_MAX, REFERENCE_MAX)
    identify = _Identify(_dupefilter(settings, head.seed))
    parse = partial(parse_line, identify=identify, url_max=url_max)
    return import_lines(frontier, store, lines, parse, _complain)


def _complain(number: int, mistake: str) -> None:
    print(f"krowlspider: line {number} skipped: {mistake}", file=sys.stderr)

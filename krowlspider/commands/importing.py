"""``scrapy frontier --import``: queue URLs from outside, by the settings of this project."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from scrapy import Spider
from scrapy.utils.request import fingerprint

from krowlspider.crawl.codec import RequestCodec
from krowlspider.crawl.parts import delay_policy, frontier_limits
from krowlspider.frontier.admin.export import Imported, import_lines, parse_line
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.seen.filter_file import FilterFile
from krowlspider.frontier.seen.seen_set import SeenSet
from krowlspider.frontier.store.schema import KEY_SIZE
from krowlspider.urls.canonical import IdentityHasher, normalise
from krowlspider.urls.length import REFERENCE_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy.settings import BaseSettings

    from krowlspider.crawl.folder import JobFolder, JobHead
    from krowlspider.frontier.store.store import LevelStore

# The first byte of a request that is stored as JSON: see `krowlspider.crawl.codec`.
_JSON = b"J"
# Prefix of the request classes that an imported request may name: those of Scrapy.
_CLASSES = "scrapy.http.request."


class _Identify:
    """Computes the identity of an imported entry, as the dupefilter computes it.

    The identity is a key of the seen set, or None for a request with ``dont_filter``.
    """

    def __init__(self, seed: int):
        self._hasher = IdentityHasher(seed)
        self._codec = RequestCodec(Spider(name="import"))

    def __call__(self, entry: Entry) -> bytes | None:
        """:raises ValueError: the entry's request cannot be imported; the message is the reason"""
        if not entry.request:
            return self._hasher.key(entry.url)
        if entry.request[:1] != _JSON:
            raise ValueError(
                "its request is a pickle, which is read from the crawl that wrote it only"
            )
        try:
            said = json.loads(entry.request[1:])
            if not said.get("_class", _CLASSES).startswith(_CLASSES):
                raise ValueError(f"its request is a {said['_class']}, which is none of Scrapy's")
            # The callbacks belong to the spider that will crawl, which is unknown here.
            bare = json.dumps({**said, "callback": None, "errback": None}).encode()
            request = self._codec.request(Entry(entry.url, request=_JSON + bare))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its request cannot be read: {error!r}") from error
        if normalise(request.url) != entry.url:
            # The URL decides the host and its robots.txt, but the request is fetched.
            raise ValueError("its request is for another URL")
        if request.dont_filter:
            return None
        if request.method == "GET" and not request.body:
            return self._hasher.key(entry.url)
        return fingerprint(request)[:KEY_SIZE]


def import_into(
    folder: JobFolder,
    head: JobHead,
    store: LevelStore,
    settings: BaseSettings,
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
    parse = partial(parse_line, identify=_Identify(head.seed), url_max=url_max)
    return import_lines(frontier, store, lines, parse, _complain)


def _complain(number: int, mistake: str) -> None:
    print(f"krowlspider: line {number} skipped: {mistake}", file=sys.stderr)

"""``scrapy frontier --import``: URLs from outside, queued by the rules of this project's settings."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from scrapy import Spider
from scrapy.utils.request import fingerprint

from krowlspider.codec import RequestCodec
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.exchange import Imported, import_lines, parse_line
from krowlspider.frontier.filterfile import FilterFile
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.schema import KEY_SIZE
from krowlspider.frontier.seen import SeenSet
from krowlspider.job import frontier_limits, pace_rule
from krowlspider.urls.canonical import IdentityHasher, normalise
from krowlspider.urls.length import REFERENCE_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy.settings import BaseSettings

    from krowlspider.frontier.store import LevelStore
    from krowlspider.jobfolder import JobFolder, JobHead

# The first byte of a request that is kept as JSON: see `codec`.
_JSON = b"J"
# Of the classes that a request may name, those that Scrapy brings.
_CLASSES = "scrapy.http.request."


class _Identify:
    """The identity of an imported entry, as the dupefilter would find it."""

    def __init__(self, seed: int):
        self._hasher = IdentityHasher(seed)
        self._codec = RequestCodec(Spider(name="import"))

    def __call__(self, entry: Entry) -> bytes | None:
        """:raises ValueError: its request cannot be taken from outside"""
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
            # Its callbacks are those of the spider that will crawl, who is not known here.
            bare = json.dumps({**said, "callback": None, "errback": None}).encode()
            request = self._codec.request(Entry(entry.url, request=_JSON + bare))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its request cannot be read: {error!r}") from error
        if normalise(request.url) != entry.url:
            # The URL decides whose turn and whose robots.txt it is, the request what is fetched.
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
    """Queue what is new in lines; each bad one is reported on standard error.

    The store is left as a crawl that died leaves it: at the next start each host waits its delay once.
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
        pace_rule(settings),
        monotonic=time.monotonic,
        wall=time.time,
    )
    # 0 is no limit, as in Scrapy, but that of what is parsed.
    url_max = min(settings.getint("URLLENGTH_LIMIT") or REFERENCE_MAX, REFERENCE_MAX)
    parse = partial(parse_line, identify=_Identify(head.seed), url_max=url_max)
    return import_lines(frontier, store, lines, parse, _complain)


def _complain(number: int, mistake: str) -> None:
    print(f"krowlspider: line {number} skipped: {mistake}", file=sys.stderr)

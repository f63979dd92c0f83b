"""What is measured while the crawl runs, beside its stats: histograms, and counts of answers."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.fetch.exchange import Exchange, Times

# Upper bounds of the buckets: seconds of the network, seconds of the disk, bytes, and counts.
NETWORK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
DISK = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0)
LOOP = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
SIZES = (1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 1e8)
COUNTS = (0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
# Labels. Anything else is "other", an answer without a Content-Type is of "none".
CONTENT_TYPES = (
    *("html", "text", "json", "xml", "image", "media", "style", "script", "pdf", "font", "other"),
    "none",
)
HTTP_VERSIONS = ("1.0", "1.1")
TLS_VERSIONS = ("none", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3", "other")
# Bytes of a Content-Type that are read: the last ones read are kept.
_TYPE_MAX = 100
# Exchanges that are counted at a time: amid the work on a page, the tables of one are in no cache.
_TOGETHER = 256
# Parts of a media type, each with its class. The first one found decides.
_CLASSES = (
    ("html", "html"),
    ("image/", "image"),
    ("video/", "media"),
    ("audio/", "media"),
    ("font", "font"),
    ("css", "style"),
    ("javascript", "script"),
    ("json", "json"),
    ("xml", "xml"),
    ("pdf", "pdf"),
    ("text/", "text"),
)


class Histogram:
    """Counts values in buckets. A value is in the first bucket whose bound is not below it."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]):
        self.bounds = bounds
        # The last one counts the values over all bounds.
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Meters:
    """The histograms of a crawl, and the counts of its answers by content type and version."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Times, tuple[str, str] | None, int, str, bytes]] = []
        self.dns = Histogram(NETWORK)
        self.connect = Histogram(NETWORK)
        self.tls = Histogram(NETWORK)
        self.first_byte = Histogram(NETWORK)
        self.fetch = Histogram(NETWORK)
        self.size = Histogram(SIZES)
        self.links = Histogram(COUNTS)
        self.commit = Histogram(DISK)
        self.batch = Histogram(DISK)
        self.pair = Histogram(DISK)
        self.inbox = Histogram(DISK)
        self.redis = Histogram(DISK)
        self.consul = Histogram(NETWORK)
        self.loop_lag = Histogram(LOOP)
        self.content_types: dict[str, float] = dict.fromkeys(CONTENT_TYPES, 0)
        self.http_versions: dict[str, float] = dict.fromkeys(HTTP_VERSIONS, 0)
        self.tls_versions: dict[str, float] = dict.fromkeys(TLS_VERSIONS, 0)

    def fetched(self, exchange: Exchange) -> None:
        """Measure an exchange, by the next `count`, or with `_TOGETHER` of them."""
        content_type = b""
        for name, text in exchange.headers:
            if len(name) == 12 and name.lower() == b"content-type":
                content_type = text[:_TYPE_MAX]
                break
        stored = exchange.stored
        # Not `response_size`, which is a call.
        size = len(exchange.response_bytes) if stored is None else stored.size
        tls = exchange.peer.tls
        self._waiting.append((exchange.times, tls, size, exchange.version, content_type))
        if len(self._waiting) == _TOGETHER:
            self.count()

    def count(self) -> None:
        """Count the exchanges that wait. Call it before anything is read."""
        for times, tls, size, version, content_type in self._waiting:
            self.first_byte.observe(times.latency)
            self.fetch.observe(times.duration)
            self.size.observe(size)
            if (dialled := times.dialled) is not None:
                self.connect.observe(dialled.connect)
                if tls is not None:
                    self.tls.observe(dialled.tls)
            self.http_versions[version] += 1
            named = "none" if tls is None else tls[0]
            self.tls_versions[named if named in self.tls_versions else "other"] += 1
            self.content_types[content_class(content_type)] += 1
        self._waiting.clear()


@lru_cache(maxsize=256)
def content_class(content_type: bytes) -> str:
    """Return the class of a Content-Type, one of `CONTENT_TYPES`."""
    kind = content_type.partition(b";")[0].strip().lower().decode("latin-1")
    if not kind:
        return "none"
    return next((found for part, found in _CLASSES if part in kind), "other")

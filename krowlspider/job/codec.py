"""Convert Scrapy requests to queue entries and back.

A plain page (GET, no headers, only depth and retry counts in its meta) is stored as its URL and a
few counters; a requisite has its kind and level besides. Any other request is stored whole: as JSON
if JSON gives back the same values, else as a pickle, which is read only from this job's folder and
never from the network.
"""

from __future__ import annotations

import json
import pickle
import struct
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from scrapy import FormRequest, Request, Spider
from scrapy.http import JsonRequest, XmlRpcRequest
from scrapy.utils.request import request_from_dict

from krowlspider.cluster.transport.message import Message, carried, dumps, encode, loads
from krowlspider.frontier.entry import (
    AS_JSON,
    INDEX_KEY,
    JSON,
    OPT_OUT,
    PICKLE,
    REQUISITE,
    SITEMAP,
    Entry,
)
from krowlspider.urls.canonical import host_of, is_data
from krowlspider.urls.page.requisites.requisite import Requisite
from krowlspider.urls.page.sitemap import BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy.settings import BaseSettings

    from krowlspider.frontier.pages.seed_names import SeedNames

# What a meta key of a broad spider's request says that it is for.
_FILES = {"krowl_sitemap": SITEMAP, "krowl_opt_out": OPT_OUT, "krowl_indexnow": INDEX_KEY}
# Request classes that may come from another node, besides Request itself.
_CLASSES = {
    f"{kind.__module__}.{kind.__name__}" for kind in (FormRequest, JsonRequest, XmlRpcRequest)
}
# Meta keys set while a request is in flight; a stored request starts without them.
_TRANSIENT = {
    "download_latency",
    "download_slot",
    "krowl_warc",
    "krowl_warc_id",
    "krowl_outlinks",
    "krowl_charset",
    "krowl_bare",
    "krowl_path",
    "krowl_seed",
    "krowl_tag",
    "is_start_request",
}
_OF_PROXY = {"proxy", "_auth_proxy", "_scheme_proxy"}
_COUNTED = {"depth", "redirect_times", "redirect_urls", "retry_times", "throttling_times"}
_PLAIN = _TRANSIENT | _COUNTED
# Limits that a request from outside may lower, by meta key, with the least value of each.
_LEAST = {"download_timeout": 0.001, "download_maxsize": 1, "max_retry_times": 0}


@runtime_checkable
class PageSpider(Protocol):
    """A spider that makes the request of a plain page itself."""

    def page_request(self, url: str, meta: dict[str, Any]) -> Request: ...


@runtime_checkable
class RequisiteSpider(Protocol):
    """A spider that makes the request of a requisite itself."""

    def requisite_request(self, url: str, meta: dict[str, Any]) -> Request:
        """Return the request for ``meta["krowl_requisite"]``, a kind and a level."""


@runtime_checkable
class SitemapSpider(Protocol):
    """A spider that makes the request of a sitemap that is fetched again."""

    def sitemap_request(self, url: str, meta: dict[str, Any], listing: bytes) -> Request:
        """Return the request for a sitemap; its row has ``listing``."""


def request_limits(settings: BaseSettings) -> dict[str, float]:
    """Return the limits, by meta key, of a request that sets none of its own."""
    return {
        "download_timeout": settings.getfloat("DOWNLOAD_TIMEOUT"),
        "download_maxsize": settings.getint("DOWNLOAD_MAXSIZE"),
        "max_retry_times": settings.getint("RETRY_TIMES"),
    }


class RequestCodec:
    """Converts the requests of one spider to entries and back.

    ``limits`` are the highest values that a request from outside may set; None: it may set none.
    ``seeds`` names the seeds that pages came from; None: that is not kept.
    """

    def __init__(
        self,
        spider: Spider,
        limits: Mapping[str, float] | None = None,
        seeds: SeedNames | None = None,
    ):
        self._spider = spider
        self._seeds = seeds
        self._limits = dict.fromkeys(_LEAST, -1.0) if limits is None else limits
        self._page_spider = spider if isinstance(spider, PageSpider) else None
        self._requisite_spider = spider if isinstance(spider, RequisiteSpider) else None
        self._sitemap_spider = spider if isinstance(spider, SitemapSpider) else None
        page = self._page("http://plain.invalid/", {})
        self._plain = (page.callback, page.errback)
        self._plain_meta = page.meta

    @property
    def makes_pages(self) -> bool:
        """Return whether plain pages are discovered links and not the spider's own requests."""
        return self._page_spider is not None

    def _page(self, url: str, meta: dict[str, Any]) -> Request:
        if self._page_spider is not None:
            return self._page_spider.page_request(url, meta)
        return Request(url, meta=meta)

    def _requisite(self, entry: Entry) -> Request:
        """:raises ValueError: the entry is damaged"""
        meta = {"depth": entry.depth, **_requisite_meta(entry)}
        if self._requisite_spider is None:
            return self._page(entry.url, meta)
        return self._requisite_spider.requisite_request(entry.url, meta)

    def entry(self, request: Request, url: str) -> Entry:
        """Return the entry of a request that is to be fetched at ``url``.

        :raises ValueError: its callback is not a method of the spider, or its meta cannot be stored
        """
        if "_scheme_proxy" in request.meta:
            request = _without_proxy(request)
        meta = request.meta
        is_requisite = self._requisite_spider is not None and "krowl_requisite" in meta
        if is_requisite:
            # Kind and level are all that is kept: a request from outside brings nothing else.
            packed = REQUISITE + Requisite.checked(meta["krowl_requisite"]).pack()
        else:
            packed = b"" if self._is_plain(request) else self._pack(request)
        seed = meta.get("krowl_seed", "")
        return Entry(
            url,
            depth=meta.get("depth", 0),
            redirects=meta.get("redirect_times", 0),
            retries=meta.get("retry_times", 0),
            throttling=meta.get("throttling_times", 0),
            bare=meta.get("krowl_bare", False),
            request=packed,
            chain=() if packed and not is_requisite else tuple(meta.get("redirect_urls", ())),
            seed=b"" if seed == url else self._key_of(seed),
        )

    def _key_of(self, seed: str) -> bytes:
        """Return the key of a seed; empty where seeds are not kept."""
        return b"" if self._seeds is None or not isinstance(seed, str) else self._seeds.key_of(seed)

    def seed_of(self, entry: Entry) -> str:
        """Return the URL of the seed that an entry came from, which may be itself; empty where that
        is not known."""
        if self._seeds is None:
            return ""
        if not (entry.seed or entry.depth or entry.file):
            return entry.url
        return self._seeds.url_of(entry.seed)

    def request(self, entry: Entry) -> Request:
        if entry.request and entry.is_again and entry.file and self._sitemap_spider is not None:
            about: dict[str, Any] = {"depth": entry.depth}
            request = self._sitemap_spider.sitemap_request(entry.url, about, entry.request[2:])
        elif entry.is_plain:
            request = self._page(entry.url, {"depth": entry.depth})
        elif entry.is_requisite:
            request = self._requisite(entry)
        else:
            request = self._unpack(entry.request)
        meta = request.meta
        if self._page_spider is not None:
            # A request pushed from outside has no depth, and such a spider reads it.
            meta.setdefault("depth", entry.depth)
        if entry.redirects:
            meta["redirect_times"] = entry.redirects
        if entry.chain:
            meta["redirect_urls"] = list(entry.chain)
        if entry.retries or entry.throttling:
            tries = {"retry_times": entry.retries, "throttling_times": entry.throttling}
            meta |= {name: count for name, count in tries.items() if count}
        if entry.bare:
            meta["krowl_bare"] = True
        if entry.path:
            meta["krowl_path"] = entry.path
        if seed := self.seed_of(entry):
            meta["krowl_seed"] = seed
        if self._seeds is not None and self._seeds.words is not None:
            self._put_tag(entry, meta)
        return request

    def _put_tag(self, entry: Entry, meta: dict[str, Any]) -> None:
        words = None if self._seeds is None else self._seeds.words_at(entry)
        if words is not None and words.tag:
            meta["krowl_tag"] = words.tag

    def _words_text(self, entry: Entry) -> str:
        """Return the words of an entry's seed as JSON; "" without any."""
        words = None if self._seeds is None else self._seeds.words_at(entry)
        return "" if words is None else words.text()

    def message(self, entry: Entry, priority: int = 0, *, always: bool = False) -> bytes:
        """Return an entry as a message to another node.

        With ``always``, that node fetches it even if it is known there.

        :raises ValueError: it cannot be JSON, or is too long, or its meta names a proxy
        """
        are_worded = self._seeds is not None and self._seeds.words is not None
        if always or not (entry.is_plain or entry.is_requisite):
            request = self.request(entry)
            if request.meta.get("proxy"):
                raise ValueError(
                    "no proxy travels to another node: name it in the environment of each node"
                )
            request.priority, request.dont_filter = priority, always
            request.meta.pop("krowl_tag", None)
            if are_worded and (words := self._words_text(entry)):
                request.meta["krowl_words"] = words
            if entry.state:
                request.meta["krowl_state"] = entry.state
            return dumps(request.to_dict(spider=self._spider))
        return encode(
            Message(
                entry.url,
                depth=entry.depth,
                priority=priority,
                redirects=entry.redirects,
                bare=entry.bare,
                chain=entry.chain,
                via=entry.via,
                # The receiver counts the hops before.
                hop=entry.path[-1:],
                seed=self._seeds.url_of(entry.seed) if self._seeds is not None else "",
                words=self._words_text(entry) if are_worded else "",
                state=entry.state,
                meta=_requisite_meta(entry),
            )
        )

    def received(self, message: Message) -> Entry:
        """Return the entry of a plain page that another node has sent."""
        return Entry(
            message.url,
            message.depth,
            message.redirects,
            bare=message.bare,
            chain=message.chain,
            via=message.via,
            path=message.hop,
            seed=self._key_of(message.seed),
            state=message.state,
        )

    def whole(self, message: Message) -> Request:
        """Return the whole request that a message holds.

        :raises ValueError: the message is no request, or the spider has no such callback
        """
        _check_methods(message.rest)
        try:
            request = request_from_dict(loads(encode(message)), spider=self._spider)
            self._lower(request.meta, message.rest.get("callback"))
            request.headers.pop(b"Proxy-Authorization", None)
            # Fail here if it cannot be stored, and not later in a batch with other entries.
            self.entry(request, message.url).encode(host_of(message.url))
        except (TypeError, AttributeError, struct.error) as error:
            raise ValueError(str(error)) from error
        return request

    def portable(self, entry: Entry) -> Request:
        """Return the request of an entry that goes to another node or comes from one.

        Meta keys that may not be sent are removed from the entry too.

        :raises ValueError: it is a pickle, not of Scrapy's classes, or not of this spider
        """
        if entry.is_plain or entry.is_requisite:
            return self.request(entry)
        if entry.request[:1] not in AS_JSON:
            raise ValueError("its request is a pickle")
        try:
            data = json.loads(entry.request[1:])
            if data.get("_class", None) not in {None, *_CLASSES}:
                raise ValueError(f"{data['_class']!r} is no class of Scrapy's")
            _check_methods(data)
            given = data.get("meta", {})
            meta = carried(given)
            self._lower(meta, data.get("callback"))
            if meta != given:
                entry.request = entry.request[:1] + json.dumps({**data, "meta": meta}).encode()
            return self.request(entry)
        except (TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ValueError(str(error)) from error

    def _lower(self, meta: dict[str, Any], callback: str | None) -> None:
        """Remove each limit from a request's meta that is above this node's own, or invalid.

        A sitemap may have more bytes than this node's limit for pages.
        """
        is_sitemap = self.makes_pages and callback == "parse_sitemap" and "krowl_sitemap" in meta
        for name, least in _LEAST.items():
            most = BYTES_MAX if is_sitemap and name == "download_maxsize" else self._limits[name]
            limit: Any = meta.get(name)
            if name in meta and not (type(limit) in (int, float) and least <= limit <= most):
                del meta[name]

    def _is_plain(self, request: Request) -> bool:
        return (
            request.method == "GET"
            and not request.body
            and not request.headers
            and not request.cookies
            and not request.cb_kwargs
            and not request.flags
            and (request.callback, request.errback) in ((None, None), self._plain)
            and self._is_plain_meta(request.meta)
            and type(request) is Request
            and not is_data(request.url)
        )

    def _is_plain_meta(self, meta: dict[str, Any]) -> bool:
        plain = self._plain_meta
        return all(key in _PLAIN or (key in plain and plain[key] == meta[key]) for key in meta)

    def _pack(self, request: Request) -> bytes:
        try:
            data = request.to_dict(spider=self._spider)
        except ValueError as error:
            raise ValueError(
                f"its callbacks must be methods of the spider, with values in cb_kwargs: {error}"
            ) from error
        data["meta"] = {key: value for key, value in data["meta"].items() if key not in _TRANSIENT}
        as_json = {
            **data,
            "body": b64encode(data["body"]).decode(),
            "headers": [
                [name.decode("latin-1"), [value.decode("latin-1") for value in values]]
                for name, values in data["headers"].items()
            ],
        }
        try:
            text = json.dumps(as_json)
            if json.loads(text) == as_json:
                return self._letter(request) + text.encode()
        except (TypeError, ValueError):
            pass
        try:
            return PICKLE + pickle.dumps(data, protocol=pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                "its meta or cb_kwargs cannot be stored; pass text, numbers or items in place of a"
                f" response, selector or item loader: {error}"
            ) from error

    def _letter(self, request: Request) -> bytes:
        """Return the first byte of a request that is stored as JSON."""
        if self._page_spider is not None:
            for name, letter in _FILES.items():
                if name in request.meta:
                    return letter
        return JSON

    def _unpack(self, packed: bytes) -> Request:
        if packed[:1] == PICKLE:
            data = pickle.loads(packed[1:])  # noqa: S301 - written by this job, in its own folder
        else:
            data = json.loads(packed[1:])
            data["body"] = b64decode(data["body"])
            data["headers"] = {
                name.encode("latin-1"): [value.encode("latin-1") for value in values]
                for name, values in data["headers"]
            }
        return request_from_dict(data, spider=self._spider)


def _requisite_meta(entry: Entry) -> dict[str, Any]:
    if not entry.is_requisite:
        return {}
    return {"krowl_requisite": list(Requisite.unpack(entry.request[1:]))}


def _without_proxy(request: Request) -> Request:
    """Return a request without the proxy that Scrapy's middleware took from the environment.

    The next fetch takes it from there again: it may be another one, or another host's.
    """
    meta = {name: value for name, value in request.meta.items() if name not in _OF_PROXY}
    headers = request.headers.copy()
    headers.pop(b"Proxy-Authorization", None)
    return request.replace(meta=meta, headers=headers)


def _check_methods(request: Mapping[str, Any]) -> None:
    """Check the callback and errback of a request that came from outside.

    :raises ValueError: one is not text, is private, or is a method that every spider has
    """
    for name in (request.get("callback"), request.get("errback")):
        if name is None or name == "parse":
            continue
        if not isinstance(name, str) or name.startswith("_") or hasattr(Spider, name):
            raise ValueError(f"{name!r} is no callback")

"""A request survives the way through the queue unchanged."""

from __future__ import annotations

import json
from datetime import date
from functools import partial
from typing import Any

import pytest
from scrapy import FormRequest, Request, Spider
from scrapy.http import Headers, HtmlResponse, JsonRequest
from scrapy.loader import ItemLoader

from krowlspider.cluster.transport.message import Message, decode
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.pages.seed_names import SeedNames
from krowlspider.job.codec import RequestCodec
from krowlspider.spiders.broad import BroadSpider
from krowlspider.urls.canonical import IdentityHasher, host_of
from krowlspider.urls.page.sitemap import BYTES_MAX
from tests.frontier.conftest import KeptMemoryStore
from tests.support.tables import table

URL = "http://a.test/"


class Plain(Spider):
    name = "plain"

    def parse(self, response: Any) -> None: ...

    def other(self, response: Any) -> None: ...


class Pages(Plain):
    def page_request(self, url: str, meta: dict[str, Any]) -> Request:
        return Request(url, callback=self.parse, meta={**meta, "mine": True})


LIMITS = {"download_timeout": 60.0, "download_maxsize": 1000, "max_retry_times": 2}


def through(request: Request, spider: Spider | None = None) -> tuple[Entry, Request]:
    codec = RequestCodec(spider or Plain())
    host = host_of(request.url)
    entry = Entry.decode(codec.entry(request, request.url).encode(host), host)
    return entry, codec.request(entry)


def keeping_seeds() -> RequestCodec:
    return RequestCodec(Plain(), LIMITS, SeedNames(KeptMemoryStore(), IdentityHasher(1).key))


def test_a_plain_page_is_its_url_and_its_counts() -> None:
    meta = {"depth": 3, "retry_times": 1, "redirect_times": 2, "throttling_times": 4}
    entry, again = through(Request(URL, meta={**meta, "download_latency": 0.1}))
    assert entry.request == b""
    assert len(entry.encode(host_of(URL))) < len(URL)
    assert (again.url, again.meta, again.callback) == (URL, meta, None)


def test_plain_page_of_a_spider_comes_back_as_made() -> None:
    """It is also stored in the short form."""
    spider = Pages()
    entry, again = through(spider.page_request(URL, {"depth": 1}), spider)
    assert entry.request == b""
    assert (again.callback, again.meta) == (spider.parse, {"depth": 1, "mine": True})


def test_broad_spiders_page_keeps_the_discovered_url() -> None:
    url = "http://a.test/x^y[z]?q=^[a]|{}`%zz"
    spider = BroadSpider()
    entry, again = through(spider.page_request(url, {"depth": 1}), spider)
    assert (entry.request, entry.url, again.url) == (b"", url, url)
    assert "verbatim_url" not in again.meta
    # Scrapy's Request escapes it.
    assert Request(url).url != url


def test_redirected_page_keeps_its_chain_beside_its_url() -> None:
    chain = ["http://b.test/", "https://a.test/x"]
    entry, again = through(Request(URL, meta={"redirect_times": 2, "redirect_urls": chain}))
    assert (entry.request, entry.chain) == (b"", tuple(chain))
    assert again.meta == {"depth": 0, "redirect_times": 2, "redirect_urls": chain}


def test_a_whole_request_keeps_the_chain_in_its_meta_alone() -> None:
    meta = {"redirect_urls": ["http://b.test/"], "mine": 1}
    entry, again = through(Request(URL, meta=meta))
    assert (entry.request[:1], entry.chain) == (b"J", ())
    assert again.meta == meta


@pytest.mark.parametrize(
    ("meta", "kind"),
    [
        ({"text": "é", "list": [1, None]}, b"J"),
        ({"pair": (1, 2)}, b"P"),
        ({"day": date(2026, 1, 1)}, b"P"),
        ({1: "int key"}, b"P"),
        ({"raw": b"\xff"}, b"P"),
    ],
)
def test_meta_comes_back_as_the_same_values(meta: dict[Any, Any], kind: bytes) -> None:
    entry, again = through(Request(URL, meta=meta))
    assert entry.request[:1] == kind
    assert again.meta == {**meta, **({"depth": 0} if "depth" in again.meta else {})}


def test_everything_else_of_a_request_comes_back_too() -> None:
    spider = Plain()
    request = JsonRequest(
        URL,
        callback=spider.other,
        errback=spider.parse,
        method="PUT",
        data={"a": 1},
        headers={"X-Many": ["1", "2"], "X-Latin": b"\xe9"},
        cookies={"c": "1"},
        priority=-3,
        dont_filter=True,
        cb_kwargs={"k": [1]},
        flags=["f"],
    )
    _, again = through(request, spider)
    assert type(again) is JsonRequest
    names = (*Request.attributes,)
    assert {name: getattr(again, name) for name in names} == {
        name: getattr(request, name) for name in names
    }


def test_a_seed_goes_to_the_next_node_and_back() -> None:
    """With a plain page, and with a whole request."""
    codec, there, seed = keeping_seeds(), keeping_seeds(), "https://seed.test/"
    plain = codec.entry(Request(URL, meta={"depth": 1, "krowl_seed": seed}), URL)
    assert codec.request(plain).meta["krowl_seed"] == seed
    received = there.received(decode(codec.message(plain)))
    assert (received.request, there.request(received).meta["krowl_seed"]) == (b"", seed)
    whole = codec.entry(Request(URL, method="POST", meta={"depth": 1, "krowl_seed": seed}), URL)
    sent = there.whole(decode(codec.message(whole)))
    assert there.request(there.entry(sent, URL)).meta["krowl_seed"] == seed


def test_a_page_of_depth_0_is_its_own_seed() -> None:
    codec = keeping_seeds()
    given = codec.request(Entry(URL))
    assert given.meta["krowl_seed"] == URL
    # As on a retry, and on a redirect by Scrapy's middleware.
    assert codec.entry(given, URL).seed == b""
    target = f"{URL}target"
    redirected = codec.entry(given.replace(url=target), target)
    assert codec.request(redirected).meta["krowl_seed"] == URL


@pytest.mark.parametrize("bad", [7, "no URL", "https://B.test/"])
def test_what_is_no_seed_is_not_kept(bad: object) -> None:
    assert keeping_seeds().entry(Request(URL, meta={"krowl_seed": bad}), URL).seed == b""


def test_proxy_of_the_environment_is_not_stored() -> None:
    """That of a request's own is, and does not travel to another node."""
    headers = {"Proxy-Authorization": "Basic dTpw"}
    given = {"proxy": "http://u:p@h:1", "mine": 1}
    meta = {**given, "_auth_proxy": "http://h:1", "_scheme_proxy": True}
    entry, again = through(Request(URL, headers=headers, meta=meta))
    assert (again.meta, again.headers) == ({"mine": 1}, {})
    assert RequestCodec(Plain()).message(entry)
    entry, again = through(Request(URL, headers=headers, meta=given))
    assert (again.meta, again.headers) == (given, Headers(headers))
    with pytest.raises(ValueError, match="no proxy travels"):
        RequestCodec(Plain()).message(entry)
    pushed = json.dumps({"url": URL, "headers": {"Proxy-Authorization": ["x"], "B": ["y"]}})
    assert RequestCodec(Plain()).whole(decode(pushed.encode())).headers == Headers({"B": "y"})


def test_what_cannot_be_stored_is_refused_with_its_reason() -> None:
    for callback in (lambda response: None, partial(Plain().parse, x=1)):
        with pytest.raises(ValueError, match="must be methods of the spider, with values in cb_kw"):
            through(Request(URL, callback=callback))
    page = HtmlResponse(URL, body=b"<p>x", encoding="utf-8")
    for value in (lambda: None, page.css("p"), page.css("p")[0], ItemLoader(response=page)):
        with pytest.raises(ValueError, match="cannot be stored; pass text, numbers or items in pl"):
            through(Request(URL, meta={"f": value}))


def test_objects_in_meta_are_copies() -> None:
    shared: dict[str, list[object]] = {"titles": []}
    _, again = through(Request(URL, meta={"item": shared}))
    assert again.meta["item"] == shared
    assert again.meta["item"] is not shared


def test_scrapy_request_survives_the_way_to_another_node() -> None:
    spider = Plain()
    codec = RequestCodec(spider)
    for request in (
        Request(URL, method="POST", body=b"a=1", callback=spider.other),
        JsonRequest(URL, data={"a": 1}),
        FormRequest(URL, formdata={"a": "1"}),
    ):
        again = codec.portable(codec.entry(request, URL))
        assert type(again) is type(request)
        assert (again.body, again.callback) == (request.body, request.callback)


@table(
    ("request_", "said"),
    [
        (b"P\x80\x05.", "a pickle"),
        (b'J{"url": "http://a.test/", "_class": "subprocess.Popen"}', "no class of Scrapy"),
        (b'J{"url": "http://a.test/", "_class": ["scrapy.Request"]}', ""),
        (b'J{"url": "http://a.test/", "callback": "_set_crawler"}', "no callback"),
        (b'J{"url": "http://a.test/", "callback": "update_settings"}', "no callback"),
        (b'J{"url": "http://a.test/", "callback": ["parse"]}', "no callback"),
        (
            b'J{"url": "http://a.test/", "callback": "missing", "body": "", "headers": []}',
            "missing",
        ),
        (b'J{"url": "http://a.test/", "body": 1, "headers": []}', ""),
        (b"J[]", ""),
        (b"J" + b"[" * 100_000, ""),
    ],
)
def test_what_no_node_may_send_another_is_refused(request_: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said or None):
        RequestCodec(Plain()).portable(Entry(URL, request=request_))


LIMITED = [
    ({"download_timeout": 5, "download_maxsize": 10, "max_retry_times": 0}, True),
    ({"download_timeout": 60.0, "download_maxsize": 1000, "max_retry_times": 2}, True),
    ({"download_maxsize": 0}, False),
    ({"download_maxsize": -1}, False),
    ({"download_maxsize": 1001}, False),
    ({"download_maxsize": "10"}, False),
    ({"download_maxsize": True}, False),
    ({"download_timeout": 0}, False),
    ({"download_timeout": 1e9}, False),
    ({"download_timeout": None}, False),
    ({"max_retry_times": 3}, False),
    ({"max_retry_times": -1}, False),
    ({"krowl_sitemap": [1, "a.test"], "download_maxsize": BYTES_MAX}, False),
    ({"krowl_indexnow": ["key", 1.5, "http://a.test/"]}, False),
]


@table(("meta", "kept"), LIMITED)
def test_outside_requests_lower_limits_and_lift_none(meta: dict[str, Any], kept: bool) -> None:
    """In messages, and in hosts that are handed over."""
    codec = RequestCodec(Plain(), LIMITS)
    limits = meta if kept else {name: meta[name] for name in meta.keys() - LIMITS.keys()}
    assert codec.whole(Message(URL, meta={**meta, "mine": 1})).meta == {**limits, "mine": 1}
    entry = codec.entry(Request(URL, meta={**meta, "mine": 1}), URL)
    assert codec.portable(entry).meta == {**limits, "mine": 1}
    assert codec.request(entry).meta == {**limits, "mine": 1}
    # A spider of this process may set any limit.
    assert through(Request(URL, meta=meta))[1].meta.items() >= meta.items()


def test_a_sitemap_has_its_own_limit_at_another_node_too() -> None:
    spider = BroadSpider()
    codec = RequestCodec(spider, LIMITS)
    meta = {"depth": 1, "krowl_sitemap": [1, "a.test"], "download_maxsize": BYTES_MAX}
    request = Request(URL, callback=spider.parse_sitemap, meta=meta)
    assert codec.portable(codec.entry(request, URL)).meta == meta
    message = decode(codec.message(codec.entry(request, URL)))
    assert codec.whole(message).meta == meta
    message.rest["callback"] = "parse"
    assert "download_maxsize" not in codec.whole(message).meta


def test_requisite_keeps_its_kind_and_level_alone() -> None:
    """On disk, in a host that is handed over, and in a message, whatever else a message brings."""
    spider = BroadSpider()
    codec = RequestCodec(spider, LIMITS)
    meta = {"depth": 2, "krowl_requisite": ["style", 3], "retry_times": 1}
    request = spider.requisite_request(URL, meta)
    entry, again = through(request, spider)
    assert entry.request == b"R3style"
    assert (again.callback, again.headers) == (spider.parse_requisite, request.headers)
    assert again.meta == codec.portable(entry).meta == request.meta
    entry.via, entry.path = "http://b.test/", "LE"
    message = decode(codec.message(entry))
    assert (message.meta, message.via, message.hop) == (
        {"krowl_requisite": ["style", 3]},
        "http://b.test/",
        "E",
    )
    message.rest = {"callback": "parse", "headers": {"Host": "c.test"}, "method": "POST"}
    message.meta["download_maxsize"] = 10
    whole = codec.whole(message)
    assert codec.entry(whole, URL).request == entry.request


@pytest.mark.parametrize("packed", [b"R9style", b"R0page", b"R", b"Rx"])
def test_impossible_requisite_of_another_node_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"requisite|invalid literal"):
        RequestCodec(BroadSpider()).portable(Entry(URL, request=packed))


@pytest.mark.parametrize(
    "meta",
    [{"retry_times": -1000}, {"depth": "1"}, {"redirect_urls": 1}, {"krowl_sitemap": [-9, ""]}],
)
def test_a_host_that_comes_with_impossible_counts_is_refused(meta: dict[str, Any]) -> None:
    data = {"url": URL, "callback": None, "body": "", "headers": [], "meta": meta}
    with pytest.raises(ValueError, match=next(iter(meta))):
        RequestCodec(Plain()).portable(Entry(URL, request=b"J" + json.dumps(data).encode()))

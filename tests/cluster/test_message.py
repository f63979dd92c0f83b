from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import scrapy
from hypothesis import given
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider
from scrapy.utils.request import request_from_dict

from krowlspider.cluster.transport import message
from krowlspider.cluster.transport.message import (
    CARRIED,
    LEFT_OUT,
    MAX_MESSAGE,
    BadMessage,
    Message,
    decode,
    decode_any,
    decode_start,
    dumps,
    encode,
    is_plain,
    loads,
)
from krowlspider.cluster.transport.queues import MessageQueue
from krowlspider.urls.canonical import URL_MAX
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable

_URLS = st.integers(0, 10**6).map(lambda n: f"https://a{n}.test/{n}")
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _FLOATS
_PLAIN = st.recursive(
    _SCALARS | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
_MESSAGES = st.builds(
    Message,
    url=_URLS,
    depth=st.integers(0, 65535),
    priority=st.integers(-(2**31), 2**31 - 1),
    hops=st.integers(0, 255),
    redirects=st.integers(0, 255),
    bare=st.booleans(),
    chain=st.lists(_URLS, max_size=3).map(tuple),
    via=_URLS,
    hop=st.sampled_from(["", "L", "M"]),
    words=st.sampled_from(["", "{}", '{"tag":"news","depth":2}']),
    state=st.sampled_from(["", "7", '{"a":["ü"]}']),
    meta=st.dictionaries(st.sampled_from(["x", "y"]), _PLAIN.filter(is_plain), max_size=2),
)


class News(Spider):
    name = "news"

    def item(self, response: object) -> None: ...

    def failed(self, failure: object) -> None: ...


@given(_MESSAGES)
def test_message_round_trip(sent: Message) -> None:
    assert decode(encode(sent)) == sent


def test_defaults_take_no_room() -> None:
    assert encode(Message("http://a.test/")) == b'{"url":"http://a.test/"}'
    assert json.loads(encode(Message("http://a.test/", depth=2, priority=-1))) == {
        "url": "http://a.test/",
        "priority": -1,
        "meta": {"depth": 2},
    }


def test_a_plain_link_is_bounded() -> None:
    with pytest.raises(ValueError, match=str(MAX_MESSAGE)):
        encode(Message("http://a.test/" + MAX_MESSAGE * "a"))


def test_a_hop_without_its_page_is_left_out() -> None:
    assert encode(Message("http://a.test/", hop="L")) == b'{"url":"http://a.test/"}'


def test_scrapy_reads_a_message_as_its_request() -> None:
    sent = Message(
        "http://a.test/2",
        depth=3,
        priority=7,
        redirects=1,
        chain=("http://a.test/1",),
        meta={"x": [1]},
    )
    request = request_from_dict(loads(encode(sent)), spider=News())
    assert (request.url, request.priority, request.method, request.callback) == (
        "http://a.test/2",
        7,
        "GET",
        None,
    )
    assert request.meta == {
        "depth": 3,
        "redirect_times": 1,
        "redirect_urls": ["http://a.test/1"],
        "x": [1],
    }


def test_request_of_any_spider_round_trip() -> None:
    spider = News()
    request = Request(
        "http://a.test/form",
        method="POST",
        body="ä=1",
        headers={"X-One": ["1", "2"]},
        cookies={"c": "d"},
        meta={"depth": 1},
        cb_kwargs={"n": [1, {"a": None}]},
        callback=spider.item,
        errback=spider.failed,
        priority=3,
        dont_filter=True,
        flags=["f"],
    )
    data = dumps(request.to_dict(spider=spider))
    assert request_from_dict(loads(data), spider=spider).to_dict(spider=spider) == (
        request.to_dict(spider=spider)
    )
    assert decode(data).rest["callback"] == "item"
    assert decode(encode(decode(data))) == decode(data)


@table(
    "request_",
    [
        Request("http://a.test/", body=b"\xff"),
        Request("http://a.test/", meta={"when": (1, 2)}),
        Request("http://a.test/", meta={"what": b"bytes"}),
        Request("http://a.test/", meta={"what": {1: 2}}),
        Request("http://a.test/", meta={"what": float("nan")}),
        Request("http://a.test/", meta={"what": 2**64}),
        Request("http://a.test/", meta={"what": "x" * MAX_MESSAGE}),
        Request("http://a.test/", encoding="latin-1"),
        Request("file:///etc/passwd"),
        FormRequest("http://a.test/"),
    ],
)
def test_request_that_json_would_change_is_refused(request_: Request) -> None:
    with pytest.raises(ValueError, match=r".+"):
        dumps(request_.to_dict(spider=News()))


@pytest.mark.parametrize("value", [(1,), {"a": (1,)}, b"", 2**63, float("inf"), {1: 2}, object()])
def test_value_that_json_would_change_is_not_plain(value: object) -> None:
    assert not is_plain(value)
    with pytest.raises(ValueError, match="plain"):
        encode(Message("http://a.test/", meta={"x": value}))


def _with(**fields: Any) -> bytes:
    return json.dumps({"url": "http://a.test/", **fields}).encode()


BAD = [
    b'{"url": "http://a.test/", "meta": {"krowl_state": "{"}}',
    b'{"url": "http://a.test/", "meta": {"krowl_state": "1\\n"}}',
    b'{"url": "http://a.test/", "meta": {"krowl_state": "' + b"1" * 4097 + b'"}}',
    b"",
    b"null",
    b"[]",
    b"{}",
    b"http://a.test/",
    b'{"url": "http://a.test/"',
    b'{"url": "http://a.test/"} {}',
    b'\xef\xbb\xbf{"url": "http://a.test/"}',
    b'{"url": "http://a.test/\xff"}',
    b'{"url": "http://a.test/\\ud800"}',
    b'{"url": "http://a.test/", "priority": NaN}',
    b'{"url": "http://a.test/", "meta": {"x": 1e999}}',
    b'{"url": "http://a.test/", "meta": {"x": ' + b"9" * 5000 + b"}}",
    b'{"url": "http://a.test/", "meta": {"x": ' + b"[" * 30_000 + b"]" * 30_000 + b"}}",
    b'{"url": "http://a.test/", "meta": {"x": ' + b"[" * 9 + b"]" * 9 + b"}}",
    b'{"url": "http://a.test/", "meta": ' + b'{"x":' * 5000 + b"1" + b"}" * 5001,
    b" " * (MAX_MESSAGE + 1),
    pickle.dumps({"url": "http://a.test/"}),
    bytes(range(256)),
    _with(url=None),
    _with(url=["http://a.test/"]),
    _with(url=""),
    _with(url="a.test"),
    _with(url="file:///etc/passwd"),
    _with(url="javascript:alert(1)"),
    _with(url="http://user:secret@a.test/"),
    _with(url="http://a.test/" + "x" * URL_MAX),
    # As many characters as may be, and three times as many once they are escaped.
    _with(url="http://a.test/" + "ä" * (URL_MAX // 2)),
    _with(priority="1"),
    _with(priority=1.5),
    _with(priority=2**31),
    _with(priority=True),
    _with(meta=[]),
    _with(meta={"depth": -1}),
    _with(meta={"depth": 65_536}),
    _with(meta={"depth": "1"}),
    _with(meta={"depth": True}),
    _with(meta={"krowl_hops": 256}),
    _with(meta={"retry_times": -1}),
    _with(meta={"throttling_times": "0"}),
    _with(meta={"krowl_sitemap": [0, "a.test"]}),
    _with(meta={"krowl_sitemap": [1]}),
    _with(meta={"krowl_sitemap": [1, None]}),
    _with(meta={"krowl_sitemap": True}),
    _with(meta={"krowl_indexnow": ["key", "now", "http://a.test/"]}),
    _with(meta={"krowl_indexnow": ["key", 1.0]}),
    _with(meta={"krowl_requisite": ["style", 6]}),
    _with(meta={"krowl_requisite": ["page", 0]}),
    _with(meta={"krowl_requisite": None}),
    _with(meta={"redirect_times": None}),
    _with(meta={"redirect_urls": "http://a.test/"}),
    _with(meta={"redirect_urls": ["http://a.test/", 1]}),
    _with(meta={"redirect_urls": ["a\nb"]}),
    _with(meta={"redirect_urls": ["http://a.test/"] * 256}),
    _with(meta={"krowl_via": "a\nb"}),
    _with(meta={"krowl_via": {"a": 1}}),
    _with(meta={"krowl_via": "http://a.test/", "krowl_hop": "LL"}),
    _with(meta={"krowl_via": "http://a.test/", "krowl_hop": ["L"]}),
    _with(_class="os.system"),
    _with(_class="scrapy.http.FormRequest"),
    _with(callback="__init__"),
    _with(callback="a.b"),
    _with(method="get"),
    _with(method="GET / HTTP/1.1\r\nX: Y"),
    _with(headers={"a": 1}),
    _with(headers=["a"]),
    _with(cookies={"a": {}}),
    _with(encoding="zip"),
    _with(body={"a": 1}),
    _with(cb_kwargs=[[]]),
    _with(unheard="of"),
]


@table("data", BAD)
@table("read", [decode, loads])
def test_junk_is_refused_with_a_short_reason(read: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(BadMessage) as caught:
        read(data)
    assert 0 < len(str(caught.value)) <= 200


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (decode, decode_start, loads):
        try:
            read(data)
        except BadMessage:
            continue


@given(st.dictionaries(st.sampled_from(["url", "meta", "priority", "depth", "headers"]), _PLAIN))
def test_any_json_is_read_or_refused(value: dict[str, Any]) -> None:
    for read in (decode, decode_start):
        try:
            read(json.dumps(value).encode())
        except BadMessage:
            continue


STEERING = {
    "proxy": "http://10.0.0.1:3128/",
    "bindaddress": ["127.0.0.1", 0],
    "is_start_request": True,
    "dont_obey_robotstxt": True,
    "download_slot": "x",
    "download_latency": 0,
    "http_user": "u",
    "krowl_warc": "x",
    "krowl_outlinks": 1,
    "krowl_new": 1,
    "verbatim_url": True,
}


def test_meta_that_steers_the_crawl_is_left_out() -> None:
    own = {"job": 7, "download_maxsize": 10, "handle_httpstatus_all": True, "dont_retry": True}
    data = _with(meta={**STEERING, **own, "depth": 2, "krowl_bare": True})
    assert decode(data) == Message("http://a.test/", depth=2, bare=True, meta=own)
    assert loads(data)["meta"] == {**own, "depth": 2, "krowl_bare": True}
    assert decode(_with(meta=STEERING)) == Message("http://a.test/")
    pushed = json.dumps({"url": "a.test", "meta": {**STEERING, **own}}).encode()
    assert decode_start(pushed) == Message("https://a.test/", bare=True, meta=own)


def test_every_meta_name_of_scrapy_is_decided() -> None:
    """A later version may steer by more."""
    looked_for = re.compile(
        r"meta(?:\.get|\.setdefault|\.pop)?[\[(]\s*\"(\w+)\"|\"(\w+)\" in [\w.]*meta"
    )
    names = set()
    for path in Path(scrapy.__file__).parent.rglob("*.py"):
        names |= {one or other for one, other in looked_for.findall(path.read_text())}
    decided = CARRIED | LEFT_OUT
    assert len(names) > 30
    assert {name for name in names if not name.startswith("_")} <= decided
    assert {"_auth_proxy", "_dont_cache"} <= decided
    assert not CARRIED & LEFT_OUT


def test_incoming_urls_are_normalised() -> None:
    assert decode(_with(url="HTTP://A.test:80/ä#x")).url == "http://a.test/%C3%A4"


@pytest.mark.parametrize(
    ("pushed", "expected"),
    [
        (b"http://a.test/x", Message("http://a.test/x")),
        (b"  http://A.test \n", Message("http://a.test/")),
        (b"a.test", Message("https://a.test/", bare=True)),
        (b'{"url": "http://a.test/"}', Message("http://a.test/")),
        (b' {"url": "a.test"}', Message("https://a.test/", bare=True)),
        (
            (
                b'{"url": "http://a.test/", "depth": 2, "priority": 5, "meta": {"x": 7},'
                b' "method":"GET"}'
            ),
            Message("http://a.test/", depth=2, priority=5, meta={"x": 7}),
        ),
        (b'{"url": "http://a.test/", "meta": {"depth": 4}}', Message("http://a.test/", depth=4)),
    ],
)
def test_start_urls_are_read_as_scrapy_redis_users_push_them(
    pushed: bytes, expected: Message
) -> None:
    assert decode_start(pushed) == expected


@table(
    "pushed",
    [
        b"",
        b"# a comment",
        b"ftp://a.test/",
        b"http://a.test/ http://b.test/",
        b"http://u:p@a.test/",
        b'"http://a.test/"',
        b'["http://a.test/"]',
        b'{"url": "http://a.test/", "method": "POST"}',
        b'{"url": "http://a.test/", "form_field": "x"}',
        b'{"url": "http://a.test/", "depth": -1}',
        b'{"url": "http://a.test/\\ud800"}',
        b'{"meta": {}}',
        b"http://a.test/" + b"x" * MAX_MESSAGE,
        pickle.dumps("http://a.test/"),
    ],
)
def test_invalid_start_urls_are_refused(pushed: bytes) -> None:
    with pytest.raises(BadMessage):
        decode_start(pushed)


def test_queue_takes_no_other_serializer() -> None:
    with pytest.raises(TypeError, match="messages"):
        MessageQueue(None, News(), "%(spider)s:requests", serializer=pickle)
    assert MessageQueue(None, News(), "%(spider)s:requests").serializer is message


@given(
    st.fixed_dictionaries(
        {"url": _URLS | st.just("ftp://a.test/")},
        optional={
            "priority": st.integers(-(2**32), 2**32) | st.just("1"),
            "method": st.just("GET"),
            "meta": st.fixed_dictionaries(
                {},
                optional={
                    "depth": st.sampled_from([0, 7, 65_535, 65_536, -1, 1.0, True, "1", None]),
                    "redirect_times": st.sampled_from([0, 255, 256, False]),
                    "krowl_hops": st.sampled_from([0, 3, 256, "3"]),
                    "krowl_bare": st.sampled_from([True, False, 1, "yes", None]),
                    "krowl_via": st.sampled_from(["", "http://v.test/#x", "a b", 0, None]),
                    "krowl_hop": st.sampled_from(["", "L", "LL", "1", "\u00e4", 0, None]),
                    "redirect_urls": st.sampled_from([[], ["http://r.test/"], ["a"]]),
                    "x": st.just([1]),
                },
            ),
        },
    )
)
def test_short_and_long_decoding_agree(value: dict[str, Any]) -> None:
    data = json.dumps(value).encode()

    def outcome(read: Callable[[bytes], Message]) -> Message | type[BadMessage]:
        try:
            return read(data)
        except BadMessage:
            return BadMessage

    assert outcome(decode) == outcome(decode_any)


def test_words_of_a_seed_are_checked() -> None:
    start = decode_start(b'https://a.test/\t{"max_pages": 3, "tag": "x"}')
    assert start == Message("https://a.test/", words='{"tag":"x","max_pages":3}')
    for words in ('{"depth": -1}', '{"dept": 1}', "[]", "{"):
        meta = {"krowl_seed": "https://s.test/", "krowl_words": words}
        for more in ({}, {"method": "POST"}):
            with pytest.raises(BadMessage, match=r"depth is -1|unknown word|the words behind"):
                decode(json.dumps({"url": "https://a.test/", "meta": meta, **more}).encode())

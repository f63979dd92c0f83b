"""What reads bytes of strangers, one table: each takes any bytes, in CPU time linear in their
number.

``run`` swallows what its reader raises by its contract; anything else is a finding. So is a run of
more seconds than
``floor`` and ``per_byte`` for each byte: several times what the worst known input takes on a
machine of 2020.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from krowlspider.archive.surt import surt
from krowlspider.cluster.transport.message import BadMessage, decode, decode_start
from krowlspider.fetch.errors import FetchError
from krowlspider.fetch.http.decode import decode_body
from krowlspider.fetch.http.head import parse_head
from krowlspider.fetch.http.reader import ChunkedDecoder, ResponseReader
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.hosts.host_record import decode_host
from krowlspider.frontier.moves.chunks import BadChunk, decode_chunk, decode_id, read_chunk
from krowlspider.frontier.pages.row import DamagedRow, LaterRow, PageRow, decode_row
from krowlspider.frontier.store.store import StoreError
from krowlspider.politeness.delay import parse_retry_after
from krowlspider.politeness.robots import RobotsRecord, RobotsRules
from krowlspider.urls.canonical import (
    REFERENCE_MAX,
    authority_of,
    domain_of,
    host_of,
    identity,
    normalise,
)
from krowlspider.urls.encoding import computed_type, encoding_of
from krowlspider.urls.page.headers import read_links, read_robots_tag
from krowlspider.urls.page.links import read_page, reading_plan
from krowlspider.urls.page.requisites.elements import requisites_of_svg
from krowlspider.urls.page.requisites.found import ImportMap, decode_css, requisites_of_css
from krowlspider.urls.page.requisites.modules import requisites_of_module
from krowlspider.urls.page.sitemap import Sitemap
from krowlspider.urls.scope import Scope, ScopeRules, Traps
from krowlspider.urls.seeds import BadSeed, parse_seed

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "https://www.example.com/dir/page?q"
# Bytes of a body, as received and decoded.
BODY_MAX = 1024 * 1024
# What a value of LevelDB may raise: it is our own, and checked against its checksum.
_UNREADABLE = (StoreError, ValueError, struct.error, IndexError, KeyError, RecursionError)


@dataclass(frozen=True, slots=True)
class Target:
    """``pieces`` are what its inputs are put together from, the first ones its beginnings. Of
    longer inputs than
    ``longest`` bytes nothing is asked: what hands them in refuses them."""

    run: Callable[[bytes], object]
    pieces: tuple[bytes, ...]
    per_byte: float = 1e-6
    floor: float = 0.02
    longest: int = BODY_MAX


# --- fetch ---


def _response(data: bytes, *, step: int) -> None:
    reader = ResponseReader("GET", BODY_MAX)
    with suppress(FetchError):
        for at in range(0, len(data), step):
            reader.feed(data[at : at + step])
        reader.eof()
    reader.body_of(reader.response_bytes)


def _head(data: bytes) -> None:
    with suppress(FetchError):
        parse_head(data, "GET")


def _chunked(data: bytes) -> None:
    decoder = ChunkedDecoder()
    with suppress(FetchError):
        for at in range(0, len(data), 50):
            if decoder.feed(data[at : at + 50]) >= 0:
                return


def _decoded(data: bytes) -> None:
    """The codings stand in the first line."""
    codings, _, body = data.partition(b"\n")
    with suppress(FetchError):
        decode_body(body, codings, BODY_MAX)


# --- urls ---

_SCOPE = Scope(
    ScopeRules(same_domain=True),
    max_url_length=2048,
    traps=Traps(
        path_depth_max=20, repeated_segments_max=3, skip_extensions=["zip"], today=date(2025, 6, 1)
    ),
)


def _url(data: bytes) -> None:
    text = data.decode(errors="replace")
    for url in (normalise(text), normalise(text, URL)):
        if url is None:
            continue
        assert normalise(url) == url or len(url) > REFERENCE_MAX
        host = host_of(url)
        domain_of(host)
        authority_of(url)
        identity(url)
        # Longer ones are refused here.
        if _SCOPE.refusal(url, host, 1, "www.example.com") != "length":
            surt(url)


def _page(data: bytes) -> None:
    read_page(data, URL, None)


_WHOLE = reading_plan("krowlspider", follow_nofollow=False, requisites=True)


def _requisites(data: bytes) -> None:
    read_page(data, URL, None, _WHOLE)


def _css(data: bytes) -> None:
    requisites_of_css(decode_css(data, None), URL)


def _module(data: bytes) -> None:
    """The import map of the page stands in the first line."""
    names, _, script = data.partition(b"\n")
    requisites_of_module(script, URL, ImportMap.read([names.decode(errors="replace")], URL))


def _svg(data: bytes) -> None:
    requisites_of_svg(data, URL)


def _content(data: bytes) -> None:
    """The Content-Type stands in the first line."""
    value, _, body = data.partition(b"\n")
    computed_type([value], (), body)
    encoding_of(body, None)


def _link_header(data: bytes) -> None:
    text = data.decode(errors="replace")
    read_links([text], URL, follow_nofollow=False)
    read_robots_tag([text], "krowlspider")


def _sitemap(data: bytes) -> None:
    for _ in Sitemap().read(data):
        pass


def _seed(data: bytes) -> None:
    with suppress(BadSeed):
        parse_seed(data)


# --- politeness ---


def _robots(data: bytes) -> None:
    """The path that is asked for stands in the first line."""
    path, _, body = data.partition(b"\n")
    rules = RobotsRules.parse(body, "krowlspider")
    url = normalise("/" + path[:2000].decode(errors="replace"), "https://www.example.com/")
    if url is not None and len(url) <= 2048:
        rules.allowed(url)


def _retry_after(data: bytes) -> None:
    parse_retry_after(data.decode("latin-1"), 1.7e9)


# --- cluster and frontier ---


def _message(data: bytes) -> None:
    with suppress(BadMessage):
        decode(data)
    with suppress(BadMessage):
        decode_start(data)


def _chunk(data: bytes) -> None:
    decode_id(data)
    with suppress(BadChunk):
        read_chunk(decode_chunk(data), 0.0, lambda entry: b"12345678", url_max=2048)


def _value(data: bytes) -> None:
    for decode_value in (
        partial(Entry.decode, host="www.example.com"),
        partial(decode_host, "www.example.com"),
        RobotsRecord.decode,
    ):
        with suppress(*_UNREADABLE):
            decode_value(data)


def _row(data: bytes) -> None:
    with suppress(LaterRow, DamagedRow):
        decode_row(data, "www.example.com").encode("www.example.com")


_ROW = PageRow("https://www.example.com/a", 404, 1, 2.5, stored=1.5, etag=b'W/"5e-a"', price="USD")
_ROW.modified, _ROW.payload, _ROW.seed, _ROW.text = b"soon", b"s" * 20, b"sixfix", b"8 bytes."
_ROW.estimate, _ROW.planned, _ROW.due, _ROW.weight = (0.5, 600.0), 90, 120, 2.0
_ENTITIES = (b"&amp;", b"&#x301;", b"&#790;", b"&lt", b"&")
_HOSTS = ("é", "\u0301", "\u0316", "中文", "㌖", "%CC%81", "%E4%B8%80", "xn--", "-0", "a", "1", ".")
_JSON = tuple(b'{ } [ ] " : , \\ 1 -1 1e999 null true a \\u0301'.split())

TARGETS = {
    "response": Target(
        partial(_response, step=4096),
        (
            b"HTTP/1.1 200 OK\r\n",
            b"\r\n http/1.1 200\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"Content-Length: 5\r\n",
            b"Transfer-Encoding: chunked\r\n\r\n",
            *(b"\r\n", b"\n", b" ", b"\t", b"a: b\r\n", b"5\r\nabcde\r\n", b"0\r\n", b"1;", b"\0"),
        ),
    ),
    "trickle": Target(
        partial(_response, step=7),
        (
            b"HTTP/1.1 200 OK\r\n",
            b"Transfer-Encoding: chunked\r\n\r\n",
            *(b"\r\n", b"a: b\r\n", b"ff\r\n", b"1\r\na\r\n", b"1;", b"x" * 256, b"\n", b"\r"),
        ),
        # A call of 5 µs for so many bytes, and a copy of what a head or line holds, 64 KiB at most.
        per_byte=4e-6,
    ),
    "head": Target(
        _head,
        (
            b"HTTP/1.1 200 OK\r\n",
            *(b"Content-Length: 5\r\n", b"Transfer-Encoding: ", b"chunked", b"\r\n\r\n", b"gzip,"),
            *(b"Connection: close,", b"\r\n ", b"\r\n", b" ", b"\t", b"a:b\r\n", b"\0", b":", b","),
        ),
        longest=64 * 1024,
    ),
    "chunked": Target(
        _chunked,
        (b"5\r\nabcde\r\n", b"0\r\n", b"\r\n", b"1;", b" ", b"x", b"\n", b"000", b"ff\r\n", b"\r"),
    ),
    "decode": Target(
        _decoded,
        (
            b"gzip\n",
            b"gzip, gzip\n",
            b"deflate\n",
            b"deflate, br\n",
            b"br\n",
            b"zstd\n",
            *(b"\x1f\x8b\x08\0\0\0\0\0\0\xff", b"\x03\0\0\0\0\0\0\0\0\0", b"\0\0\0\xff\xff"),
            *(
                b"\x78\x9c",
                b"\x02",
                b"\x28\xb5\x2f\xfd\x04\x58",
                b"\x01\0\0",
                b"\x50\x2a\x4d\x18\0\0\0\0",
            ),
            *(b"\0", b"\xff", b"\x06", b"\x03"),
        ),
        # Up to a mebibyte may come out, 1 ms each time, of what is next to nothing.
        floor=0.1,
    ),
    "links": Target(
        _page,
        (
            b"<base href='http://a.example/x/'>",
            b"<meta http-equiv=refresh content='0;url=",
            b"<meta charset=utf-16>",
            b"<meta name=robots content='",
            b"<a href='",
            b"<a href=//",
            *(b"<div>", b"</span>", b"<b><i>", b"</b>", b"<!--", b"-->", b"<title>", b"</title>"),
            *(b"<script>", b"<nobr>", b"</form>", b"<table><td>", b"'>", b">", b"<", b" "),
            *(b"/", b"../"),
            *_ENTITIES,
            *(host.encode() for host in _HOSTS),
        ),
        # The walk of `bound`, and 10,000 hosts of the worst kind.
        floor=0.25,
    ),
    "requisites": Target(
        _requisites,
        (
            *b"<iframe/srcdoc=' <iframe/srcdoc=&quot; <frame/src=a.png> <embed/src=a>".split(),
            *b"<script/type=module> <script/type=module/src=a> <script/type=importmap>".split(),
            *b"<img/data- <img/data-src= <img/data-srcset=' <img/lowsrc=a/ <source/".split(),
            *b"<div/data-bg= <td/background=a> <object/data=a> <svg><use/href=a> </style>".split(),
            *b"<link/ <style> </script> import'a'; import{ { } <p/style=' url( image-set(".split(),
            *b"' \" > a / , &lt; .".split(),
            b" ",
        ),
        # The walk of `bound`, and 1,000 references of the worst kind.
        floor=0.25,
    ),
    "css": Target(
        _css,
        (
            *b"url( URL( @import image-set( type( @namespace /* */ ( ) \\ ' \" a ; { } ,".split(),
            *(b"\n", b" ", b"\xff", b"\\41 "),
        ),
    ),
    "module": Target(
        _module,
        (
            b'{"imports":{"a/":"/b/","c":"/d"},"scopes":{"/":{"a":"/e"}}}\n',
            *b'import export export* from import{ export{ as with return \'a/b/c\' {" ":"/'.split(),
            *b"' \" ` ${ / // /* */ /**/ \\ = [ ] ( { } a ; ,".split(),
            *(b"import ", b"\n", b" "),
        ),
        # A token takes a step of Python.
        per_byte=3e-6,
    ),
    "svg": Target(
        _svg,
        (
            b"<svg xmlns='http://www.w3.org/2000/svg'>",
            *(
                b"<!DOCTYPE a [",
                b"<!ENTITY a 'b'>",
                b"<?xml-stylesheet href='a'?>",
                b"<image href='",
            ),
            *b"]> &a; '/> <style> </style> url( <!-- --> <![CDATA[ ]]> <a> </a> ')'/>".split(),
            *(b"<a fill='url(", b"<a ", b"b='c' ", b" ", b"\n"),
        ),
        per_byte=2e-6,
    ),
    "content": Target(
        _content,
        (
            b"*/*\n<?xml ",
            b'text/html;x="',
            b"\n<meta http-equiv=content-type content='",
            *(b"\n<meta ", b"\n<!--", b"text/html;", b"charset=", b'"', b"\\", b";", b",", b"="),
            *(b"<meta charset=", b"<script>", b"</script", b"<!--", b"-->", b"'", b">", b"<", b" "),
            *(b"encoding=", b"<p a='", b"\xe9", b"\0", b"/", b"<!", b"a"),
        ),
    ),
    "urls": Target(
        _url,
        (
            *(b"http://", b"https:", b"//", b"\\\\", b"data:", b"http://h/", b"http://h/?", b"?q="),
            *(b"../", b"a/", b"%2e/", b"/", b"%25", b"25", b"&", b"=", b"a=b&", b"@", b":", b"#"),
            *(b"cfid=", b"cftoken=1&", b"sid=", b"jsessionid=", b";jsessionid=", b"(a(", b".aspx"),
            *(b"2031-05", b"19", b"20", b"year=", b"[", b"]", b"\t", b" ", b"\xff"),
            *(host.encode() for host in _HOSTS),
        ),
    ),
    "link_header": Target(
        _link_header,
        (
            *(b"<http://", b"<", b">", b";rel=next", b";rel=canonical", b";a=", b'"', b'\\"', b","),
            *(b" ", b"=", b":", b"noindex", b"unavailable_after:", b"\\", b";", b"a", b"/"),
            *(host.encode() for host in _HOSTS),
        ),
        longest=64 * 1024,
    ),
    "robots": Target(
        _robots,
        (
            b"a" * 500 + b"\n",
            b"a/b/c/" * 100 + b"\n",
            b"\n",
            *(b"user-agent: *\n", b"user-agent: krowlspider\n", b"allow: /", b"disallow: /"),
            *(b"disallow: /*a\n", b"crawl-delay: 1\n", b"sitemap: /s\n", b"*", b"$", b"a"),
            *(b"*a", b"%"),
            *(b"/", b" ", b"\t", b":", b"#", b"\0", b"\xef\xbb\xbf", b"\r", b"\xff\xfe"),
            *(b"%41", b"\n"),
        ),
    ),
    "sitemap": Target(
        _sitemap,
        (
            b"<urlset>",
            b"<sitemapindex>",
            b"<feed>",
            b"<rss>",
            b"http://h/\n",
            b"<?xml version='1.0' encoding='utf-16'?>",
            b"<!DOCTYPE urlset [",
            *(b"<!ENTITY a 'b'>", b"]>", b"&a;", b"&#x301;", b"<url><loc>", b"</loc></url>"),
            b"<item>",
            *(b"<entry><link href='", b"'/>", b"</entry>", b"<!--", b"--", b"-->"),
            *(b"<![CDATA[", b"]]>"),
            *(b"<a>", b"</a>", b"<a/>", b"<a ", b"b='c' ", b"x", b" ", b"\n", b"<?a ", b"?>"),
            b"&amp;",
            *(b"\x1f\x8b\x08\0\0\0\0\0\0\xff", b"\x03\0\0\0\0\0\0\0\0\0"),
            *(host.encode() for host in _HOSTS),
        ),
        # A tag of 32 KiB and more is begun anew with each step, eight times at most.
        per_byte=2e-6,
    ),
    "seeds": Target(
        _seed,
        (
            *(b"http://", b"https://", b"example.com", b"1,", b"#", b" #", b"\xef\xbb\xbf", b" "),
            *(b"://", b":80", b"[::1]", b"/", b"\t", b"\0", b"\xff"),
            *(host.encode() for host in _HOSTS),
        ),
    ),
    "retry_after": Target(
        _retry_after,
        (
            *(
                b"Wed, 21 Oct 2015 07:28:00 GMT",
                b"Sun Nov  6 08:49:37 1994",
                b"9",
                b"-",
                b"+",
                b":",
            ),
            *(b"Sun", b"Nov", b" ", b",", b".", b"GMT", b"9999", b"-0000", b"0", b"\t", b"e", b"_"),
            *(b"9,", b".9", b"ms", b"s", b"min", b'"', b"1994-11-06T", b"12:02:00", b"Z"),
        ),
        longest=64 * 1024,
    ),
    "message": Target(
        _message,
        (
            b'{"url":"http://h/',
            b'","meta":{"redirect_urls":["http://h/',
            b'","http://h/',
            b'","meta":{"krowl_via":"http://',
            b'","headers":{"',
            b'"}',
            b'"]}}',
            *_JSON,
            *(host.encode() for host in _HOSTS),
        ),
        longest=64 * 1024,
    ),
    "chunk": Target(
        _chunk,
        (
            b'{"host":"h","transfer":"0123456789abcdef","number":0,"last":true,',
            (
                b'"record":{"pace":[1,1,1,1,1],"due":1,"ready":1,"state":"active",'
                b'"done":1,"dropped":1},'
            ),
            b'"entries":[',
            b'{"url":"http://h/',
            b'"},',
            b'"done":"',
            b'"robots":[["http://h","',
            b'"]]}',
            b"AAAA",
            *_JSON,
        ),
        # Each entry is a URL and 20 keys looked for.
        per_byte=2e-6,
    ),
    "row": Target(
        _row,
        (
            *(_ROW.encode("www.example.com"), PageRow("http://h/", 200, 1, 1.0).encode("h")),
            *(b"\x04\0\0\0", b"\x04\x3f\xff\xff", b"\0", b"\x7f", b"\xf8", b"\xff\xff", b"0/"),
        ),
    ),
    "value": Target(
        _value,
        (
            *(b"\0\0\0", b"\x20\0\0", b"\x40\0\0", b"\x80\0\0", b"\xff\0\0", b"\x04", b"\x01"),
            *(b"\0\0\xff\xff", b"0/", b"1/", b"\n", b"http://h/", b"\0", b"\xff", b"[1,", b"]\n"),
            b'[1, "rules", 1.0, 2.0, 200]\nx\x9c',
        ),
    ),
}

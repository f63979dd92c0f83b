"""The archive of whole crawls: the bytes of answers and requests, and the fields of records."""

from __future__ import annotations

import gzip
import re
import ssl
import zlib
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import brotli
import trustme
from backports import zstd

from krowlspider.corpus.warc_pages import NoPage, page_of
from krowlspider.corpus.warc_pages import records as corpus_records
from krowlspider.fetch.http.decode import decoded
from krowlspider.views.captures import body, captures, read
from tests.support.archived import Record, sha1, valid_records
from tests.support.crawls import crawl_raw
from tests.support.rawweb import HTML, Raw, answer
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedRawWeb
from tests.support.spiders.asking import BODY

if TYPE_CHECKING:
    from pathlib import Path

TEXT = b"<title>A page</title><p>" + b"words of a page, " * 40
# A member of an archive, as bytes.
MEMBER = gzip.compress(b"WARC/1.1\r\nWARC-Type: warcinfo\r\nContent-Length: 0\r\n\r\n\r\n\r\n")


def chunked(*lines: bytes, body: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"Transfer-Encoding: chunked", b"", body])


INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
HELLO = b"<p>hello</p>"
IN_CHUNKS = b"4\r\n<p>h\r\n8;x=y\r\nello</p>\r\n0\r\nA: b\r\n\r\n"
# Answers with HELLO that browsers load, and what they say of their versions and lengths.
UNAMBIGUOUS = {
    "/blank-line-before": b"\r\n" + answer(HTML, body=HELLO),
    "/blank-lines-before": b"\n\r\n \n" + answer(HTML, body=HELLO),
    "/blank-lines-and-chunks": b"\r\n\r\n" + chunked(HTML, body=IN_CHUNKS),
    "/blank-line-and-bare-lf": b"\n" + answer(HTML, body=HELLO).replace(b"\r\n", b"\n"),
    "/lower-case": answer(HTML, status=b"http/1.1 200 ok", body=HELLO),
    "/lower-case-and-chunks": chunked(HTML, body=IN_CHUNKS).replace(b"HTTP", b"http"),
    "/no-minor-version": answer(HTML, status=b"HTTP/2 200", body=HELLO),
    "/no-version": answer(HTML, status=b"HTTP 200 OK", body=HELLO),
    "/no-blank": answer(HTML, status=b"HTTP/1.1\t200OK", body=HELLO),
    "/chunked-twice": chunked(HTML, b"Transfer-Encoding: chunked", body=IN_CHUNKS),
    "/chunked-twice-in-one": chunked(HTML, b"Transfer-Encoding: chunked, Chunked", body=IN_CHUNKS),
    "/identity-and-chunked": chunked(HTML, b"Transfer-Encoding: identity", body=IN_CHUNKS),
    "/empty-coding": answer(HTML, b"Transfer-Encoding:", body=HELLO),
    "/equal-lengths": answer(HTML, b"Content-Length: 12, 12", body=HELLO),
    "/interim-and-blank-line": INTERIM + b"\r\n" + answer(HTML, body=HELLO),
}
# Answers, with the payload if the record has its digest.
ODD: dict[str, tuple[Raw, bytes | None]] = {
    "/plain": (Raw(answer(HTML, body=b"plain")), b"plain"),
    "/extensions-and-trailers": (
        Raw(
            chunked(
                HTML,
                body=b'5;a=b; c="d;e"\r\nhello\r\n0006 ;x\r\n world\r\n0;last\r\n'
                b"X-Sum: 1\r\nX-Sum: 2\r\n\r\n",
            )
        ),
        None,
    ),
    "/chunks-with-bare-lf": (Raw(chunked(HTML, body=b"3\nabc\n0\n\n")), None),
    "/chunked-and-length": (
        Raw(chunked(HTML, b"Content-Length: 3", body=b"5\r\nsmugg\r\n0\r\n\r\n"), closes=True),
        None,
    ),
    "/folded": (Raw(answer(b"X-Fold: a\r\n b\r\n\tc", HTML, body=b"folded")), None),
    "/duplicate": (
        Raw(
            answer(b"X-Two: 1", b"x-two: 2", b"Set-Cookie: a=b", b"Set-Cookie: c=d", body=b"twice")
        ),
        b"twice",
    ),
    "/two-equal-lengths": (Raw(answer(HTML, b"Content-Length: 4", body=b"four")), b"four"),
    "/latin-1": (Raw(answer(b"X-Name: caf\xe9 \xff\x80", body=b"latin")), b"latin"),
    "/utf-8": (Raw(answer("X-Name: caf\u00e9 \u2028".encode(), body=b"utf-8")), b"utf-8"),
    "/no-reason": (Raw(answer(status=b"HTTP/1.1 200", body=b"no reason")), b"no reason"),
    "/blank-reason": (Raw(answer(status=b"HTTP/1.1 200 ", body=b"blank")), b"blank"),
    "/odd-reason": (Raw(answer(status=b"HTTP/1.1 200 \xfc\tber", body=b"reason")), b"reason"),
    "/unknown-status": (Raw(answer(status=b"HTTP/1.1 799 Odd", body=b"799")), b"799"),
    "/interim": (Raw(INTERIM + answer(HTML, body=b"after all")), b"after all"),
    "/gzip": (
        Raw(answer(HTML, b"Content-Encoding: gzip", body=gzip.compress(TEXT + b"1"))),
        gzip.compress(TEXT + b"1"),
    ),
    "/deflate": (
        Raw(answer(HTML, b"Content-Encoding: deflate", body=zlib.compress(TEXT + b"2"))),
        zlib.compress(TEXT + b"2"),
    ),
    "/br": (
        Raw(answer(HTML, b"Content-Encoding: br", body=brotli.compress(TEXT + b"3"))),
        brotli.compress(TEXT + b"3"),
    ),
    "/zstd": (
        Raw(answer(HTML, b"Content-Encoding: zstd", body=zstd.compress(TEXT + b"4"))),
        zstd.compress(TEXT + b"4"),
    ),
    "/gzip-in-chunks": (
        Raw(
            chunked(
                HTML,
                b"Content-Encoding: gzip",
                body=b"%x\r\n%b\r\n0\r\n\r\n"
                % (len(gzip.compress(TEXT + b"5")), gzip.compress(TEXT + b"5")),
            )
        ),
        None,
    ),
    "/no-gzip": (Raw(answer(b"Content-Encoding: gzip", body=b"not that")), b"not that"),
    "/204": (Raw(b"HTTP/1.1 204 No Content\r\nX-Odd: 204\r\n\r\n"), b""),
    "/empty": (Raw(answer(HTML)), b""),
    "/1.0": (Raw(b"HTTP/1.0 200 OK\r\n\r\nto the end", closes=True), b"to the end"),
    "/to-the-close": (Raw(b"HTTP/1.1 200 OK\r\nX-Odd: 1\r\n\r\nclosed", closes=True), b"closed"),
    "/bare-lf": (Raw(b"HTTP/1.1 200 OK\nContent-Length: 4\n\nbare"), None),
    "/mixed-line-ends": (Raw(b"HTTP/1.1 200 OK\r\nA: 1\nContent-Length: 5\r\n\r\nmixed"), None),
    "/stray-line": (Raw(answer(b"a line of no meaning", body=b"stray")), None),
    "/blank-before-colon": (Raw(answer(b"X-Odd : 1", body=b"colon")), None),
    "/empty-name": (Raw(answer(b": nothing", body=b"empty")), None),
    "/nul": (Raw(answer(b"X-Nul: a\0b", body=b"nul")), None),
    "/long-header": (Raw(answer(b"X-Long: " + b"y" * 40_000, body=b"long")), b"long"),
    "/binary": (Raw(answer(body=bytes(range(256)) * 300)), bytes(range(256)) * 300),
    "/looks-like-records": (
        Raw(answer(body=b"\r\n\r\nWARC/1.1\r\nWARC-Type: response\r\n\r\n" + MEMBER)),
        b"\r\n\r\nWARC/1.1\r\nWARC-Type: response\r\n\r\n" + MEMBER,
    ),
}
# The connection is closed, because the bytes after the answer belong to no answer.
MORE = Raw(answer(HTML, body=b"enough") + b"and more", closes=True)


def assert_digests(record: Record, payload: bytes | None) -> None:
    """Assert that a record has the digest of its block, and of its payload unless that is None."""
    assert record["WARC-Block-Digest"] == sha1(record.block)
    expected = [] if payload is None else [sha1(payload)]
    assert record.all("WARC-Payload-Digest") == expected, record.url


def test_odd_answers_are_stored_byte_for_byte(
    tmp_path: Path,
) -> None:
    """Their requests are too."""
    answers = {path: raw for path, (raw, _) in ODD.items()}
    with SimulatedRawWeb({**answers, "/more": MORE}) as web:
        urls = {path: web.url("odd.test", path) for path in [*answers, "/more"]}
        crawl = crawl_raw(tmp_path, urls.values())
        records = valid_records(crawl.jobdir / "warc")
    sent = {path: raw.data.removeprefix(INTERIM) for path, raw in answers.items()}
    sent["/more"] = MORE.data.removesuffix(b"and more")
    for path, url in urls.items():
        response, request = records.about(url)
        assert (response.kind, request.kind) == ("response", "request")
        assert response.block == sent[path], path
        assert_digests(response, ODD[path][1] if path in ODD else b"enough")
        assert "WARC-Truncated" not in response
        # A second request of a path would be a second entry.
        asked = [data for name, data in web.requests if name == path]
        assert [request.block] == asked
        assert request["WARC-Concurrent-To"] == response["WARC-Record-ID"]
        assert request["WARC-Date"] == response["WARC-Date"]
        assert request["WARC-IP-Address"] == response["WARC-IP-Address"] == "127.0.0.1"
        spoken = "http/1.0" if path == "/1.0" else "http/1.1"
        assert response["WARC-Protocol"] == request["WARC-Protocol"] == spoken
    pairs = len(web.requests)
    assert records.kinds == {"warcinfo": 1, "resource": 1, "response": pairs, "request": pairs}
    assert crawl.stats["krowl/archive/records_count"] == 2 + 2 * pairs
    ids = [record["WARC-Record-ID"] for record in records]
    assert len(set(ids)) == len(ids)
    assert {record["WARC-Warcinfo-ID"] for record in records[1:]} == {ids[0]}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", records[-1]["WARC-Date"])
    assert not [name for name in crawl.stats if name.startswith("krowl/fetch/failed_count")]
    assert crawl.complaints == []


def test_unambiguous_answers_are_stored_and_read_by_every_reader(tmp_path: Path) -> None:
    with SimulatedRawWeb({path: Raw(data) for path, data in UNAMBIGUOUS.items()}) as web:
        urls = {path: web.url("odd.test", path) for path in UNAMBIGUOUS}
        crawl = crawl_raw(tmp_path, urls.values(), KROWL_WARC_REVISIT=0)
    assert crawl.complaints == []
    assert not [name for name in crawl.stats if name.startswith("krowl/fetch/failed_count")]
    folder = crawl.jobdir / "warc"
    # Digests, index lines and the judgement of other tools.
    records = valid_records(folder)
    indexes = sorted(folder.glob("*.cdxj"))
    for path, url in urls.items():
        sent = UNAMBIGUOUS[path].removeprefix(INTERIM)
        assert records.about(url)[0].block == sent, path
        [line] = captures(indexes, url)
        assert (line.status, line.mime) == ("200", "text/html")
        assert line.digest == sha1(HELLO)
        assert read(folder, indexes, line) == (sent, "")
        assert body(folder, indexes, line, partial(decoded, cap=1000)) == (HELLO, "")
    corpus = {}
    for warc in folder.glob("*.warc.gz"):
        with warc.open("rb") as stream:
            for _, record in corpus_records(stream, 0, undamaged):
                with suppress(NoPage):
                    page = page_of(record, lambda payload, _: payload)
                    corpus[page.url] = (page.media_type, page.body)
    assert corpus == dict.fromkeys(urls.values(), ("text/html", HELLO))


def undamaged(*damage: object) -> None:
    raise AssertionError(damage)


def test_known_payload_is_a_revisit_whatever_its_head(tmp_path: Path) -> None:
    """A revisit has its own head. With the body of the original it is the whole answer.

    So a chunked answer is no revisit of one that is not chunked.
    """
    heads = {
        "/first": answer(HTML, body=TEXT),
        "/bare-lf": b"HTTP/1.1 200 OK\nContent-Length: %d\n\n%b" % (len(TEXT), TEXT),
        "/blank-lines": b"\r\n\r\n" + answer(HTML, body=TEXT),
        "/stray-line": answer(b"a line of no meaning", body=TEXT),
        "/chunked": chunked(HTML, body=b"%x\r\n%b\r\n0\r\nX: 1\r\n\r\n" % (len(TEXT), TEXT)),
        "/404": answer(HTML, status=b"HTTP/1.1 404 Gone", body=TEXT),
    }
    with SimulatedRawWeb({path: Raw(data) for path, data in heads.items()}) as web:
        urls = [web.url("odd.test", path) for path in heads]
        crawl = crawl_raw(tmp_path, urls)
        records = valid_records(crawl.jobdir / "warc")
    first = records.about(urls[0])[0]
    assert (first.kind, first.block) == ("response", heads["/first"])
    assert records.about(urls[4])[0].block == heads["/chunked"]
    for url, data in zip(urls, heads.values(), strict=True):
        if data in {heads["/first"], heads["/chunked"]}:
            continue
        revisit = records.about(url)[0]
        assert revisit.kind == "revisit"
        head = re.search(rb"[a-z0-9]\r?\n\r?\n", data)
        assert head is not None
        assert revisit.block == data[: head.end()]
        assert revisit["WARC-Block-Digest"] == sha1(revisit.block)
        assert revisit["WARC-Payload-Digest"] == sha1(TEXT)
        assert revisit["WARC-Refers-To-Target-URI"] == urls[0]
        assert revisit["WARC-Refers-To-Date"] == first["WARC-Date"]
        assert revisit["WARC-Profile"].endswith("/warc/1.1/revisit/identical-payload-digest")
        # WARC 1.1, section 6.7.2: the field shows that the body was left out.
        assert revisit["WARC-Truncated"] == "length"
    assert records.kinds == {
        "warcinfo": 1,
        "resource": 1,
        "response": 3,
        "revisit": 4,
        "request": 7,
    }


def test_any_method_is_stored_as_sent_and_answered(
    tmp_path: Path,
) -> None:
    """Also HEAD, POST and conditional requests."""
    answers = {
        "/head": b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\nX-Odd: head\r\n\r\n",
        "/post": answer(HTML, status=b"HTTP/1.1 201 Created", body=b"thanks"),
        "/same": b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 99\r\n\r\n',
    }
    with SimulatedRawWeb({path: Raw(data) for path, data in answers.items()}) as web:
        crawl = SimulatedCrawl(
            tmp_path / "job",
            spider="asking",
            arguments={"root": web.url("odd.test", "")},
            settings={"SPIDER_MODULES": "tests.support.spiders"},
        ).run()
        records = valid_records(crawl.jobdir / "warc")
        found = {path: records.about(web.url("odd.test", path)) for path in answers}
    for path, data in answers.items():
        first, request = found[path]
        assert first.block == data
        assert [request.block] == [sent for name, sent in web.requests if name == path]
    assert found["/head"][1].block.startswith(b"HEAD /head HTTP/1.1\r\n")
    assert_digests(found["/head"][0], b"")
    assert_digests(found["/post"][0], b"thanks")
    assert found["/post"][1].block.endswith(b"\r\n\r\n" + BODY)
    assert found["/post"][1]["WARC-Payload-Digest"] == sha1(BODY)
    assert "WARC-Payload-Digest" not in found["/head"][1]
    assert b'\r\nIf-None-Match: "x"\r\n' in found["/same"][1].block
    same = found["/same"][0]
    assert same["WARC-Profile"].endswith("/warc/1.1/revisit/server-not-modified")
    assert "WARC-Refers-To-Date" not in same
    # robots.txt is the third response.
    assert records.kinds == {
        "warcinfo": 1,
        "response": 3,
        "revisit": 1,
        "request": 4,
    }
    assert {(item["status"], item["bytes"]) for item in crawl.items} == {
        (200, 0),
        (201, 6),
        (304, 0),
    }


SUITES = {
    "ECDHE-ECDSA-AES128-GCM-SHA256": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
}


def tls_context(most: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = most
    context.set_ciphers(":".join(SUITES))
    trustme.CA().issue_cert("odd.test").configure_cert(context)
    return context


def test_records_name_the_tls_version_and_cipher_suite(tmp_path: Path) -> None:
    page = {"/": Raw(answer(HTML, body=b"secret"))}
    old, new = (tls_context(most) for most in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3))
    with (
        SimulatedRawWeb(page, old) as older,
        SimulatedRawWeb(page, new) as newer,
        SimulatedRawWeb(page) as plain,
    ):
        webs = {"tls/1.2": older, "tls/1.3": newer, "": plain}
        crawl = crawl_raw(tmp_path, [web.url("odd.test") for web in webs.values()])
        records = valid_records(crawl.jobdir / "warc")
    for protocol, web in webs.items():
        spoken = ["http/1.1", protocol] if protocol else ["http/1.1"]
        suites = {SUITES.get(cipher, cipher) for _, cipher in web.secured}
        for path in ("/", "/robots.txt"):
            first, request = records.about(web.url("odd.test", path))
            for record in (first, request):
                assert record.all("WARC-Protocol") == spoken
                assert set(record.all("WARC-Cipher-Suite")) == suites
    assert [len(set(web.secured)) for web in webs.values()] == [1, 1, 0]
    assert {name for name, _ in older.secured + newer.secured} == {"TLSv1.2", "TLSv1.3"}
    # Three equal bodies, with and without TLS.
    assert records.kinds == {
        "warcinfo": 1,
        "resource": 1,
        "response": 4,
        "revisit": 2,
        "request": 6,
    }


CUT = {
    "/disconnect": Raw(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"d" * 900, closes=True
    ),
    "/disconnect-in-chunks": Raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n" + b"c" * 700, closes=True
    ),
    "/time": Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"t" * 800, hangs=True),
    "/time-to-the-close": Raw(b"HTTP/1.1 200 OK\r\n\r\n" + b"e" * 600, hangs=True),
    "/length": Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + b"l" * 3000),
    "/length-in-chunks": Raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nbb8\r\n" + b"m" * 3000 + b"\r\n"
    ),
}
REASONS = {
    "disconnect": ("disconnect", "disconnect"),
    "time": ("time", "total_timeout"),
    "length": ("length", "too_large"),
}


def test_cut_answer_is_stored_with_the_reason(
    tmp_path: Path,
) -> None:
    """The bytes that came are stored."""
    with SimulatedRawWeb(CUT) as web:
        # One host each: a host would make the next request wait.
        urls = {path: web.url(f"{path[1:]}.test", path) for path in CUT}
        limits = {"DOWNLOAD_MAXSIZE": 2000, "DOWNLOAD_TIMEOUT": 1.2, "KROWL_WARC_ALSO": "failures"}
        crawl = crawl_raw(tmp_path, urls.values(), **limits)
        records = valid_records(crawl.jobdir / "warc")
    for path, url in urls.items():
        reason, error = REASONS[path[1:].partition("-")[0]]
        response, request, note = records.about(url)
        assert [record.kind for record in (response, request, note)] == [
            "response",
            "request",
            "metadata",
        ]
        assert response["WARC-Truncated"] == reason
        came = len(response.block)
        assert response["Content-Length"] == str(came)
        assert response.block == CUT[path].data[:came]
        if reason == "length":
            # On loopback, one read returns the whole answer.
            assert came > 2000
        else:
            assert came == len(CUT[path].data)
        payload = response.block.partition(b"\r\n\r\n")[2]
        assert_digests(response, None if "chunks" in path else payload)
        assert [request.block] == [sent for name, sent in web.requests if name == path]
        assert note.block_fields == [("error", error)]
        # The metadata record is about this fetch.
        assert note["WARC-Concurrent-To"] == response["WARC-Record-ID"]
    assert records.kinds == {
        "warcinfo": 1,
        "resource": 1,
        "response": 12,
        "request": 12,
        "metadata": 6,
    }
    assert crawl.items == []


def test_undecodable_answer_is_stored_whole(
    tmp_path: Path,
) -> None:
    """Its page is dropped with a reason."""
    coded = {
        "/bomb": (b"gzip", gzip.compress(bytes(100_000)), "too_large"),
        "/broken": (b"br", b"\xff" * 50, "decode"),
    }
    raw = {
        path: Raw(answer(HTML, b"Content-Encoding: " + coding, body=body))
        for path, (coding, body, _) in coded.items()
    }
    with SimulatedRawWeb(raw) as web:
        urls = {path: web.url(f"{path[1:]}.test", path) for path in coded}
        settings = {"DOWNLOAD_MAXSIZE": 10_000, "KROWL_WARC_ALSO": "failures"}
        crawl = crawl_raw(tmp_path, urls.values(), **settings)
        records = valid_records(crawl.jobdir / "warc")
    for path, url in urls.items():
        response, _, note = records.about(url)
        assert response.block == raw[path].data
        assert "WARC-Truncated" not in response
        assert note.block_fields == [("error", coded[path][2])]
        assert note["WARC-Concurrent-To"] == response["WARC-Record-ID"]
    assert records.kinds["metadata"] == 2


def hostile(*lines: bytes, body: bytes = b"", status: bytes = b"HTTP/1.1 302 Found") -> Raw:
    return Raw(answer(*lines, status=status, body=body))


HOSTILE_LINKS = b"""<title>a&#13;&#10;WARC-Type: warcinfo</title>
<a href="/l1&#13;&#10;WARC-Type: x">1</a><a href="/l2&#0;\0\x7f\x85">2</a>
<a href="/l3%0d%0aWARC-Type:%20x">3</a><a href="/l4&#x2028;\xff\xfe">4</a>
<a href="http://odd\r\n.test:1/">5</a><a href="/l6 a\tb">6</a><a href="/l7\xed\xa0\x80">7</a>"""
HOSTILE = {
    "/encoded": hostile(b"Location: /t1%0d%0aWARC-Type:%20warcinfo"),
    "/bare-cr": hostile(b"Location: /t2\rWARC-Type: warcinfo\rX: y"),
    "/nul": hostile(b"Location: /t3\0WARC-Type: warcinfo"),
    "/raw-utf-8": hostile("Location: /t4/\u00e9\u2028\u0085 x".encode()),
    "/raw-latin-1": hostile(b"Location: /t5/\xe9\xff\xa0"),
    "/folded": hostile(b"Location: /t6\r\n WARC-Type: warcinfo"),
    "/type": hostile(
        b"Content-Type: text/html\x0b; charset=\x01\"'utf-8\xff",
        body=b"t",
        status=b"HTTP/1.1 200 OK",
    ),
    "/as-warc": hostile(
        b"WARC/1.1",
        b"WARC-Type: warcinfo",
        b"WARC-Target-URI: http://elsewhere.test/",
        b"WARC-Record-ID: <urn:uuid:0>",
        status=b"HTTP/1.1 200 WARC/1.1\tWARC-Type: warcinfo",
        body=b"\r\n\r\n\r\nWARC/1.1\r\nWARC-Type: warcinfo\r\n\r\n" + MEMBER * 2,
    ),
    "/links": hostile(HTML, status=b"HTTP/1.1 200 OK", body=HOSTILE_LINKS),
}
# Fields of records about a fetched URL, and of warcinfo records.
FIELDS = {
    "WARC-Type",
    "WARC-Record-ID",
    "WARC-Date",
    "WARC-Target-URI",
    "WARC-Warcinfo-ID",
    "WARC-IP-Address",
    "WARC-Protocol",
    "WARC-Payload-Digest",
    "WARC-Block-Digest",
    "WARC-Concurrent-To",
    "WARC-Filename",
    "Content-Type",
    "Content-Length",
}
NOTED = {
    "via",
    "hop",
    "hopsFromSeed",
    "depth",
    "redirected-from",
    "fetchTimeMs",
    "firstByteTimeMs",
    "dnsTimeMs",
    "connectTimeMs",
    "delayMs",
    "sourceTag",
    "outlinks",
    "charset",
}


def test_hostile_answers_make_no_field_and_no_record(tmp_path: Path) -> None:
    with SimulatedRawWeb(HOSTILE) as web:
        urls = [web.url("odd.test", path) for path in HOSTILE]
        crawl = crawl_raw(tmp_path, urls, KROWL_WARC_ALSO="metadata", KROWL_WARC_REVISIT=0)
        records = valid_records(crawl.jobdir / "warc")
    asked = len(web.requests)
    # Besides: robots.txt, and targets of redirects and links. http://odd.test:1 has no server.
    assert len({path for path in web.asked if re.match("/[tl][1-7]", path)}) >= 10
    # The octets of a Location are those that are asked for, as by browsers.
    assert {"/t4/%C3%A9%E2%80%A8%C2%85%20x", "/t5/%E9%FF%A0"} <= set(web.asked)
    assert records.kinds == {
        "warcinfo": 1,
        "resource": 1,
        "response": asked,
        "request": asked,
        "metadata": asked,
    }
    assert crawl.stats["krowl/archive/records_count"] == 2 + 3 * asked
    [seeds] = records.of_kind("resource")
    records.remove(seeds)
    for record in records:
        assert {name for name, _ in record.fields} <= FIELDS
        assert len(record.fields) == len({name for name, _ in record.fields})
    for record in records[1:]:
        assert re.fullmatch(r"http://odd\.test:\d+/[!-~]*", record.url)
    paths = [
        record.url.removeprefix(web.url("odd.test", "")) for record in records.of_kind("request")
    ]
    assert sorted(paths) == sorted(web.asked)
    for record in records.of_kind("metadata"):
        assert {name for name, _ in record.block_fields} <= NOTED
        assert all(re.fullmatch(r"[!-~]+", value) for _, value in record.block_fields)
    for path, raw in HOSTILE.items():
        response = records.about(web.url("odd.test", path)).of_kind("response").only
        assert raw.data.startswith(response.block)
    assert crawl.complaints == []

"""The cases of http-tests/cache-tests that concern a client, over the wire.

They are those of its groups conditional-etag, conditional-lm and update304, as of July 2026. The
suite tests caches, which are server and client. Here the server is that of the case, and the crawl
is the client of a stored response that is stale: it asks each page again with what it has stored.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import pytest

from krowlspider.recrawl import validators
from tests.support.archived import valid_records
from tests.support.crawling import scrapy, write_seeds
from tests.support.crawls import anchors
from tests.support.rawweb import HTML, Raw, answer
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedRawWeb

if TYPE_CHECKING:
    from pathlib import Path

HOST = "a.test"
DATE = b"Date: Wed, 01 Jan 2020 12:00:00 GMT"
LATEST = b"Last-Modified: Wed, 01 Jan 2020 00:00:00 GMT"
IF_LATEST = b"If-Modified-Since: Wed, 01 Jan 2020 00:00:00 GMT"
OLD_FORM = b"Wednesday, 01-Jan-20 00:00:00 GMT"
CONDITIONS = (b"If-None-Match:", b"If-Modified-Since:")


class Case(NamedTuple):
    """Lines of the stored response, the conditions that a request for it must have, and the lines
    of the 304 to them.

    ``is_understood``: the 304 is about what is stored. ``later``: the conditions after it, if they
    are others.
    """

    stored: list[bytes]
    sent: list[bytes]
    answered: list[bytes]
    is_understood: bool = True
    later: list[bytes] | None = None


def tagged(tag: bytes, *, sent: bool = True) -> Case:
    """Return the case of a tag that must be sent as it came, or must not be sent."""
    lines = [b"ETag: " + tag]
    return Case(lines, [b"If-None-Match: " + tag] * sent, lines)


TAG = b'ETag: "abcdef"'
IF_TAG = b'If-None-Match: "abcdef"'
CASES = {
    # conditional-etag. What the suite's client sends, ours has stored.
    "conditional-etag-strong-respond": tagged(b'"abcdef"'),
    "conditional-304-etag": Case([TAG], [IF_TAG], [TAG]),
    # Both are sent, and the server says 304 by the tag alone.
    "conditional-etag-precedence": Case([TAG, LATEST], [IF_TAG, IF_LATEST], [TAG]),
    "conditional-etag-strong-respond-obs-text": tagged('"abcdefü"'.encode()),
    # A tag without quotes is none: the page is asked in full.
    "conditional-etag-quoted-respond-unquoted": tagged(b"abcdef", sent=False),
    "conditional-etag-unquoted-respond-unquoted": tagged(b"abcdef", sent=False),
    "conditional-etag-unquoted-respond-quoted": tagged(b"abcdef", sent=False),
    "conditional-etag-strong-generate-unquoted": tagged(b"abcdef", sent=False),
    "conditional-etag-weak-respond": tagged(b'W/"abcdef"'),
    "conditional-etag-weak-respond-lowercase": tagged(b'w/"abcdef"', sent=False),
    "conditional-etag-weak-respond-backslash": tagged(b'W\\"abcdef"', sent=False),
    "conditional-etag-weak-respond-omit-slash": tagged(b'W"abcdef"', sent=False),
    # One response is stored, so one tag is sent: never a list.
    "conditional-etag-strong-respond-multiple-first": tagged(b'"abcdef"'),
    "conditional-etag-strong-respond-multiple-second": tagged(b'"1234"'),
    "conditional-etag-strong-respond-multiple-last": tagged(b'"5678"'),
    # The other headers are those of the first request, in each case.
    "conditional-etag-vary-headers": Case(
        [TAG, b"Vary: Accept-Language, User-Agent"], [IF_TAG], [TAG]
    ),
    "conditional-etag-vary-headers-mismatch": Case([TAG, b"Vary: Abc"], [IF_TAG], [TAG]),
    "conditional-etag-strong-generate": tagged(b'"abcdef"'),
    "conditional-etag-weak-generate-weak": tagged(b'W/"abcdef"'),
    # conditional-lm
    "conditional-lm-fresh": Case([LATEST], [IF_LATEST], [LATEST]),
    "conditional-lm-stale": Case([LATEST], [IF_LATEST], [LATEST]),
    # The date that is sent is never later than the stored one.
    "conditional-lm-fresh-earlier": Case([LATEST], [IF_LATEST], []),
    # Without a Last-Modified, no date is made up.
    "conditional-lm-fresh-no-lm": Case([], [], []),
    "conditional-lm-fresh-rfc850": Case(
        [b"Last-Modified: " + OLD_FORM],
        [b"If-Modified-Since: " + OLD_FORM],
        [LATEST],
        later=[IF_LATEST],
    ),
    # update304
    "304-lm-use-stored-Test-Header": Case([LATEST, b"Test-Header: a"], [IF_LATEST], [LATEST]),
    "304-etag-update-response-ETag": Case(
        [TAG], [IF_TAG], [b'ETag: "ghijkl"'], is_understood=False
    ),
}
# Headers of update304 that differ in the 304: before, and in it.
UPDATED = {
    **dict.fromkeys(("Test-Header", "X-Test-Header", "Content-Foo", "X-Content-Foo"), ("a", "b")),
    **dict.fromkeys(("Content-Encoding", "Content-Range", "Public-Key-Pins"), ("a", "b")),
    "Cache-Control": ("max-age=1", "max-age=3600"),
    # It is that of the stored response: no such bytes follow a 304.
    "Content-Length": ("36", "10"),
    "Content-Location": ("/foo", "/bar"),
    "Content-MD5": ("rL0Y20zC+Fzt72VPzMSk2A==", "N7UdGUp1E+RbVvZSTy1R8g=="),
    "Content-Security-Policy": ("default-src 'self'", "default-src 'self' cdn.example.com"),
    "Content-Type": ("text/plain", "text/plain;charset=utf-8"),
    "Clear-Site-Data": ("cache", "cookies"),
    "Expires": ("Fri, 01 Jan 2038 01:01:01 GMT", "Mon, 11 Jan 2038 11:11:11 GMT"),
    "Set-Cookie": ("a=b", "a=c"),
    "Set-Cookie2": ("a=b", "a=c"),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": ("1", "1; mode=block"),
}
CASES |= {
    f"304-etag-update-response-{name}": Case(
        [TAG, f"{name}: {before}".encode()], [IF_TAG], [TAG, f"{name}: {after}".encode()]
    )
    for name, (before, after) in UPDATED.items()
}


def raw(name: str, case: Case) -> Raw:
    """Return the page of a case, which answers 304 to its conditions."""
    body = name.encode().ljust(60)[-60:]
    lines = [DATE, *case.stored]
    if not any(line.startswith(b"Content-Type") for line in lines):
        lines.append(HTML)
    length = next((line for line in lines if line.startswith(b"Content-Length")), None)
    if length is not None:
        lines.remove(length)
        body = body[: int(length.split()[1])]
    not_modified = b"\r\n".join([b"HTTP/1.1 304 Not Modified", DATE, *case.answered, b"", b""])
    return Raw(
        answer(*lines, body=body),
        others=dict.fromkeys([*case.sent, *(case.later or [])], not_modified),
    )


def conditions(request: bytes) -> list[bytes]:
    return [line for line in request.split(b"\r\n") if line.startswith(CONDITIONS)]


def without_conditions(request: bytes) -> list[bytes]:
    return [line for line in request.split(b"\r\n") if not line.startswith(CONDITIONS)]


def test_each_case_of_a_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No page is one of the sample that is asked in full.
    monkeypatch.setattr(validators, "IN_FULL_EVERY", 1 << 62)
    paths = {f"/{name}": name for name in CASES}
    web_answers = {path: raw(name, CASES[name]) for path, name in paths.items()}
    web_answers["/"] = Raw(answer(HTML, body=anchors(*paths).encode()))
    with SimulatedRawWeb(web_answers) as web:
        seeds = write_seeds(tmp_path / "seeds.txt", [web.url(HOST, "/")])
        found: list[dict[str, list[bytes]]] = []
        for kind in ("off", "once", "once"):
            jobdir = (
                SimulatedCrawl(
                    tmp_path / "job",
                    arguments={"seeds": seeds},
                    settings={"KROWL_RECRAWL": kind, "RETRY_TIMES": 0},
                )
                .run()
                .jobdir
            )
            asked: dict[str, list[bytes]] = {}
            for path, request in web.requests:
                asked.setdefault(path, []).append(request)
            found.append(asked)
            web.requests.clear()
        rows = {
            row["url"].rpartition("/")[2]: row
            for row in map(json.loads, scrapy("frontier", jobdir, "--pages").stdout.splitlines())
        }
    first, second, third = found
    for path, name in paths.items():
        case, row = CASES[name], rows[name]
        (in_full,), (again, *more) = first[path], second[path]
        assert conditions(in_full) == [], name
        assert sorted(conditions(again)) == sorted(case.sent), name
        assert without_conditions(again) == without_conditions(in_full), name
        if not case.is_understood:
            # The page is asked in full at once.
            assert [conditions(each) for each in more] == [[]], name
        else:
            assert more == [], name
            # What is stored stays, also where the 304 has left it out.
            later = sorted(case.sent if case.later is None else case.later)
            assert [sorted(conditions(each)) for each in third[path]] == [later], name
            assert row["not_modified"] == 2 * bool(case.sent), name
        assert row["changes"] == 0, name
        assert row["fetches"] == 3, name
    assert scrapy("warc", "check", jobdir).returncode == 0
    unchanged = [
        record
        for record in valid_records(jobdir / "warc").of_kind("revisit")
        if record["WARC-Profile"].endswith("not-modified")
    ]
    assert len(unchanged) == sum(row["not_modified"] for row in rows.values())


@pytest.mark.parametrize("tag", ['"abcdef"', "abcdef"], ids=["forward", "forward-unquoted"])
def test_a_condition_of_a_spider_is_sent_as_it_is(tmp_path: Path, tag: str) -> None:
    """conditional-etag-forward and conditional-etag-forward-unquoted: nothing is stored here."""
    with SimulatedRawWeb({"/same": Raw(answer(HTML, TAG, body=b"x"))}) as web:
        SimulatedCrawl(
            tmp_path / "job",
            spider="asking",
            arguments={"root": web.url(HOST, ""), "tag": tag},
            settings={"SPIDER_MODULES": "tests.support.spiders"},
        ).run()
        found = [conditions(request) for path, request in web.requests if path == "/same"]
    assert found == [[f"If-None-Match: {tag}".encode()]]

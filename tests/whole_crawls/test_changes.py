"""``scrapy changes`` tells what changed on a site between crawls of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.archive.indexes import captures_of, indexes_in
from tests.support.crawling import scrapy, write_seeds
from tests.support.crawls import anchors
from tests.support.rawweb import HTML, NOT_FOUND, Raw, answer
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedRawWeb

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.archive.cdxj import IndexLine

HOST = "a.test"
ROOT = b"<title>News</title>" + anchors("/going", "/story", "/tagged", "/twin").encode()
STORY = b"<h1>Harbour</h1><p>The harbour opens on Monday. Ships are late.<!-- %d -->"
NEWER = b"<h1>Harbour</h1><p>The harbour opens on Tuesday. Ships are late."
TAGGED = Raw(
    answer(HTML, b'ETag: "1"', body=b"<p>Tagged"),
    others={b'If-None-Match: "1"': answer(status=b"HTTP/1.1 304 Not Modified")},
)
MONDAY_TO_TUESDAY = (
    "@@ -1,3 +1,3 @@\n Harbour\n-The harbour opens on Monday.\n+The harbour opens on Tuesday.\n"
    " Ships are late.\n"
)


def html(body: bytes) -> Raw:
    return Raw(answer(HTML, body=body))


def told(line: IndexLine, status: int) -> dict[str, Any]:
    """Return what a line says of a fetch, given that fetch in the index."""
    of = line.timestamp
    return {
        "time": f"{of[:4]}-{of[4:6]}-{of[6:8]}T{of[8:10]}:{of[10:12]}:{of[12:]}Z",
        "status": status,
        "digest": line.digest,
        "file": line.filename,
        "offset": line.offset,
    }


@pytest.mark.slow
def test_each_change_between_crawls_is_told(tmp_path: Path):
    answers = {
        "/": html(ROOT),
        "/going": html(b"<p>Going"),
        "/story": html(STORY % 1),
        "/tagged": TAGGED,
        "/twin": html(STORY % 1),
    }
    days: list[dict[str, Raw]] = [
        {},
        {"/story": html(STORY % 2)},
        {"/story": html(NEWER), "/going": NOT_FOUND},
        {"/going": html(b"<p>Going"), "/twin": html(NEWER), "/tagged": html(b"<p>Tagged anew")},
    ]
    with SimulatedRawWeb(answers) as web:
        seeds = write_seeds(tmp_path / "seeds.txt", [web.url(HOST, "/")])
        for changed in days:
            answers.update(changed)
            crawl = SimulatedCrawl(
                tmp_path / "job",
                arguments={"seeds": seeds},
                settings={"KROWL_RECRAWL": "once", "RETRY_TIMES": 0},
            ).run()
        urls = {path: web.url(HOST, path) for path in answers}
    found = [
        json.loads(line) for line in scrapy("changes", crawl.jobdir, "--diff").stdout.splitlines()
    ]
    assert [each["after"]["time"] for each in found] == sorted(
        each["after"]["time"] for each in found
    )

    indexes = indexes_in(crawl.jobdir / "warc").there

    def change(
        path: str, before: int, after: int, values: dict[str, Any], *, statuses: str = "200 200"
    ) -> dict[str, Any]:
        """Return the line of a change: the fetches are those of these days."""
        fetches = captures_of(indexes, urls[path])
        assert len(fetches) == len(days)
        first, second = map(int, statuses.split())
        return {
            "url": urls[path],
            "before": told(fetches[before], first),
            "after": told(fetches[after], second),
            "fetched_between": after - before - 1,
            "unchanged_until": told(fetches[after - 1], 0)["time"],
            **values,
        }

    names = ("similarity", "text_changed", "diff")
    page = {"media_type": "text/html", "truncated": False, "diff_cut": False}
    unknown = dict.fromkeys(("media_type", "truncated", "diff_cut", *names))
    markup = {**page, **dict(zip(names, (1, False, ""), strict=True))}
    story = {**page, **dict(zip(names, (0.4, True, MONDAY_TO_TUESDAY), strict=True))}
    tagged = {
        **page,
        **dict(zip(names, (0, True, "@@ -1 +1 @@\n-Tagged\n+Tagged anew\n"), strict=True)),
    }
    expected = [
        change("/story", 0, 1, markup),
        change("/story", 1, 2, story),
        change("/going", 0, 2, unknown, statuses="200 404"),
        change("/going", 2, 3, unknown, statuses="404 200"),
        change("/tagged", 0, 3, tagged),
        change("/twin", 0, 3, story),
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)

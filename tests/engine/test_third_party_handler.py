"""A download handler of another project fetches pages; robots.txt, delays and the guard hold."""

from __future__ import annotations

import json
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from fastwarc.warc import ArchiveIterator

from tests.mockweb import MockWeb
from tests.support.crawling import frontier_view
from tests.support.crawls import anchors, crawl_of, page

if TYPE_CHECKING:
    from pathlib import Path

HANDLER = "tests.support.threaded_handler.ThreadedHandler"
NAMES = ("/a", "/b", "/busy")
LATENCY, REST = 0.06, 1
SITE = [
    page("/robots.txt", "User-agent: *\nDisallow: /secret", latency=LATENCY),
    page("/", anchors(*NAMES, "/secret"), latency=LATENCY),
    page("/busy", "busy", status=503, retry_after=REST, first=1, latency=LATENCY),
    page("^/", "fine", latency=LATENCY),
]


@pytest.mark.slow
def test_a_third_party_handler_is_as_polite(tmp_path: Path) -> None:
    policies = tmp_path / "policies.toml"
    sheet = 'name = "own"\nmatch = ["127.0.0.1"]\nuser_agent_suffix = "(project 7)"'
    policies.write_text(f"[[sheet]]\n{sheet}\n")
    with MockWeb(spec=SITE) as web:
        # The handler does not know KROWL_RESOLVE.
        crawl = crawl_of(
            web,
            tmp_path,
            [web.url("127.0.0.1")],
            settings={
                "DOWNLOAD_HANDLERS": json.dumps({"http": HANDLER}),
                "KROWL_DELAY_FACTOR": 2,
                "KROWL_POLICIES": policies,
            },
        ).run()
        log = web.log()
    assert [entry.path for entry in log[:2]] == ["/robots.txt", "/"]
    assert sorted(entry.path for entry in log[2:]) == sorted([*NAMES, "/busy"])
    (agent,) = {entry.ua for entry in log}
    assert agent.endswith(" (project 7)")
    assert crawl.log.count(f"http pages are fetched by {HANDLER} and are not archived") == 1
    # One request at a time, each after its delay, which the latency lengthens.
    assert min(b.start - a.end for a, b in pairwise(log[2:])) > LATENCY
    assert next(b.start - a.end for a, b in pairwise(log) if a.status == 503) >= REST
    assert sorted(item["url"].rpartition("/")[2] for item in crawl.items) == ["", "a", "b", "busy"]
    view = frontier_view(crawl.jobdir)
    assert view["queued"] == 0
    assert view["dropped"].get("robots") == 1
    archived = [
        record.headers["WARC-Target-URI"].rpartition("/")[2]
        for path in (crawl.jobdir / "warc").glob("*.warc.gz")
        for record in ArchiveIterator(BytesIO(path.read_bytes()))
        if record.headers["WARC-Type"] == "response"
    ]
    assert archived == ["robots.txt"]


def test_a_third_party_handler_reaches_no_private_address(tmp_path: Path) -> None:
    with MockWeb(spec=SITE) as web:
        crawl = crawl_of(
            web,
            tmp_path,
            [web.url("127.0.0.1")],
            settings={
                "DOWNLOAD_HANDLERS": json.dumps({"http": HANDLER}),
                "KROWL_ALLOW_ADDRESSES": "",
                "ROBOTSTXT_OBEY": False,
                "RETRY_TIMES": 0,
            },
        ).run(code=4)
        assert web.log() == []
    assert "not public" in crawl.log

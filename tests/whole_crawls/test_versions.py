"""A corpus takes what a crawl fetches again: changed pages as versions, and others once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.corpus.test_corpus import run, texts
from tests.corpus.warcs import prose
from tests.support.crawling import write_seeds
from tests.support.crawls import anchors
from tests.support.rawweb import HTML, NOT_FOUND, Raw, answer
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedRawWeb

if TYPE_CHECKING:
    from pathlib import Path

HOST = "a.test"
PATHS = ("/going", "/nonce", "/same", "/story", "/tagged")


def html(seed: int, more: str = "") -> bytes:
    return f"<title>Page</title><main><p>{prose(seed)} {more}</main>".encode()


def served(body: bytes) -> Raw:
    return Raw(answer(HTML, body=body))


def tagged(body: bytes, tag: bytes) -> Raw:
    not_modified = answer(status=b"HTTP/1.1 304 Not Modified")
    others = {b'If-None-Match: "%s"' % tag: not_modified}
    return Raw(answer(HTML, b'ETag: "%s"' % tag, body=body), others=others)


def shown(records: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    """Return path, last word of the text, and whether there is a previous version, of each."""
    return sorted(
        (f"/{each['url'].rpartition('/')[2]}", each["text"].split()[-1], bool(each["previous"]))
        for each in records
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_changed_pages_are_new_versions(tmp_path: Path) -> None:
    """Each pass fetches all pages again, and each corpus after it has only what is new."""
    begun = {
        "/": served(anchors(*PATHS).encode()),
        "/going": served(html(1, "Going")),
        "/nonce": served(html(2, "Nonce at 12:01<!-- 1 -->")),
        "/same": served(html(3, "Same")),
        "/story": served(html(4, "Monday")),
        "/tagged": tagged(html(5, "Tagged"), b"1"),
    }
    first = [("/going", "Going"), ("/nonce", "12:01"), ("/same", "Same"), ("/story", "Monday")]
    days: list[tuple[dict[str, Raw], list[tuple[str, str, bool]]]] = [
        ({}, [(*page, False) for page in [*first, ("/tagged", "Tagged")]]),
        (
            {
                "/story": served(html(4, "Tuesday")),
                "/nonce": served(html(2, "Nonce at 12:02<!-- 2 -->")),
            },
            [("/story", "Tuesday", True)],
        ),
        ({"/going": NOT_FOUND}, []),
        (
            {"/tagged": tagged(html(6, "Anew"), b"2"), "/story": served(html(4, "Monday"))},
            [("/tagged", "Anew", True)],
        ),
    ]
    answers, out, known = {**begun}, tmp_path / "corpus", 0
    options = ("--processes", "1")
    with SimulatedRawWeb(answers) as web:
        seeds = write_seeds(tmp_path / "seeds.txt", [web.url(HOST, "/")])
        for changed, expected in days:
            answers.update(changed)
            crawl = SimulatedCrawl(
                tmp_path / "job",
                arguments={"seeds": seeds},
                settings={"KROWL_RECRAWL": "once", "RETRY_TIMES": 0},
            ).run()
            run(crawl.jobdir, out, "--follow", *options)
            records = [each for shard in texts(out).values() for each in shard]
            records.sort(key=lambda each: each["date"])
            assert shown(records[known:]) == expected
            known = len(records)
    ids = {each["record_id"]: each for each in records}
    later = [each for each in records if each["previous"]]
    assert all(ids[each["previous"]]["url"] == each["url"] for each in later)

    run(crawl.jobdir, tmp_path / "last", "--versions", "last", *options)
    records = [each for shard in texts(tmp_path / "last").values() for each in shard]
    assert shown(records) == [
        *((*page, False) for page in first),
        ("/tagged", "Anew", False),
    ]

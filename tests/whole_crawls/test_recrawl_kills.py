"""Pages that are fetched again, after kills: none is lost, and what is known of them is true."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from contextlib import ExitStack
from email.utils import formatdate
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from krowlspider.archive.tools.check import check_folder
from krowlspider.frontier.pages.rows import rows_in
from krowlspider.frontier.store.schema import hints_key
from krowlspider.frontier.store.store import LevelStore
from krowlspider.recrawl.hints import HintSource, Precisions
from krowlspider.recrawl.text import text_digest
from krowlspider.urls.canonical import host_of
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.support.crawling import Crawl, write_seeds
from tests.support.crawls import anchors, crawl_of, pages
from tests.support.moved_clocks import FILE, MOVED, MovedClocks
from tests.support.rawweb import HTML, Raw, RawWeb, answer
from tests.whole_crawls.test_recrawl import rows_of, tagged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from krowlspider.frontier.pages.row import PageRow

# A kill and a start take three seconds: 200 of them are for those who change the rows.
KILLS = int(os.environ.get("KILLS", "0"))
ONCE, SCHEDULED = KILLS or 7, KILLS or 15


def refetched_on_disk(jobdir: Path, scratch: Path) -> int:
    """Return how many answers to pages that were asked again a dead crawl has on its disk."""
    copy = shutil.copytree(jobdir, scratch / "copy", ignore=shutil.ignore_patterns("warc"))
    try:
        return sum(row["fetches"] - 1 for row in rows_of(copy))
    finally:
        shutil.rmtree(copy)


def recrawled_with_kills(folder: Path, graph: Graph, kills: int, chance: random.Random) -> None:
    """Crawl a web, then ask all again with so many kills; check what was asked."""
    quick = {"KROWL_COMMIT_INTERVAL": 0.1, "KROWL_DELAY_MIN": 0.05}
    # Few pages are asked between two looks at the web.
    settings = {**quick, "KROWL_RECRAWL": "once", "KROWL_DELAY_MIN": 1.0}
    with MockWeb(graph=graph) as web:
        crawl_of(web, folder, settings=quick, feed=False).run()
        first = Counter(entry.url for entry in pages(web.log()))
        before = len(web.log())
        uncommitted = 0
        for _ in range(kills):
            crawl = crawl_of(web, folder, settings=settings, feed=False).start()
            goal = len(web.log()) + chance.randrange(1, 10)
            crawl.wait_until(lambda goal=goal: len(web.log()) >= goal)  # type: ignore[misc]
            crawl.kill()
            asked_again = len(pages(web.log()[before:]))
            committed = refetched_on_disk(crawl.jobdir, folder)
            uncommitted = max(uncommitted, asked_again - committed)
        last = crawl_of(web, folder, settings=settings, feed=False).run()
        again = Counter(entry.url for entry in pages(web.log()[before:]))
        assert violations(web.log(), min_delay=0.05) == []
    # What a dead start had asked and not committed is all that is asked twice.
    assert again.keys() == first.keys()
    assert again.total() - len(again) <= uncommitted
    found = rows_of(last.jobdir)
    assert len(found) == len(first)
    assert {row["fetches"] for row in found} == {2}
    assert check_folder(last.jobdir / "warc").problems == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_page_is_lost_or_asked_twice_after_many_kills(tmp_path: Path):
    features = DEFAULT_FEATURES - {"busy", "crawl_delay"}
    graph = Graph(hosts=20, pages=20 + ONCE * 7 // 5, seed=6, features=features)
    recrawled_with_kills(tmp_path, graph, ONCE, random.Random(4))


# --- by the schedule, with what a site says ---

HOUR = 3600.0
# Hours over which the kills are spread, and the hour from which some pages are gone.
HOURS, GONE = 72, 24
# Seconds by which the clocks move after two of three kills: less than pages wait, so that hints
# come before their time.
SHORT = HOUR / 3
XML = b"Content-Type: text/xml"
URLSET_URL = "<url><loc>{url}</loc><lastmod>{date}</lastmod></url>"
RSS_ITEM = "<item><link>{url}</link><pubDate>{date}</pubDate></item>"
# Seconds after which a start has asked all that is due.
IDLE = 12.0
# What the pages of the sites are. Pages of "told" are in a sitemap, those of "news" in a feed.
# Where ordinary pages change too, a text for errors may have no majority.
LIVELY = {"told": 6, "news": 6, "still": 4, "tagged": 4}
SITES = {"a.test": LIVELY, "b.test": LIVELY, "c.test": {"soft": 12}}


class Site(dict[str, Raw]):
    """A site whose pages change once in some hours, each with a nonce that is new each time.

    From the hour GONE on, those of "soft" are the site's page for errors, with status 200.
    ``served`` has the digests of the texts of each page as they were sent, in this order.
    """

    def __init__(self, kinds: dict[str, int], clock: Callable[[], float]) -> None:
        super().__init__({"/robots.txt": Raw(answer(b"Content-Type: text/plain"))})
        self.root = ""
        self.served: dict[str, list[bytes]] = {}
        self._clock, self._begun = clock, clock()
        self._places = {
            f"/{kind}{at}": (kind, at) for kind, count in kinds.items() for at in range(count)
        }

    def changed(self, path: str) -> float:
        """Return when a page has changed last: each at times of its own."""
        kind, at = self._places[path]
        every = 1e9 if kind in {"still", "soft"} else (3 + at) * HOUR
        # No two pages have the same date: that would be the date of a build.
        return self._begun + at + (self._clock() - self._begun - at) // every * every

    def get(self, path: str, default: Any = None) -> Any:
        if path == "/":
            feed = b'<link rel="alternate" type="application/rss+xml" href="/feed">'
            return self._page(path, feed + anchors(*self._places).encode() + b"Start")
        if path in ("/sitemap.xml", "/feed"):
            return Raw(answer(XML, body=self._listed(path).encode()))
        if path not in self._places:
            return super().get(path, default)
        kind, _ = self._places[path]
        if kind == "soft" and self._clock() >= self._begun + GONE * HOUR:
            return self._page(path, b"There is no such page")
        version = b"%b version %d" % (path.encode(), self.changed(path) - self._begun)
        # Numbers are no text.
        text = version.translate(bytes.maketrans(b"0123456789", b"abcdefghij"))
        return self._page(path, text, b'"%b"' % text if kind == "tagged" else b"")

    def _page(self, path: str, text: bytes, tag: bytes = b"") -> Raw:
        self.served.setdefault(path, []).append(text_digest(text, "text/html"))
        if tag:
            return tagged(text, tag)
        nonce = b"<script nonce=%d></script>" % time.monotonic_ns()
        return Raw(answer(HTML, body=nonce + text))

    def _listed(self, path: str) -> str:
        is_feed = path == "/feed"
        entry = RSS_ITEM if is_feed else URLSET_URL
        entries = "".join(
            entry.format(url=self.root + place, date=formatdate(self.changed(place)))
            for place, (kind, _) in self._places.items()
            if kind == ("news" if is_feed else "told")
        )
        # No two are alike.
        entries += f"<!-- {time.monotonic_ns()} -->"
        return (
            f"<rss><channel>{entries}</channel></rss>" if is_feed else f"<urlset>{entries}</urlset>"
        )


class Death:
    """What a crawl that is dead has on its disk: the rows by URL, and the worth of hints by host"""

    def __init__(self, jobdir: Path, scratch: Path, hosts: list[str]) -> None:
        copy = shutil.copytree(jobdir / "frontier", scratch / "copy")
        store = LevelStore(copy)
        try:
            self.rows = {row.url: row for row in rows_in(store) if row is not None}
            self.hints = [Precisions.read(store.get(hints_key(host)) or b"") for host in hosts]
        finally:
            store.close()
            shutil.rmtree(copy)


def lost(before: dict[str, PageRow], after: dict[str, PageRow], now: float) -> list[str]:
    """Return the pages of which something is lost from one death to the next: the row, a fetch, the
    next time, or the seed."""
    found = [f"{url} has no row" for url in before.keys() - after.keys()]
    for url, row in after.items():
        was = before.get(url, row)
        if not (row.is_planned or row.absence.is_dropped(now)):
            found.append(f"{url} has no plan")
        if row.fetches < was.fetches or row.changes < was.changes:
            found.append(f"{url} has forgotten a fetch")
        # Only a hint has a page queued before its time.
        is_kept = row.due <= was.due and (row.due or row.tried)
        if row.fetches == was.fetches and was.due > now and not is_kept:
            found.append(f"{url} was due in {was.due - now:.0f} s, is in {row.due - now:.0f} s")
        if row.seed != was.seed or not (row.seed or url.endswith("/")):
            found.append(f"{url} has lost its seed")
    return found


def scheduled_with_kills(folder: Path, kills: int, chance: random.Random) -> None:
    """Crawl sites by the schedule for HOURS, with so many kills; check what is known of them."""
    clocks = MovedClocks(folder / "clocks")
    sites = [Site(kinds, clocks.wall) for kinds in SITES.values()]
    settings = {
        "KROWL_RECRAWL": "continuous",
        "EXTENSIONS": MOVED,
        "KROWL_SITEMAPS": 1,
        "KROWL_COMMIT_INTERVAL": 0.1,
        "KROWL_DELAY_MIN": 0.3,
        "KROWL_WARC_MAX_SIZE": 100_000,
    }
    with ExitStack() as stack:
        webs = [stack.enter_context(RawWeb(site)) for site in sites]
        for name, site, web in zip(SITES, sites, webs, strict=True):
            site.root = web.url(name, "")
        roots = [f"{site.root}/" for site in sites]
        seeds = write_seeds(folder / "seeds.txt", roots)
        hosts = [host_of(root) for root in roots]

        def asked() -> int:
            return sum(len(web.requests) for web in webs)

        def start() -> Crawl:
            arguments = {"seeds": seeds}
            return Crawl(folder / "job", arguments=arguments, settings=settings, feed=False).start()

        # Fewer starts ask for more pages each, so that all come back often enough.
        most = max(15, 1000 // kills)
        before: dict[str, PageRow] = {}
        for number in range(kills):
            crawl = start()
            goal, end = asked() + chance.randrange(1, most), time.monotonic() + IDLE / 2
            crawl.wait_until(lambda: asked() >= goal or time.monotonic() >= end)  # noqa: B023
            crawl.kill()
            after = Death(crawl.jobdir, folder, hosts).rows
            assert lost(before, after, clocks.wall()) == []
            before = after
            clocks.move(SHORT if number % 3 < 2 else 3 * HOURS * HOUR / kills - 2 * SHORT)
        last = start()
        count, quiet = 0, time.monotonic()
        while asked() > count or time.monotonic() < quiet + IDLE:
            count, quiet = asked(), quiet if asked() == count else time.monotonic()
            last.wait_until(lambda: time.monotonic() >= quiet + 1)  # noqa: B023
        last.interrupt()
        told = {
            f"{site.root}{path}": (site.served[path], count)
            for site, web in zip(sites, webs, strict=True)
            for path, count in Counter(web.asked).items()
            if path in site.served
        }
    found = Death(last.jobdir, folder, hosts)
    listed = {f"{site.root}{path}" for site in sites for path in ("/sitemap.xml", "/feed")}
    rows = {url: row for url, row in found.rows.items() if url not in listed}
    assert lost(before, found.rows, clocks.wall()) == []
    assert rows.keys() == told.keys()
    # Hints were compared with what came of them. In few starts, none may come in time.
    scored = {source for each in found.hints for source in HintSource if any(each[source])}
    assert kills < 100 or scored == {HintSource.LASTMOD, HintSource.FEED}
    # All that was due has been asked.
    assert [url for url, row in found.rows.items() if not row.due] == []
    assert untrue(rows, told) == []
    gone = {url for url, row in rows.items() if row.absence.is_tombstone}
    assert gone == {url for url in rows if urlsplit(url).path.startswith("/soft")}
    assert {row["url"]: row["seed"] for row in rows_of(last.jobdir)} == {
        url: f"{url[: url.rindex('/')]}/" for url in rows
    }
    assert check_folder(last.jobdir / "warc").problems == []


def untrue(rows: dict[str, PageRow], told: dict[str, tuple[list[bytes], int]]) -> list[str]:
    """Return the rows that do not agree with the texts that were served and the number of requests.
    An answer may be lost with a process, and a change with it."""
    found = []
    for url, row in rows.items():
        texts, asked = told[url]
        changes, unread = sum(a != b for a, b in pairwise(texts)), asked - row.fetches
        if unread < 0 or not changes - unread <= row.changes <= changes:
            found.append(f"{url}: {row.fetches} of {asked}, {row.changes} changes of {changes}")
        if row.text != texts[-1]:
            found.append(f"{url} has an old text")
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_schedule_and_its_hints_survive_many_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FILE, str(tmp_path / "clocks"))
    scheduled_with_kills(tmp_path, SCHEDULED, random.Random(5))

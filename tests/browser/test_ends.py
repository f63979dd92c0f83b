"""How pages in the browser end: cut, too large, with Chromium killed, with the crawl killed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.browser.chromium import DELAY, browsing, in_browser
from tests.mockweb import MockWeb
from tests.support.archived import valid_records
from tests.support.crawling import Crawl, frontier_view, write_seeds
from tests.support.crawls import page

if TYPE_CHECKING:
    from tests.mockweb.log import Entry

pytestmark = [
    *(pytest.mark.slow, pytest.mark.timeout(600)),
    pytest.mark.usefixtures("with_library"),
]

# Asks for something all the time, so that it is never loaded.
POLLING = """<title>polling</title><p id=count></p><script>
(async () => {
    for (let number = 0; ; number++) {
        await fetch("/poll?" + number);
        document.getElementById("count").textContent = "polled";
    }
})();
</script>"""
HUGE = "<a href=/linked>x</a><script>document.body.append('x'.repeat(300000))</script>"
# Pages whose load never comes, that end elsewhere, or that never end.
HOSTILE = {
    "/dripping": "<p>read</p><img src=//files.test:{port}/drip.png>",
    "/to-error": "<a href=/kept>x</a><script>location = '/error'</script>",
    "/to-text": "<a href=/kept>x</a><script>location = '/plain'</script>",
    "/for-ever": "<a href=/kept>x</a><script>while (true);</script>",
}
PARTS = "<a href=/more>x</a><img src=//files.test:{port}/a.png><img src=/b.png>"
SITE = [
    page("/robots.txt", "Sitemap: http://files.test:{port}/map.xml", host="^files"),
    page("/robots.txt", ""),
    page("/polling", POLLING),
    page("/huge", HUGE),
    page("/parts", PARTS),
    page("/text", "not opened", headers={"Content-Type": "text/plain"}),
    page("/gone", "gone", status=404),
    page("^/", "fine"),
]
PICTURES = "".join(f"<img src=/{number}.png>" for number in range(12))


def broad(
    web: MockWeb,
    folder: Path,
    paths: list[str],
    arguments: dict[str, object] | None = None,
    **settings: Any,
) -> Crawl:
    """Return a broad crawl that opens all pages."""
    seeds = write_seeds(folder / "seeds.txt", [web.url("a.test", path) for path in paths])
    return Crawl(
        folder / "job",
        arguments={"seeds": seeds, **(arguments or {})},
        settings=in_browser(KROWL_BROWSER_URLS=".", **settings),
        cold=True,
    )


def paths_of(log: list[Entry]) -> Counter[str]:
    return Counter(entry.path.partition("?")[0] for entry in log)


def chromiums(crawl: Crawl) -> list[int]:
    """Return the main processes of Chromium that a crawl has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes()
            if b"errors-spki-list" in words and b"--type=" not in words:
                found.append(int(folder.name))
    return [pid for pid in found if crawl.process.pid in ancestors(pid)]


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.append(pid)
    return found


def test_a_broad_crawl_opens_the_pages_that_are_named(tmp_path: Path) -> None:
    """One that is never loaded is cut, one that grows too large stays as it was fetched. What a
    page needs is fetched once, its site alone, and names no sitemaps."""
    with MockWeb(spec=SITE) as web:
        crawl = broad(
            web,
            tmp_path,
            ["/polling", "/huge", "/parts", "/text", "/gone"],
            KROWL_BROWSER_TIMEOUT=4,
            KROWL_BROWSER_PAGES=1,
            KROWL_REQUISITES="site",
            KROWL_SITEMAPS=1,
            DOWNLOAD_MAXSIZE=200_000,
        ).run()
        log = web.log()
    own = paths_of([entry for entry in log if entry.host.startswith("a.")])
    # /sitemap.xml is asked for where robots.txt names none.
    polled, _ = own.pop("/poll"), own.pop("/sitemap.xml")
    wanted = ["/robots.txt", "/polling", "/huge", "/linked", "/parts", "/b.png", "/text", "/gone"]
    assert own == Counter([*wanted, "/more", "/favicon.ico"])
    assert polled > 4
    assert min(b.start - a.end for a, b in pairwise(log)) > DELAY - 0.01
    assert {entry.host for entry in log} == {log[0].host}
    # One page is open and one waits: no third one is fetched before the first is cut.
    started = {entry.path: entry.start for entry in log}
    first, second, third = sorted(started[path] for path in ("/polling", "/huge", "/parts"))
    assert (started["/polling"], started["/huge"]) == (first, second)
    assert third - first > 4
    stats = crawl.stats
    assert stats["krowl/browser/cut_count"] == 1
    assert stats["krowl/browser/page_failed_count/size"] == 1
    assert stats["krowl/browser/page_count"] == 4
    assert stats["playwright/context_count/max_concurrent"] == 1
    assert stats["krowl/frontier/dropped_count/requisite_site"] == 1
    records = valid_records(tmp_path / "job" / "warc")
    doms = {r.url.rpartition("/")[2]: r.block for r in records if "krowlspider:dom" in _uri(r)}
    assert sorted(doms) == ["linked", "more", "parts", "polling"]
    assert b"polled</p>" in doms["polling"]


def test_a_hostile_page_is_read_or_stays_as_it_was_fetched(tmp_path: Path) -> None:
    """One that is cut before its load is read. One that ends at what is no page, or does not let
    the browser read it, keeps its links; a line names it, without a traceback."""
    site = [
        page("/robots.txt", ""),
        *(page(path, text) for path, text in HOSTILE.items()),
        {"path": "/drip.png", "body": "x" * 100, "drip": 1.0},
        page("/error", "error", status=500),
        page("/plain", "plain", headers={"Content-Type": "text/plain"}),
        page("^/", "fine"),
    ]
    with MockWeb(spec=site) as web:
        crawl = broad(web, tmp_path, [*HOSTILE], KROWL_BROWSER_TIMEOUT=8).run()
        log = paths_of(web.log())
    assert {path for path in log if path in HOSTILE or path == "/kept"} == {*HOSTILE, "/kept"}
    assert all(log[path] == 1 for path in HOSTILE)
    assert {urlsplit(item["url"]).path for item in crawl.items} == {*HOSTILE, "/kept"}
    stats = crawl.stats
    assert stats["krowl/browser/cut_count"] >= 1
    assert stats["krowl/browser/page_count"] == 2
    assert stats["krowl/browser/page_failed_count/answer"] == 2
    assert stats["krowl/browser/page_failed_count/error"] == 1
    for path in HOSTILE.keys() - {"/dripping"}:
        assert crawl.log.count(f"{path}> stays as it was fetched: ") == 1
    assert "/error, status 500, text/html" in crawl.log
    assert crawl.log.count("the browser cannot read it in time") == 1
    assert "Traceback" not in crawl.log


@pytest.mark.parametrize("most", [0, 1])
def test_files_of_a_page_are_no_pages_wherever_they_are(tmp_path: Path, most: int) -> None:
    """They come after the last page that may be fetched, and their hosts have no sitemaps read."""
    with MockWeb(spec=SITE) as web:
        crawl = broad(
            web, tmp_path, ["/parts", "/text"], {"max_pages": most}, KROWL_SITEMAPS=1
        ).run()
        log = web.log()
    files = paths_of([entry for entry in log if entry.host.startswith("files.")])
    assert files == {"/robots.txt": 1, "/a.png": 1}
    own = paths_of([entry for entry in log if entry.host.startswith("a.")])
    own.pop("/sitemap.xml", None)
    # The other seed, and the linked page, only if more than one page may be fetched.
    others = {} if most else {"/text": 1, "/more": 1}
    assert own == {"/robots.txt": 1, "/parts": 1, "/b.png": 1, **others}
    assert crawl.stats["krowl/frontier/done_count"] == 1 + len(others)
    assert crawl.stats["krowl/frontier/fetched_count/subrequest"] == 2


def _uri(record: Any) -> str:
    return str(record.url) if "WARC-Target-URI" in record else ""


def test_a_page_is_opened_again_after_chromium_was_killed(tmp_path: Path) -> None:
    with MockWeb(spec=[page("/", PICTURES), page("^/", "fine")]) as web:
        crawl = browsing(tmp_path, web.url("a.test"), {}).start()
        crawl.wait_until(lambda: len(web.log()) > 5)
        (pid,) = chromiums(crawl)
        os.kill(pid, signal.SIGKILL)
        crawl.wait()
        log = paths_of(web.log())
    (item,) = crawl.items
    assert item["flags"] == ["playwright"]
    assert set(log) == {"/robots.txt", "/", *(f"/{number}.png" for number in range(12))}
    # The page itself is not fetched again.
    assert log["/"] == 1
    assert crawl.stats["krowl/browser/page_count"] == 1


def test_a_page_stays_as_it_was_fetched_if_its_methods_fail(tmp_path: Path) -> None:
    with MockWeb(spec=[page("/", "<a class=more href=/more>"), page("^/", "fine")]) as web:
        # A folder that is not there.
        picture = str(tmp_path / "missing" / "\0")
        crawl = browsing(tmp_path, web.url("a.test"), {}, picture="missing/" * 400 + picture[-2:-1])
        crawl.run()
    flags = {item["url"].rpartition("/")[2]: item["flags"] for item in crawl.items}
    assert flags == {"": [], "more": ["playwright"]}
    assert crawl.stats["krowl/browser/page_failed_count/error"] == 1
    assert crawl.log.count("stays as it was fetched: the browser failed: ") == 1


def test_without_its_proxy_the_browser_gets_nothing(tmp_path: Path) -> None:
    with MockWeb(spec=[page("^/", "fine")]) as web:
        crawl = browsing(tmp_path, web.url("a.test"), {}, stays="1", cuts="1").run()
        assert paths_of(web.log()) == {"/robots.txt": 1, "/": 1}
    (item,) = crawl.items
    assert (item["flags"], item["late"]) == (["playwright"], None)


def test_a_crawl_without_chromium_stops_and_keeps_its_pages(tmp_path: Path) -> None:
    with MockWeb(spec=[page("^/", "fine")]) as web:
        settings = {"PLAYWRIGHT_LAUNCH_OPTIONS": '{"executable_path": "/missing/chromium"}'}
        crawl = browsing(tmp_path, web.url("a.test"), settings).start()
        crawl.process.wait(60)
    assert "KROWL_BROWSER: Chromium cannot be started: " in crawl.log
    assert "/missing/chromium" in crawl.log
    assert crawl.items == []
    assert frontier_view(crawl.jobdir)["queued"] == 1


@pytest.mark.parametrize("end", ["kill", "interrupt"])
def test_a_page_that_was_open_is_fetched_again(tmp_path: Path, end: str) -> None:
    """After SIGKILL as after Ctrl-C, and no Chromium is left behind."""
    with MockWeb(spec=[page("/", PICTURES), page("^/", "fine")]) as web:
        crawl = browsing(tmp_path, web.url("a.test"), {"KROWL_COMMIT_INTERVAL": 0.2}).start()
        crawl.wait_until(lambda: len(web.log()) > 5)
        (pid,) = chromiums(crawl)
        if end == "kill":
            crawl.kill()
        else:
            crawl.interrupt()
            assert crawl.items == []
        first = paths_of(web.log())
        assert sum(first.values()) < 14
        deadline = time.monotonic() + 20
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not Path(f"/proc/{pid}").exists()
        assert frontier_view(crawl.jobdir)["queued"] >= 1
        again = browsing(tmp_path, web.url("a.test"), {}).run()
        log = paths_of(web.log())
    assert log["/"] == 2
    assert set(log) == {"/robots.txt", "/", *(f"/{number}.png" for number in range(12))}
    assert [item["flags"] for item in again.items] == [["playwright"]]
    assert frontier_view(crawl.jobdir)["queued"] == 0
    assert again.stats["krowl/browser/page_count"] == 1

"""With KROWL_RECRAWL, a start asks each page again that an earlier one fetched, and ends."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections import Counter
from contextlib import closing
from itertools import pairwise
from time import thread_time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.archive.tools.check import check_folder
from krowlspider.fetch import connection
from krowlspider.frontier.store.schema import KEY_SIZE, PAGES, host_of_page
from krowlspider.frontier.store.store import LevelStore, put
from krowlspider.recrawl import text, validators
from tests.mockweb.audit import violations
from tests.mockweb.graph import Graph
from tests.support.archived import Record, sha1, valid_records
from tests.support.crawling import scrapy, write_seeds
from tests.support.crawls import anchors, pages
from tests.support.rawweb import HTML, NOT_FOUND, Raw, answer
from tests.support.simulated_crawl import SimulatedCrawl, interrupted_when
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedRawWeb, SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.crawling import Crawl

HOST = "a.test"
TAG, DATE = b'"\xe4-1"', b"Tue, 14 Nov 2023 22:13:20 GMT"
NOT_MODIFIED = b"HTTP/1.1 304 Not Modified"
IF_TAG, IF_DATE = b"\r\nIf-None-Match: ", b"\r\nIf-Modified-Since: "
ONCE = {"KROWL_RECRAWL": "once", "RETRY_TIMES": 0}


def tagged(body: bytes, tag: bytes = TAG, *more: bytes) -> Raw:
    """Return a page that answers 304 to its tag."""
    unchanged = answer(b"ETag: " + tag, b"Last-Modified: " + DATE, status=NOT_MODIFIED)
    return Raw(answer(HTML, b"ETag: " + tag, *more, body=body), others={IF_TAG + tag: unchanged})


def dated(body: bytes) -> Raw:
    unchanged = answer(status=NOT_MODIFIED)
    return Raw(
        answer(HTML, b"Last-Modified: " + DATE, body=body), others={IF_DATE + DATE: unchanged}
    )


def links(*paths: str) -> bytes:
    return anchors(*paths).encode()


def crawl(web: SimulatedRawWeb, folder: Path, *, max_pages: int = 0, **settings: Any) -> Crawl:
    """Crawl from the root, in the same folder each time."""
    seeds = write_seeds(folder / "seeds.txt", [web.url(HOST, "/")])
    arguments = {"seeds": seeds, "max_pages": max_pages}
    return SimulatedCrawl(folder / "job", arguments=arguments, settings={**ONCE, **settings}).run()


def asked(web: SimulatedRawWeb) -> dict[str, bytes]:
    """Return the requests for pages since the last call, each of which was sent once."""
    found = [(path, request) for path, request in web.requests if path != "/robots.txt"]
    web.requests.clear()
    assert len(dict(found)) == len(found)
    return dict(found)


def rows(jobdir: Path) -> dict[str, dict[str, Any]]:
    return {row["url"].partition(HOST)[2].partition("/")[2]: row for row in rows_of(jobdir)}


def rows_of(jobdir: Path) -> list[dict[str, Any]]:
    done = scrapy("frontier", jobdir, "--pages")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(autouse=True)
def no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """No page is one of the sample that is asked in full. It goes by the URL, and ports differ."""
    monkeypatch.setattr(validators, "IN_FULL_EVERY", 1 << 62)


def test_each_row_names_the_seed_that_its_page_came_from(tmp_path: Path):
    """Over links, a redirect and a sitemap, and when a page is asked again."""
    moved = answer(b"Location: /moved", status=b"HTTP/1.1 301 Moved Permanently")
    web_answers = {
        "/": Raw(answer(HTML, body=links("/one"))),
        "/one": Raw(answer(HTML, body=links("/two", "/other"))),
        "/two": Raw(answer(HTML, body=b"two")),
        "/other": Raw(moved),
        "/moved": Raw(answer(HTML, body=links("/four"))),
        "/four": Raw(answer(HTML, body=b"four")),
        "/listed": Raw(answer(HTML, body=b"listed")),
    }
    with SimulatedRawWeb(web_answers) as web:
        listed = f"<urlset><url><loc>{web.url(HOST, '/listed')}</loc></url></urlset>".encode()
        web_answers["/sitemap.xml"] = Raw(answer(b"Content-Type: text/xml", body=listed))
        seeds = write_seeds(tmp_path / "seeds.txt", [web.url(HOST, "/"), web.url(HOST, "/other")])
        settings = {**ONCE, "KROWL_SITEMAPS": 1}
        simulated: Any = {"arguments": {"seeds": seeds}, "settings": settings}
        SimulatedCrawl(tmp_path / "job", **simulated).run()
        # A page that is asked again passes its seed on too.
        web_answers["/four"] = Raw(answer(HTML, body=links("/new")))
        web_answers["/new"] = Raw(answer(HTML, body=b"new"))
        done = SimulatedCrawl(tmp_path / "job", **simulated).run()
        assert {path: row["seed"] for path, row in rows(done.jobdir).items()} == {
            **dict.fromkeys(("", "one", "two", "listed"), web.url(HOST, "/")),
            **dict.fromkeys(("other", "moved", "four", "new"), web.url(HOST, "/other")),
        }


@pytest.fixture
def answers() -> dict[str, Raw]:
    return {
        "/": tagged(links("/dated", "/plain", "/gone")),
        "/dated": dated(b"dated"),
        "/plain": Raw(answer(HTML, body=b"plain")),
        "/gone": tagged(b"gone", b'"g"'),
    }


def test_each_page_is_asked_again_with_its_validators(tmp_path: Path, answers: dict[str, Raw]):
    with SimulatedRawWeb(answers) as web:
        first = crawl(web, tmp_path, KROWL_RECRAWL="off")
        assert not any(IF_TAG in each or IF_DATE in each for each in asked(web).values())
        before = rows(first.jobdir)
        answers["/gone"] = Raw(answer(HTML, status=b"HTTP/1.1 404 Not Found", body=b"no"))
        answers["/"] = tagged(links("/dated", "/new"), b'"2"')
        answers["/new"] = Raw(answer(HTML, body=b"new"))
        second = crawl(web, tmp_path)
        requests = asked(web)
        assert requests.keys() == {"/", "/dated", "/plain", "/gone", "/new"}
        assert IF_TAG + TAG + b"\r\n" in requests["/"]
        assert IF_DATE + DATE + b"\r\n" in requests["/dated"]
        assert IF_TAG not in requests["/plain"]
        third = crawl(web, tmp_path)
        requests = asked(web)
        assert IF_TAG + b'"2"\r\n' in requests["/"]
        # The validators of a page that is gone say nothing of it.
        assert IF_TAG not in requests["/gone"]
    after = rows(third.jobdir)
    assert {path: row["fetches"] for path, row in after.items()} == {
        **dict.fromkeys(("", "dated", "plain", "gone"), 3),
        "new": 2,
    }
    assert {path: row["not_modified"] for path, row in after.items()} == {
        "": 1,
        "dated": 2,
        **dict.fromkeys(("plain", "gone", "new"), 0),
    }
    assert {path for path, row in after.items() if row["changes"]} == {"", "gone"}
    assert after["dated"]["warc_date"] == before["dated"]["warc_date"]
    assert after["dated"]["last_fetch"] > before["dated"]["last_fetch"]
    assert after["gone"]["status"] == 404
    for done, unmodified in ((second, 1), (third, 2)):
        assert done.stats["finish_reason"] == "finished"
        assert done.stats["krowl/frontier/fetched_count/not_modified"] == unmodified
        assert done.stats["krowl/frontier/done_count"] == 5 - unmodified
        # A page that has not changed makes no item.
        assert len(done.items) == 5 - unmodified


@pytest.mark.slow
def test_where_a_tenth_has_changed_most_bytes_are_saved(tmp_path: Path):
    """Pages of 20 kB with ETag and Last-Modified."""
    paths = [f"/{number}" for number in range(200)]

    def page(path: str, version: int) -> Raw:
        return tagged(f"{path} {version} ".encode() * 2000, b'"%d"' % version)

    web_answers = {"/": tagged(links(*paths)), **{path: page(path, 1) for path in paths}}
    with SimulatedRawWeb(web_answers) as web:

        def received() -> int:
            """Return the bytes of all answers since the last call, those to robots.txt too."""
            found = sum(
                len(web_answers.get(path, NOT_FOUND).to(request)) for path, request in web.requests
            )
            web.requests.clear()
            return found

        crawl(web, tmp_path, KROWL_RECRAWL="off")
        in_full = received()
        web_answers |= {path: page(path, 2) for path in paths[::10]}
        second = crawl(web, tmp_path)
        changed = [path for path, request in web.requests if IF_TAG + b'"1"' in request]
        assert len(changed) == len(paths)
        saved = 1 - received() / in_full
    assert second.stats["krowl/frontier/fetched_count/not_modified"] == 181
    assert second.stats["krowl/frontier/done_count"] == 20
    assert {path for path, row in rows(second.jobdir).items() if row["changes"]} == {
        path[1:] for path in paths[::10]
    }
    assert 0.85 < saved < 0.9


def test_a_date_that_is_not_before_its_answer_is_not_sent(tmp_path: Path):
    """The Date of the answer is of the same clock. The pages agree with any date they are asked."""
    later = b"Tue, 14 Nov 2023 22:13:21 GMT"
    web_pages = {"/": Raw(answer(HTML, body=links("/before", "/same", "/after")))}
    for path, sent_at in (("/before", later), ("/same", DATE), ("/after", DATE)):
        changed = later if path == "/after" else DATE
        dates = (b"Last-Modified: " + changed, b"Date: " + sent_at)
        web_pages[path] = Raw(
            answer(HTML, *dates, body=path.encode()), others={IF_DATE: answer(status=NOT_MODIFIED)}
        )
    with SimulatedRawWeb(web_pages) as web:
        first = crawl(web, tmp_path, KROWL_RECRAWL="off")
        asked(web)
        jobdir = crawl(web, tmp_path).jobdir
        requests = asked(web)
    assert {path for path, request in requests.items() if IF_DATE in request} == {"/before"}
    assert {path for path, row in rows(jobdir).items() if "last_modified" in row} == {"before"}
    assert first.stats["krowl/pages/validator_left_count/modified"] == 2


def test_a_304_is_a_revisit_of_the_record_that_it_confirms(tmp_path: Path):
    twin = {"/": tagged(links("/twin"), b'"a"'), "/twin": tagged(links("/twin"), b'"b"')}
    with SimulatedRawWeb(twin) as web:
        crawl(web, tmp_path, KROWL_RECRAWL="off")
        crawl(web, tmp_path)
        jobdir = crawl(web, tmp_path).jobdir
        url = web.url(HOST, "/")
        pages = [url, web.url(HOST, "/twin")]
    records = valid_records(jobdir / "warc")
    original = records.about(url).of_kind("response").only
    revisits = records.of_kind("revisit")
    unchanged = [record for record in revisits if record["WARC-Profile"].endswith("not-modified")]
    assert Counter(record.url for record in unchanged) == Counter(pages * 2)
    for record in unchanged:
        # The other page has the same body, which is stored once.
        assert refers_to(record) == (url, original["WARC-Date"])
        assert record["WARC-Payload-Digest"] == sha1(links("/twin"))
        assert record.block.startswith(NOT_MODIFIED)
    for page in pages:
        body = scrapy("warc", "cat", page, jobdir, "--payload").stdout
        assert body == links("/twin")
    assert scrapy("warc", "check", jobdir).returncode == 0


def refers_to(record: Record) -> tuple[str, str]:
    return record["WARC-Refers-To-Target-URI"], record["WARC-Refers-To-Date"]


def test_a_304_without_having_been_asked_is_no_revisit(tmp_path: Path):
    lying = {"/": Raw(answer(b'ETag: "a"', status=NOT_MODIFIED))}
    with SimulatedRawWeb(lying) as web:
        crawl(web, tmp_path, KROWL_RECRAWL="off")
        asked(web)
        jobdir = crawl(web, tmp_path).jobdir
        assert IF_TAG not in asked(web)["/"]
        url = web.url(HOST, "/")
    records = valid_records(jobdir / "warc").about(url)
    assert records.kinds == {"response": 2, "request": 2}
    assert rows(jobdir)[""]["not_modified"] == 0


@pytest.mark.parametrize(
    "reply",
    [
        answer(b'ETag: "other"', status=NOT_MODIFIED),
        answer(status=b"HTTP/1.1 412 Precondition Failed", body=b"no"),
    ],
)
def test_an_answer_of_no_use_has_the_page_asked_in_full(tmp_path: Path, reply: bytes):
    page = Raw(answer(HTML, b'ETag: "a"', body=b"page"), others={IF_TAG: reply})
    with SimulatedRawWeb({"/": page}) as web:
        crawl(web, tmp_path, KROWL_RECRAWL="off")
        jobdir = crawl(web, tmp_path).jobdir
        requests = [request for path, request in web.requests if path == "/"]
        assert [IF_TAG in request for request in requests] == [False, True, False]
    records = valid_records(jobdir / "warc")
    profiles = [record["WARC-Profile"] for record in records.of_kind("revisit")]
    assert not any(profile.endswith("not-modified") for profile in profiles)
    assert rows(jobdir)[""]["not_modified"] == 0
    assert rows(jobdir)[""]["fetches"] == 2


def test_the_body_of_a_304_is_no_answer_to_the_next_request(tmp_path: Path):
    """A 304 ends with its head (RFC 9112, section 6.3), whatever its length says."""
    forged = answer(HTML, body=b"forged")
    paths = ("/", "/one", "/two")
    unchanged = answer(b'ETag: "a"', status=NOT_MODIFIED, body=forged)
    page = Raw(answer(HTML, b'ETag: "a"', body=links(*paths)), others={IF_TAG: unchanged})
    with SimulatedRawWeb(dict.fromkeys(paths, page)) as web:
        crawl(web, tmp_path, KROWL_RECRAWL="off")
        jobdir = crawl(web, tmp_path).jobdir
    found = rows(jobdir).values()
    assert [(row["fetches"], row["not_modified"]) for row in found] == [(2, 1)] * 3
    assert {row["payload_digest"] for row in found} == {sha1(links(*paths))}
    revisits = valid_records(jobdir / "warc").of_kind("revisit")
    assert not any(b"forged" in record.block for record in revisits)


def test_a_304_with_a_malformed_tag_counts_as_one_without(tmp_path: Path):
    reply = answer(b"ETag: a", status=NOT_MODIFIED)
    page = Raw(answer(HTML, b'ETag: "a"', body=b"page"), others={IF_TAG: reply})
    with SimulatedRawWeb({"/": page}) as web:
        crawl(web, tmp_path, KROWL_RECRAWL="off")
        jobdir = crawl(web, tmp_path).jobdir
    row = rows(jobdir)[""]
    assert (row["not_modified"], row["etag"]) == (1, '"a"')


def test_a_304_counts_for_no_page_of_the_limit(tmp_path: Path, answers: dict[str, Raw]):
    answers["/"] = tagged(links("/dated", "/gone"))
    with SimulatedRawWeb(answers) as web:
        crawl(web, tmp_path, KROWL_RECRAWL="off")
        asked(web)
        answers["/gone"] = Raw(b"", closes=True)
        again = crawl(web, tmp_path, max_pages=1)
        assert "No page was fetched" not in again.log
        assert asked(web).keys() == {"/", "/dated", "/gone"}


def test_a_crawl_goes_on_past_a_damaged_row(tmp_path: Path, answers: dict[str, Raw]):
    """It is named, and a repair removes it."""
    with SimulatedRawWeb(answers) as web:
        jobdir = crawl(web, tmp_path).jobdir
        known = rows(jobdir).keys()
        with closing(LevelStore(jobdir / "frontier")) as store:
            ((key, row),) = (each for each in store.items(PAGES) if each[1].endswith(b"/plain"))
            put(store, key, row[:-2])
        asked(web)
        log = crawl(web, tmp_path).log
        again = {path.removeprefix("/") for path in asked(web)}
    assert again == known - {"plain"}
    named = f"Row of a page of {(host := host_of_page(key))} is damaged"
    named += f", and counts as missing: identity {key[-KEY_SIZE:].hex()}"
    said = scrapy("frontier", jobdir, "--pages").stderr.decode()
    assert named in log
    assert named in said
    assert "left out 1 row of pages that cannot be read" in said
    said = scrapy("frontier", jobdir, "--repair").stdout.decode()
    assert f"damaged rows of pages, which are removed: 1\n{'':>9}  {host}, identity" in said
    assert rows(jobdir).keys() == known - {"plain"}
    assert "cannot be read" not in scrapy("frontier", jobdir, "--pages").stderr.decode()


def test_without_the_setting_a_second_start_asks_nothing(tmp_path: Path, answers: dict[str, Raw]):
    with SimulatedRawWeb(answers) as web:
        for _ in range(2):
            crawl(web, tmp_path, KROWL_RECRAWL="off")
        assert len(asked(web)) == 4


def test_a_host_whose_tags_lie_is_asked_in_full(tmp_path: Path):
    """The server ignores the condition of the second start, which finds the lie."""
    answers = {"/": Raw(answer(HTML, b'ETag: "a"', body=b"1"))}
    with SimulatedRawWeb(answers) as web:
        crawl(web, tmp_path, KROWL_RECRAWL="off")
        for body in (b"2", b"3"):
            answers["/"] = Raw(answer(HTML, b'ETag: "a"', body=body))
            web.requests.clear()
            crawl(web, tmp_path)
        assert IF_TAG not in asked(web)["/"]


def test_a_host_that_says_304_for_changed_text_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its full answers have new tags, so only the sample shows that its 304s are wrong."""

    def in_full(identity: bytes, fetches: int) -> bool:
        return identity[-1] % 4 == fetches

    monkeypatch.setattr(validators, "in_full", in_full)
    paths = [f"/{number}" for number in range(40)]
    answers = {"/": Raw(answer(HTML, body=links(*paths)))}
    conditional = []
    with SimulatedRawWeb(answers) as web:
        for word in (b"one", b"two", b"three"):
            full = answer(HTML, b'ETag: "' + word + b'"', body=word)
            lying = Raw(full, others={IF_TAG: answer(status=NOT_MODIFIED)})
            answers |= dict.fromkeys(paths, lying)
            crawl(web, tmp_path)
            requests = asked(web)
            conditional.append({path for path in paths if IF_TAG in requests[path]})
    sample = {path for path in paths if in_full(path.encode(), 2)}
    # The second start begins with trust; the third sends conditions with the sample alone.
    assert conditional[1]
    assert conditional[2] == sample


def page_of(text: str, nonce: str, *more: bytes) -> Raw:
    """Return a page with a text of its own, and a nonce, compressed if the headers say so."""
    body = f"<script nonce={nonce}></script><p>{text}, seen {len(nonce)} times</p>".encode()
    return Raw(answer(HTML, *more, body=gzip.compress(body) if more else body))


def test_a_page_changes_by_its_main_text(tmp_path: Path):
    compressed = b"Content-Encoding: gzip"
    first = {
        "/": Raw(answer(HTML, body=links("/nonce", "/news", "/zipped", "/image") + b"<p>Start")),
        "/nonce": page_of("A story", "x"),
        "/news": page_of("A story", "x"),
        "/zipped": page_of("A long story", "x", compressed),
        "/image": Raw(answer(b"Content-Type: image/png", body=b"\x89PNG one")),
    }
    then = {
        **first,
        "/nonce": page_of("A story", "abc"),
        "/news": page_of("The end", "x"),
        "/zipped": page_of("A long story", "abc", compressed),
        "/image": Raw(answer(b"Content-Type: image/png", body=b"\x89PNG two")),
    }
    answers = dict(first)
    with SimulatedRawWeb(answers) as web:
        crawl(web, tmp_path)
        before = rows(tmp_path / "job")
        answers.update(then)
        crawl(web, tmp_path)
    after = rows(tmp_path / "job")
    changes = {path: row["changes"] for path, row in after.items()}
    assert changes == {"": 0, "nonce": 0, "news": 1, "zipped": 0, "image": 1}
    assert {path for path, row in after.items() if "text_digest" not in row} == {"image"}
    # The archive has each payload.
    assert before["nonce"]["payload_digest"] != after["nonce"]["payload_digest"]


def test_a_host_rests_for_a_text_that_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    digest_of = text.text_digest

    def slow(body: bytes, media_type: str) -> bytes:
        end = thread_time() + 0.1
        while thread_time() < end:
            pass
        return digest_of(body, media_type)

    monkeypatch.setattr(text, "text_digest", slow)
    begun = clocks.now
    with SimulatedRawWeb(
        {"/": Raw(answer(HTML, body=links("/a"))), "/a": page_of("A", "x")}
    ) as web:
        crawl(web, tmp_path)
    # It rests 32 times as long after the first page.
    assert clocks.now - begun > 3.2


def test_without_the_setting_no_text_is_read(tmp_path: Path, answers: dict[str, Raw]):
    code = "import sys; from krowlspider.engine.handler import DownloadHandler as h; print("
    code += "[n for n in sys.modules if n == 'krowlspider.recrawl.text'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with SimulatedRawWeb(answers) as web:
        crawl(web, tmp_path, KROWL_RECRAWL="off")
    assert all("text_digest" not in row for row in rows_of(tmp_path / "job"))


# --- by the schedule ---

CONTINUOUS = {"KROWL_RECRAWL": "continuous", "KROWL_COMMIT_INTERVAL": 5}
# Seconds of a start, in which pages come up that were due before it, and those of its first ticks.
LASTS = 150
HOUR = 3600.0


class ChangingWeb(dict[str, Raw]):
    """Answers, of which that for ``/changing`` differs each hour."""

    def get(self, path: str, default: Any = None) -> Any:
        if path == "/changing":
            hour = b"%d" % (clocks.wall() // HOUR)
            return tagged(hour, b'"%b"' % hour)
        return super().get(path, default)


def test_a_page_comes_back_as_often_as_it_changes(tmp_path: Path):
    """The crawl is stopped for hours, so that days take seconds."""
    answers = ChangingWeb(
        {"/": tagged(links("/changing", "/still"), b'"r"'), "/still": tagged(b"still", b'"s"')}
    )
    with SimulatedRawWeb(answers) as web:
        seeds = write_seeds(tmp_path / "seeds.txt", [web.url(HOST, "/")])
        stats: Counter[str] = Counter()
        for start in range(10):
            crawl = SimulatedCrawl(
                tmp_path / "job",
                arguments={"seeds": seeds},
                settings=CONTINUOUS,
                script=interrupted_when(LASTS),
            ).run()
            assert crawl.stats["finish_reason"] == "shutdown"
            stats += Counter(
                {
                    name: int(crawl.stats[f"krowl/recrawl/{name}_count"])
                    for name in ("asked", "not_modified", "changed")
                }
            )
            clocks.now += (6 if start else 40) * HOUR
        asked_for = Counter(path for path, _ in web.requests if path != "/robots.txt")
    assert 7 <= asked_for["/changing"]
    assert 2 <= asked_for["/still"] < asked_for["/changing"]
    found = rows(crawl.jobdir)
    assert {path: row["fetches"] for path, row in found.items()} == {
        path[1:]: count for path, count in asked_for.items()
    }
    # One in 50 is asked in full.
    assert 1 <= found["still"]["not_modified"] < asked_for["/still"]
    assert found["still"]["changes"] == 0
    url, planned = found["still"]["url"], found["still"]["next_fetch"]
    assert found["still"]["last_fetch"] < planned
    explained = json.loads(scrapy("frontier", crawl.jobdir, "--json", "--explain", url).stdout)
    assert explained["next_fetch"] == planned
    assert explained["page"].endswith(f"; next fetch {planned.replace('T', ' ')}")
    assert stats["asked"] == asked_for.total() - len(asked_for)
    assert stats["not_modified"] == sum(row["not_modified"] for row in found.values())
    assert stats["changed"] == found["changing"]["changes"]
    assert scrapy("warc", "check", crawl.jobdir).returncode == 0


def test_a_crawl_that_goes_on_ends_at_its_limit(tmp_path: Path, answers: dict[str, Raw]):
    with SimulatedRawWeb(answers) as web:
        crawl(web, tmp_path, max_pages=2, **CONTINUOUS)
        assert len(asked(web)) == 2


def test_a_start_says_how_fresh_its_pages_stay(tmp_path: Path, answers: dict[str, Raw]):
    with SimulatedRawWeb(answers) as web:
        crawl(web, tmp_path, KROWL_RECRAWL="off")
        before = crawl(web, tmp_path, KROWL_RECRAWL="once").log
        web.requests.clear()
        seeds = write_seeds(tmp_path / "seeds.txt", [web.url(HOST, "/")])
        log = (
            SimulatedCrawl(
                tmp_path / "job",
                arguments={"seeds": seeds},
                settings=CONTINUOUS,
                script=interrupted_when(LASTS),
            )
            .run()
            .log
        )
    said = re.findall(r"Forecast: .*", log)
    assert len(said) == 1
    assert "of 4 pages at most 1 d outdated" in said[0]
    assert "target 90 %: " in said[0]
    # Of each class of hosts too.
    classes = re.findall(r"Forecast of (.*?): .* of 4 pages at most 1 d outdated", log)
    assert classes == ["1 host with a delay of up to 1 s and up to 100 pages each"]
    # Without a schedule nothing is computed.
    assert "Forecast" not in before


def test_a_crawl_that_goes_on_is_polite_and_loses_nothing_when_killed(tmp_path: Path):
    graph = Graph(hosts=3, pages=5, seed=7, features=frozenset())
    with SimulatedWeb(graph=graph) as web:
        crawl = SimulatedCrawl(
            tmp_path / "job",
            arguments={"seeds": write_seeds(tmp_path / "seeds.txt", web.seeds())},
            settings=CONTINUOUS,
        )
        for start in range(8):
            # Some die while pages are queued or in flight.
            crawl.run_until_killed(web, LASTS if start % 2 == 0 else 3 * start)
            clocks.now += 24 * HOUR
        crawl.script = interrupted_when(LASTS)
        crawl.run()
        log = web.log()
    asked_for = Counter(entry.url for entry in pages(log))
    assert min(asked_for.values()) >= 3
    assert violations(log, min_delay=0.05) == []
    assert {row["url"] for row in rows_of(crawl.jobdir)} == set(asked_for)
    assert check_folder(crawl.jobdir / "warc").problems == []


# --- a host that dies ---

FIRST, LAST = 3, 30


class Dying(dict[str, Raw]):
    """Answers of a host that closes each connection while it ``is_dead``."""

    is_dead = False

    def get(self, path: str, default: Any = None) -> Any:
        return Raw(b"", closes=True) if self.is_dead else super().get(path, default)


def by_path(jobdir: Path) -> dict[str, dict[str, Any]]:
    return {row["url"].rpartition("/")[2]: row for row in rows_of(jobdir)}


@pytest.mark.slow
def test_a_host_that_dies_keeps_its_pages_and_costs_one_try_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another host goes on as before. A page that is gone meanwhile is asked ever more seldom."""
    # The times of fetches are those of rows.
    monkeypatch.setattr(connection, "time", SimpleNamespace(time=clocks.wall))
    paths = ("/one", "/two", "/three")
    dying = Dying({path: tagged(path.encode(), b'"s"') for path in paths})
    dying["/"] = tagged(links(*paths), b'"d"')
    alive = ChangingWeb({"/": tagged(links("/changing", "/gone"), b'"r"')})
    alive["/gone"] = tagged(b"gone", b'"g"')
    tried, changing, gone = Counter[int](), Counter[int](), Counter[int]()
    with SimulatedRawWeb(alive) as web, SimulatedRawWeb(dying) as other:
        urls = [web.url(HOST, "/"), other.url("b.test", "/")]
        seeds = write_seeds(tmp_path / "seeds.txt", urls)
        for day in range(LAST + 3):
            dying.is_dead = FIRST <= day < LAST
            if day == FIRST:
                del alive["/gone"]
            crawl = SimulatedCrawl(
                tmp_path / "job",
                arguments={"seeds": seeds},
                settings=CONTINUOUS,
                script=interrupted_when(LASTS),
            ).run()
            tried[day] = len(other.requests)
            changing[day] = sum(path == "/changing" for path, _ in web.requests)
            gone[day] = sum(path == "/gone" for path, _ in web.requests)
            web.requests.clear()
            other.requests.clear()
            if day == LAST - 1:
                dead = by_path(crawl.jobdir)
            clocks.now += 24 * HOUR - LASTS
    # It fails a few times, then it is deferred, for a day at last.
    assert max(tried[day] for day in range(FIRST + 2, LAST)) <= 1
    # What is known of its pages stays, and none of them has changed.
    for path in ("one", "two", "three"):
        assert (dead[path]["status"], dead[path]["changes"]) == (200, 0)
    # Once it is back, all its pages come back.
    found = by_path(crawl.jobdir)
    assert all(found[path]["fetches"] > dead[path]["fetches"] for path in ("one", "two", "three"))
    assert all(found[path]["changes"] == 0 for path in ("one", "two", "three"))
    assert all(changing[day] for day in range(FIRST, LAST + 3))
    # After 1, 2, 4 ... days, as far as a start a day can see.
    asked = [day for day in range(FIRST, LAST) for _ in range(gone[day])]
    waits = [later - day for day, later in pairwise(asked)]
    assert waits[:4] == sorted(waits[:4])
    assert waits[3] >= 7
    assert (found["gone"]["status"], found["gone"]["changes"]) == (404, 1)

"""Where a URL is and why it is not being fetched: asked of a stopped crawl and of a running one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.engine.control import FinishedPage
from krowlspider.extensions.telnet import Console
from krowlspider.job.crawls import _crawls
from krowlspider.views.frontier import page_table
from tests.extensions.test_live_page import crawling
from tests.support.crawling import scrapy
from tests.support.crawls import anchors, crawl_of, page
from tests.support.simulated_crawl import interrupt, interrupted_when
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.simulated_loop import Script

HOST = "a.test"
LINKS = anchors("/one", "/two", "/secret/x", "/2", "/other")
SPEC = [
    page("/robots.txt", "User-agent: *\nDisallow: /secret\n"),
    page("/", f"{LINKS}<img src=/secret/picture.png>"),
    page("/broken", "", status=500),
    page("^/.*$", "x"),
]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Callable[..., Any]]]:
    """The folder of a crawl that ended after two pages, and the URLs of its web."""
    folder = tmp_path_factory.mktemp("stopped")
    with SimulatedWeb(spec=SPEC) as web:
        crawl = crawl_of(web, folder, [web.url(HOST)], arguments={"max_pages": 2, "deny": "/no"})
        yield crawl.run().jobdir, lambda path: web.url(HOST, path)


def ask(jobdir: Path, url: str, *more: str, code: int = 0) -> Any:
    done = scrapy("frontier", jobdir, "--json", "--explain", url, *more, code=code)
    return json.loads(done.stdout)


def test_a_stopped_crawl_explains_each_url(stopped: Any) -> None:
    jobdir, url = stopped

    def state(path: str, *more: str) -> tuple[str, str]:
        found = ask(jobdir, url(path), *more)
        return found["state"], found["setting"]

    fetched = ask(jobdir, url("/"))
    assert (fetched["state"], fetched["captures"]) == ("fetched", 1)
    assert ": status 200, text/html, in " in fetched["why"]
    queued = ask(jobdir, url("/2"))
    assert (queued["state"], queued["ahead"]) == ("queued", 2)
    assert queued["why"].startswith("It is number 3 of 4 in the queue of its host. The host: It is")
    secret = ask(jobdir, url("/secret/x"))
    assert (secret["state"], secret["setting"]) == ("queued", "ROBOTSTXT_OBEY")
    assert secret["robots"] == "line 2: Disallow: /secret"
    assert "/robots.txt forbids it by line 2: Disallow: /secret: it will be drop" in secret["why"]
    assert state("/secret/y") == ("unknown", "ROBOTSTXT_OBEY")
    assert state("/never") == ("unknown", "")
    assert state("/no/x") == ("refused", "deny")
    assert state("/file.zip") == ("refused", "KROWL_SKIP_EXTENSIONS")
    assert state("/a/a/a/a/a/a/a/a") == ("refused", "")
    assert ask(jobdir, "ftp://a.test/x", code=2)["state"] == "invalid"


def test_a_page_that_is_a_revisit_is_told_as_one(tmp_path: Path) -> None:
    """Its index line has no media type: neither where the body was there, nor after a 304."""
    unmodified = {"path": "/304", "status": 304, "headers": {"ETag": '"1"'}}
    with SimulatedWeb(spec=[SPEC[0], unmodified, page("^/.*$", "same")]) as web:
        seeds = [web.url(HOST, path) for path in ("/1", "/2", "/304")]
        jobdir = crawl_of(web, tmp_path, seeds).run().jobdir
        told = [ask(jobdir, seed)["why"].partition(": ")[2] for seed in seeds]
    assert told[0].startswith("status 200, text/html, in ")
    assert told[1].startswith("status 200, with the same body as an earlier record, in ")
    assert "warc/revisit" not in told[2]


def test_a_permission_in_a_sheet_is_known(stopped: Any, tmp_path: Path) -> None:
    jobdir, url = stopped
    sheet = 'match = ["host:a.test"]\nrobots = "override"\npermission = "a letter"'
    policies = tmp_path / "policies.toml"
    policies.write_text(f'[[sheet]]\nname = "permitted"\n{sheet}\n')
    found = ask(jobdir, url("/secret/x"), "-s", f"KROWL_POLICIES={policies}")
    assert (found["state"], found["setting"]) != ("queued", "ROBOTSTXT_OBEY")
    assert "forbids" not in found["why"]
    assert found["sheets"] == [
        "robots = override: sheet permitted, line 4",
        "permission = a letter: sheet permitted, line 5",
    ]


def sheets(folder: Path, *given: str) -> Path:
    """Write sheets, each with the rows after its name; the first is of line 1."""
    path = folder / "policies.toml"
    path.write_text("".join(f'[[sheet]]\nname = "{at}"\n{rows}\n' for at, rows in enumerate(given)))
    return path


@pytest.mark.parametrize(("whole", "path", "decides"), [(5, 1, "0, line 4"), (1, 5, "1, line 8")])
def test_the_delay_of_a_host_is_the_longest_of_its_paths(
    stopped: Any, tmp_path: Path, whole: int, path: int, decides: str
) -> None:
    jobdir, url = stopped
    policies = sheets(
        tmp_path,
        f'match = ["host:a.test"]\ndelay = {whole}',
        f'match = ["test,a,)/2"]\ndelay = {path}',
    )
    for each in ("/2", "/other"):
        found = ask(jobdir, url(each), "-s", f"KROWL_POLICIES={policies}")
        assert found["sheets"] == [f"delay = 5.0: sheet {decides}"]


def test_what_sheets_refuse_and_rewrite_is_explained(tmp_path: Path) -> None:
    policies = sheets(
        tmp_path,
        'match = ["host:a.test"]\ndepth = 1',
        'match = ["few.test"]\nmax_pages = 2',
        'match = ["bare.test"]\nwww = "drop"\ntrailing_slash = "drop"',
    )
    spec = [
        {**page("/", anchors("http://www.bare.test:{port}/w/")), "host": "bare.test"},
        {**page("/", anchors("/one", "/two", "/three")), "host": "few.test"},
        page("/", anchors("/one")),
        page("/one", anchors("/deep")),
        page("^/.*$", "x"),
    ]
    with SimulatedWeb(spec=spec) as web:
        hosts = (HOST, "few.test", "bare.test", "other.test")
        settings = {"KROWL_POLICIES": policies, "KROWL_DELAY_MIN": 0.02}
        crawl = crawl_of(web, tmp_path, list(map(web.url, hosts)), settings=settings)
        jobdir = crawl.run().jobdir
        urls = {
            "deep": web.url(HOST, "/deep"),
            "free": web.url("other.test", "/never"),
            "three": web.url("few.test", "/three"),
            "later": web.url("few.test", "/later"),
            "www": web.url("www.bare.test", "/w/"),
            "never": web.url("www.bare.test", "/never"),
        }
        asked = [
            entry.path
            for entry in web.log()
            if entry.host.startswith("few.") and "robots" not in entry.path
        ]
        kept = web.url("bare.test", "/w")
    option = ("-s", f"KROWL_POLICIES={policies}")
    found = {name: ask(jobdir, url, *option) for name, url in urls.items()}
    assert found["deep"]["state"] == "unknown"
    assert (
        "by depth of a sheet 1. The depth of this one is set by sheet 0, line 4."
        in found["deep"]["why"]
    )
    assert "depth" not in found["free"]["why"]
    assert asked == ["/", "/one"]
    assert (found["three"]["state"], found["three"]["setting"]) == ("dropped", "KROWL_POLICIES")
    assert found["three"]["why"].endswith(
        " Of its host, max_pages of a sheet is reached (sheet 1, line 8): what is queued beyond"
        " that is dropped at its turn."
    )
    assert (found["later"]["state"], found["later"]["setting"]) == ("refused", "KROWL_POLICIES")
    assert "max_pages of a sheet is reached (sheet 1, line 8)." in found["later"]["why"]
    assert (found["www"]["url"], found["www"]["state"]) == (urls["www"], "fetched")
    assert found["www"]["why"].startswith(
        f"In place of a link to it, {kept} is fetched, by www of sheet 2, line 12; trailing_slash"
        " of sheet 2, line 13. It was fetched at "
    )
    assert found["never"]["state"] == "unknown"
    assert "is fetched, by www of sheet 2, line 12. It was not" in found["never"]["why"]


def test_the_answer_is_a_text_for_people(stopped: Any, tmp_path: Path) -> None:
    jobdir, url = stopped
    text = scrapy("frontier", jobdir, "--explain", url("/secret/x")).stdout.decode()
    lines = text.splitlines()
    assert lines[0] == url("/secret/x")
    assert "  robots.txt  line 2: Disallow: /secret" in lines
    patterns = tmp_path / "patterns"
    patterns.write_text("/never\n")
    found = ask(jobdir, url("/never"), "-s", f"KROWL_EXCLUDE={patterns}")
    assert (found["state"], found["setting"]) == ("refused", "KROWL_EXCLUDE")


def test_what_was_dropped_says_so(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SPEC) as web:
        seeds = [web.url(HOST), web.url(HOST, "/broken")]
        settings = {"RETRY_TIMES": 0, "KROWL_REQUISITES": "site"}
        crawl = crawl_of(web, tmp_path, seeds, settings=settings).run()
        broken = web.url(HOST, "/broken")
        # A requisite has an identity of its own.
        for path in ("/secret/x", "/secret/picture.png"):
            found = ask(crawl.jobdir, web.url(HOST, path))
            assert (found["state"], found["setting"]) == ("dropped", "ROBOTSTXT_OBEY")
            assert "found and dropped" in found["why"]
    # Its answer is archived, though it was no page.
    assert ": status 500, " in ask(crawl.jobdir, broken)["why"]


def test_a_seed_is_judged_as_it_was_typed(tmp_path: Path) -> None:
    """By https first, and then by http, as the crawl does; no answer leaves it to the reader which
    of several causes is the right one."""
    with SimulatedWeb(spec=SPEC) as web:
        port = web.port
        seeds = [f"{HOST}:{port}", f"http://b.test:{port}/broken", f"c.test:{port}"]
        slow = {"RETRY_TIMES": 0, "KROWL_DELAY_MIN": 5, "DOWNLOAD_TIMEOUT": 5}
        script = interrupted_when(lambda: len(web.log()) >= 6)
        crawl = crawl_of(web, tmp_path, seeds, settings=slow, script=script).run()
        told = {
            text: ask(crawl.jobdir, text, code=2 * (not text or "@" in text))
            for text in (
                *(f"{HOST}:{port}", f"{HOST}:{port}/2", f"{HOST}:{port}/never", f"b.test:{port}"),
                *(f"b.test:{port}/broken", f"https://{HOST}:{port}", "nowhere.test", "u@x.test"),
            )
        }
    fetched = told[f"{HOST}:{port}"]
    assert (fetched["state"], fetched["url"]) == ("fetched", f"http://{HOST}:{port}/")
    first = f"It has no answer by https, so http://{HOST}:{port}/ was asked for. It was fetched at "
    assert fetched["why"].startswith(first)
    queued = told[f"{HOST}:{port}/2"]
    assert (queued["state"], queued["url"]) == ("queued", f"http://{HOST}:{port}/2")
    assert queued["why"].endswith(f" https://{HOST}:{port}/2 was not found.")
    never = told[f"{HOST}:{port}/never"]
    assert (never["state"], never["url"]) == ("unknown", f"https://{HOST}:{port}/never")
    assert never["why"].endswith(f"The same holds for http://{HOST}:{port}/never.")
    assert told[f"b.test:{port}/broken"]["state"] == "fetched"
    assert told[f"b.test:{port}"]["state"] == "unknown"
    # The row of the seed has the reason.
    https = told[f"https://{HOST}:{port}"]
    assert https["state"] == "fell back"
    assert https["why"] == "Its host has no https: the seed goes on with its http URL."
    assert told["nowhere.test"]["state"] == "unknown"
    assert told["u@x.test"]["state"] == "invalid"
    assert not [found for found in told.values() if found["why"].count(" or ") > 1]


def test_a_fallback_that_is_queued_was_not_asked_for(tmp_path: Path) -> None:
    busy = page("/robots.txt", "", status=503, host=HOST)
    with SimulatedWeb(spec=[busy, *SPEC]) as web:
        seeds = [f"{HOST}:{web.port}"]
        crawl = crawl_of(web, tmp_path, seeds, settings={"RETRY_TIMES": 0}).run(code=4)
        found = ask(crawl.jobdir, seeds[0])
    assert (found["state"], found["url"]) == ("queued", web.url(HOST))
    start = f"It has no answer by https, so {web.url(HOST)} is queued. It is number 1 of 1 in the "
    assert found["why"].startswith(start)
    assert "If it has no answer" not in found["why"]


def test_a_long_queue_gives_one_answer(tmp_path: Path) -> None:
    """No answer names two causes. The outcome of a seed is known, however long the queue is."""
    many = anchors(*(f"/{number}" for number in range(5100)))
    with SimulatedWeb(spec=[SPEC[0], page("/", many), *SPEC[2:]]) as web:
        seeds = [web.url(HOST, "/secret/seed"), web.url(HOST)]
        crawl = crawl_of(web, tmp_path, seeds, arguments={"max_pages": 1}).run()
        last, seed = (ask(crawl.jobdir, web.url(HOST, path)) for path in ("/5099", "/secret/seed"))
    assert last["state"] == "queued"
    assert last["why"] == (
        "It was found. Its host has 5,100 URLs queued: it is not among the first 5,000, and no more"
        " were looked at."
    )
    assert (seed["state"], seed["setting"]) == ("dropped", "ROBOTSTXT_OBEY")
    assert seed["why"].startswith("It is a seed and was dropped: ")


def test_a_url_counts_as_another_of_its_identity(tmp_path: Path) -> None:
    """Of a seed, and of a URL that is queued."""
    paths = ("/secret?b=1&a=1", "/secret?a=1&b=1&utm_source=x", "/one?a=%c3", "/one?a=%C3")
    with SimulatedWeb(spec=SPEC) as web:
        seeds = [web.url(HOST), *(web.url(HOST, path) for path in paths)]
        crawl = crawl_of(web, tmp_path, seeds).run()
        again = crawl_of(web, tmp_path / "2", seeds[:1], arguments={"max_pages": 1}).run()
        found = [ask(crawl.jobdir, url) for url in seeds[1:]]
        queued = ask(again.jobdir, web.url(HOST, "/one?utm_source=x"))
    assert [each["state"] for each in found] == ["dropped", "dropped", "fetched", "fetched"]
    assert [each["url"] for each in found] == seeds[1:]
    assert found[1]["why"].startswith(f"It counts as the same as {seeds[1]}. ")
    assert found[1]["setting"] == "ROBOTSTXT_OBEY"
    assert found[3]["why"].startswith(f"It counts as the same as {seeds[3]}. ")
    assert queued["state"] == "queued"
    assert queued["why"].startswith(f"It counts as the same as {web.url(HOST, '/one')}. ")


def test_a_seed_is_explained_as_its_row_says(tmp_path: Path) -> None:
    """Though its answer is in the archive, or the settings of this time would queue it."""
    spec = [page("/large", "x" * 9000), *SPEC]
    excluded = tmp_path / "exclude.txt"
    excluded.write_text("/other\n")
    settings = {"DOWNLOAD_MAXSIZE": 5000, "KROWL_EXCLUDE": excluded, "RETRY_TIMES": 0}
    with SimulatedWeb(spec=spec) as web:
        large, other = (web.url(HOST, path) for path in ("/large", "/other"))
        crawl = crawl_of(web, tmp_path, [web.url(HOST), large, other], settings=settings).run()
        found = [ask(crawl.jobdir, url) for url in (large, other)]
    assert [(each["state"], each["setting"]) for each in found] == [
        ("dropped", "DOWNLOAD_MAXSIZE"),
        ("dropped", "KROWL_EXCLUDE"),
    ]


def test_a_bare_seed_that_waits_names_its_fallback(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SPEC) as web:
        crawl = crawl_of(web, tmp_path, ["no.invalid"], settings={"RETRY_TIMES": 0}).run(code=4)
        found = ask(crawl.jobdir, "no.invalid")
    assert (found["state"], found["url"]) == ("queued", "https://no.invalid/")
    assert "If it has no answer by https, http://no.invalid/ is asked for." in found["why"]


@pytest.mark.slow
def test_a_running_crawl_is_asked_and_its_answer_is_printed(tmp_path: Path) -> None:
    with crawling(tmp_path) as crawl:
        host = crawl.web.url(HOST).split("/")[2]
        found = ask(crawl.jobdir, f"{host}/2")
        assert (found["state"], found["url"]) == ("queued", f"http://{host}/2")
        assert " in the queue of its host." in found["why"]
        text = scrapy("frontier", crawl.jobdir, "--explain", "a b", code=2).stdout.decode()
        assert "'a b' is not a URL that a crawl fetches" in text


def test_a_crawl_without_a_page_cannot_be_asked(tmp_path: Path) -> None:
    said: list[str] = []
    with SimulatedWeb(spec=SPEC) as web:
        jobdir = tmp_path / "job"

        def asks() -> Script:
            yield lambda: any(entry.path == "/one" for entry in web.log())
            done = scrapy("frontier", jobdir, "--explain", web.url(HOST), code=2)
            said.append(done.stderr.decode())
            interrupt()

        crawl_of(web, tmp_path, [web.url(HOST)], script=asks()).run()
    way_out = "stop it first, or start it with PROMETHEUS_ENABLED=True"
    assert f"does not answer over HTTP: {way_out}" in said[0]


# Calls of the console with arguments that they do not take.
WRONG: tuple[tuple[Any, ...], ...] = (
    ("status", 1),
    ("host",),
    ("host", 5),
    ("hosts", "queued", "x"),
    ("pages", "x"),
    ("explain", None),
    ("pause", 5),
    ("block",),
    ("unblock", 7),
    ("delay", HOST, "x"),
    ("add", "http://a.test/", 10**30),
    ("forget", []),
    ("reload", 1),
    ("set", "LOG_LEVEL", []),
    ("hosts", "queued", 0),
    ("pages", 101),
)


def test_a_running_crawl_answers_at_its_console(tmp_path: Path) -> None:
    """Each documented call exists, and each call is documented."""
    told: dict[str, str] = {}
    wrong: list[str] = []
    documented: dict[str, str] = {}
    watching = (Path(__file__).parents[2] / "docs" / "watching.md").read_text()
    calls = re.findall(r"krowl\.\w+\([^()]*\)", watching)
    with SimulatedWeb(spec=SPEC) as web:

        def asks() -> Script:
            yield lambda: any(entry.path == "/one" for entry in web.log())
            # Of those that are not collected yet, the newest.
            crawler = [each for each, crawl in _crawls.items() if crawl.job.is_open][-1]
            krowl = Console(crawler, "a test")
            told["status"] = repr(krowl.status())
            told["queued"] = repr(krowl.explain(web.url(HOST, "/other")))
            told["in flight"] = repr(krowl.explain(web.url(HOST, "/one")))
            told["host"] = repr(krowl.host(HOST + f":{web.port}"))
            told["hosts"] = repr(krowl.hosts())
            told["pages"] = repr(krowl.pages())
            told["bad sort"] = repr(krowl.hosts("names"))
            told["no host"] = repr(krowl.host("nowhere.test"))
            told["help"] = repr(krowl)
            wrong.extend(repr(getattr(krowl, call)(*given)) for call, *given in WRONG)
            documented.update({call: repr(eval(call, {"krowl": krowl})) for call in calls})
            fetched = web.url(HOST, "/")
            yield lambda: "It was fetched at " in repr(krowl.explain(fetched))
            told["fetched"] = repr(krowl.explain(fetched))
            interrupt()

        crawl_of(web, tmp_path, [web.url(HOST)], script=asks()).run()
    assert "\nqueued      4 on 1 host, 0 of them due now\nin flight   1\n" in told["status"]
    assert "It is number 4 of 4 in the queue" in told["queued"]
    assert "The host: A request to it is under way." in told["queued"]
    assert "Its request is under way" in told["in flight"]
    assert f"{HOST}:{web.port}: A request to it is under way." in told["host"]
    assert told["hosts"].splitlines()[-1].endswith(f"{HOST}:{web.port}")
    assert "bytes latency s  outcome" in told["pages"]
    assert "hosts are sorted by one of queued, " in told["bad sort"]
    assert "no host 'nowhere.test'" in told["no host"]
    assert all(f"krowl.{name}(" in told["help"] for name in ("status", "host", "explain"))
    assert [line for line in wrong if "\n" in line or "None" in line] == []
    assert wrong[:3] == [
        "krowl.status: too many positional arguments",
        "krowl.host: host needs name: name or URL of a host",
        "krowl.host: name is not string: name or URL of a host",
    ]
    # Its file is not finished.
    assert re.search(r": status 200, text/html, in krowl-\S+\.warc\.gz\.\n", told["fetched"])
    named = {call[len("krowl.") : call.index("(")] for call in documented}
    assert named == {name for name in vars(Console) if name[0] != "_"} - {"help"}
    assert [said for said in documented.values() if said.startswith("krowl.")] == []
    assert wrong[-2:] == ["limit=0: give 1 to 200", "limit=101: give 1 to 100"]


def test_the_table_of_pages_has_the_last_answer_of_each() -> None:
    done = FinishedPage("http://a.test/", "done", 200, 39_000, 0.254)
    dropped = FinishedPage("http://b.test/", "robots", 0, 0, 0.0)
    _, first, second = (line.split() for line in page_table([done, dropped]))
    assert first == ["200", "39,000", "0.25", "done", "http://a.test/"]
    assert second == ["-", "0", "0.00", "robots", "http://b.test/"]

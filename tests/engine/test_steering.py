"""Changes to a running crawl: they take effect at once, and stand after a kill."""

from __future__ import annotations

import json
import re
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from krowlspider.engine.steering import ForeignHostError, Steering
from krowlspider.extensions.telnet import Console
from krowlspider.job.crawls import _crawls
from krowlspider.urls.canonical import host_of
from tests.mockweb.audit import violations
from tests.support.crawling import scrapy
from tests.support.crawls import DELAY, anchors, crawl_of, page
from tests.support.simulated_crawl import SimulatedCrawl, interrupt
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.simulated_loop import Script

SPEC = [
    page("/robots.txt", "", status=404),
    page("/", anchors(*(f"/{at}" for at in range(8)))),
    page("^/.*$", "x"),
]
PAGES = {"/", *(f"/{at}" for at in range(8))}


def console() -> Console:
    # Crawls of this process that were killed may not be collected yet: they are older.
    crawler = [each for each, crawl in _crawls.items() if crawl.job.is_open][-1]
    return Console(crawler, "a test")


def asked(web: SimulatedWeb, host: str) -> Counter[str]:
    return Counter(entry.path for entry in web.log() if entry.host == f"{host}:{web.port}")


def later(seconds: float) -> Callable[[], bool]:
    end = clocks.monotonic() + seconds
    return lambda: clocks.monotonic() >= end


def test_a_paused_host_is_left_alone_until_it_is_resumed(tmp_path: Path) -> None:
    said: list[str] = []
    with SimulatedWeb(spec=SPEC) as web:

        def steer() -> Script:
            yield lambda: asked(web, "a.test")["/1"] > 0
            krowl = console()
            # Its request is in flight.
            said.append(repr(krowl.pause(web.url("a.test"))))
            before = asked(web, "a.test")
            yield later(20)
            assert asked(web, "a.test") == before
            said.append(repr(krowl.explain(web.url("a.test", "/7"))))
            said.append(repr(krowl.resume(web.url("a.test"))))
            said.append(repr(krowl.resume(web.url("a.test"))))

        crawl = crawl_of(
            web, tmp_path, [web.url("a.test"), web.url("b.test")], script=steer()
        ).run()
        for host in ("a.test", "b.test"):
            assert {path for path in asked(web, host) if path != "/robots.txt"} == PAGES
            assert max(asked(web, host).values()) == 1
        assert violations(web.log(), min_delay=DELAY) == []
    assert "is paused: krowl.resume(" in said[0]
    assert "The host: It is paused by a.test:" in said[1]
    assert ", each host after its delay. It covers 1 host " in said[2]
    assert " is not paused. It covers 1 host " in said[3]
    assert crawl.stats["krowl/control/change_count/pause"] == 1
    assert sum("Pause by a test: a.test:" in line for line in crawl.complaints) == 1


@pytest.mark.parametrize(
    ("order", "end"),
    [
        ("pause()", "resume()"),
        ("pause(a)", "resume(a)"),
        pytest.param("block(a)", "unblock(a)", marks=pytest.mark.slow),
        pytest.param("delay(a, 60)", "delay(a)", marks=pytest.mark.slow),
    ],
)
def test_an_order_stands_after_a_kill(tmp_path: Path, order: str, end: str) -> None:
    with SimulatedWeb(spec=SPEC) as web:
        names = {"a": web.url("a.test")}
        crawl = crawl_of(web, tmp_path, [web.url("a.test")])
        assert isinstance(crawl, SimulatedCrawl)
        said: list[object] = []

        def is_given() -> bool:
            if asked(web, "a.test")["/1"] and not said:
                said.append(eval(f"krowl.{order}", {"krowl": console(), **names}))
            return bool(said)

        crawl.run_until_killed(web, is_given)
        before = asked(web, "a.test")
        again = SimulatedCrawl(crawl.jobdir)

        def go_on() -> Script:
            yield later(20)
            assert asked(web, "a.test") == before
            eval(f"krowl.{end}", {"krowl": console(), **names})

        again.script = go_on()
        again.run()
        pages = asked(web, "a.test")
        assert {path for path in pages if path != "/robots.txt"} == PAGES
    assert any("paused by a person" in line for line in again.complaints) is (order == "pause()")


def test_a_block_names_itself_and_counts(tmp_path: Path) -> None:
    said: list[str] = []
    with SimulatedWeb(spec=SPEC) as web:

        def steer() -> Script:
            yield lambda: asked(web, "a.test")["/1"] > 0
            krowl = console()
            said.extend(repr(krowl.block(web.url("a.test"))) for _ in range(2))
            yield later(20)
            said.append(repr(krowl.explain(web.url("a.test", "/7"))))
            said.append(repr(krowl.block("a b")))
            said.append(repr(krowl.delay(web.url("a.test"), 0.01)))
            said.append(repr(krowl.delay(web.url("a.test"), 1e9)))
            said.append(repr(krowl.reload()))
            interrupt()

        crawl = crawl_of(
            web, tmp_path, [web.url("a.test"), web.url("b.test")], script=steer()
        ).run()
        done = scrapy("frontier", crawl.jobdir, "--explain", web.url("a.test", "/7"))
        assert set(asked(web, "b.test")) > PAGES
    rule = web.url("a.test").split("/")[2]
    assert said[0].startswith(
        f"{rule} is blocked: krowl.unblock({rule!r}) lets it go on. It covers 1 host ({rule}): "
    )
    assert said[1].startswith(f"{rule} is blocked already:")
    assert f"It is blocked by {rule} (a test, 20" in said[2]
    assert "'a b' is no host, domain or SURT prefix" in said[3]
    assert "is below the least delay of this host" in said[4]
    assert "give 0 to 86,400" in said[5]
    assert "KROWL_EXCLUDE is not set" in said[6]
    assert f"It is blocked by {rule} (a test, 20".encode() in done.stdout
    assert crawl.stats["krowl/control/change_count/block"] == 1


@pytest.mark.slow
def test_settings_change_while_the_crawl_runs(tmp_path: Path) -> None:
    said: list[str] = []
    exclude = tmp_path / "exclude"
    exclude.write_text("")
    policies = tmp_path / "policies.toml"
    policies.write_text("")
    with SimulatedWeb(spec=SPEC) as web:

        def steer() -> Script:
            yield lambda: asked(web, "a.test")["/1"] > 0
            krowl = console()
            for name, value in (
                ("KROWL_SITEMAP", True),
                ("CONCURRENT_REQUESTS", 10**6),
                ("CONCURRENT_REQUESTS", "x"),
                ("KROWL_DELAY_MAX", 0.001),
                ("LOG_LEVEL", "LOUD"),
                ("max_pages", "many"),
                ("CONCURRENT_REQUESTS", 1),
                ("KROWL_SITEMAPS", "False"),
                ("LOG_LEVEL", "DEBUG"),
                ("KROWL_DELAY_MIN", 5),
            ):
                said.append(repr(krowl.set(name, value)))
            exclude.write_text("/7")
            sheet = '[[sheet]]\nname = "a"\nmatch = ["a.test"]\nexclude = ["/8"]\n'
            policies.write_text(sheet)
            said.append(repr(krowl.reload()))
            yield later(3)
            at = len(web.log())
            yield later(20)
            # At most one was due by the delay before.
            assert 3 <= len(web.log()) - at <= 5
            said.append(repr(krowl.set("KROWL_DELAY_MIN", 0.05)))
            said.append(repr(krowl.set("max_pages", 7)))

        settings = {"KROWL_EXCLUDE": exclude, "KROWL_POLICIES": policies}
        crawl = crawl_of(
            web, tmp_path, [web.url("a.test")], settings=settings, script=steer()
        ).run()
        assert sum(path != "/robots.txt" for path in asked(web, "a.test")) == 7
        assert asked(web, "a.test").keys().isdisjoint({"/7", "/8"})
    faults = (
        "'KROWL_SITEMAP' cannot be changed",
        "CONCURRENT_REQUESTS=1000000 is more than",
        "CONCURRENT_REQUESTS='x' ",
        "is more than KROWL_DELAY_MAX=0.001",
        "LOG_LEVEL='LOUD' ",
        "max_pages='many' is not a number",
    )
    assert all(fault in text for fault, text in zip(faults, said, strict=False)), said
    assert said[len(faults)] == "CONCURRENT_REQUESTS=1 until the process ends"
    assert said[-3].startswith("KROWL_POLICIES, KROWL_EXCLUDE: ")
    assert crawl.stats["krowl/control/change_count/set"] == 6
    assert crawl.stats["finish_reason"] == "max_pages"


def test_a_forgotten_host_is_new(tmp_path: Path) -> None:
    """Nothing of it is queued or known any more, and its links are followed anew."""
    said: list[str] = []
    with SimulatedWeb(spec=SPEC) as web:
        root = web.url("a.test")

        def steer() -> Script:
            yield lambda: asked(web, "a.test")["/3"] > 0
            krowl = console()
            krowl.pause(root)
            # What is in flight ends, and is committed.
            yield later(3)
            said.append(repr(krowl.forget(host_of(root))))
            said.append(repr(krowl.explain(web.url("a.test", "/7"))))
            said.append(repr(krowl.forget(host_of(root))))
            said.append(repr(krowl.add(root)))

        crawl = crawl_of(web, tmp_path, [root, web.url("b.test")], script=steer()).run()
        pages = asked(web, "a.test")
    found = re.search(r"is forgotten, with ([0-9]+) URLs? queued", said[0])
    assert found is not None, said
    assert "It was not found: " in said[1]
    assert "no host" in said[2]
    assert said[3] == "queued"
    # What was fetched before is fetched again.
    assert (pages["/1"], pages["/3"]) == (2, 2)
    assert pages.keys() >= PAGES
    assert crawl.stats["krowl/frontier/dropped_count/operator"] == int(found[1])
    assert crawl.stats["krowl/control/change_count/forget"] == 1


def test_a_forgotten_page_is_fetched_again(tmp_path: Path) -> None:
    said: list[str] = []
    with SimulatedWeb(spec=SPEC) as web:
        root, page = web.url("a.test"), web.url("a.test", "/3")

        def steer() -> Script:
            yield lambda: asked(web, "a.test")["/3"] > 0
            krowl = console()
            krowl.pause(root)
            yield later(3)
            said.extend(repr(krowl.forget(page)) for _ in range(2))
            krowl.resume(root)

        crawl = crawl_of(web, tmp_path, [root], script=steer()).run()
        pages = asked(web, "a.test")
    assert said[0] == f"{page} is forgotten, and queued again"
    assert said[1].startswith("not forgotten: It is number ")
    assert pages.pop("/3") == 2
    assert set(pages.values()) == {1}
    rows = map(json.loads, scrapy("frontier", crawl.jobdir, "--pages").stdout.splitlines())
    # Its row begins anew.
    assert {row["fetches"] for row in rows} == {1}


def test_a_forgotten_front_page_leaves_its_host(tmp_path: Path) -> None:
    said: list[str] = []
    with SimulatedWeb(spec=SPEC) as web:
        root = web.url("a.test")
        host = host_of(root)

        def steer() -> Script:
            yield lambda: asked(web, "a.test")["/3"] > 0
            krowl = console()
            krowl.pause(root)
            yield later(3)
            names = (root, f"http://{host}", web.url("a.test", "/new"), f"{host}/3")
            said.extend(repr(krowl.forget(name)) for name in names)
            krowl.resume(root)

        crawl_of(web, tmp_path, [root], script=steer()).run()
        pages = asked(web, "a.test")
    assert said[0] == f"{root} is forgotten, and queued again"
    assert said[1].startswith("not forgotten: It is number ")
    assert said[2] == f"{root}new was not known, and is queued"
    assert said[3].startswith(f"'{host}/3' is not a host: give '{host}' for all its URLs; ")
    assert pages.pop("/") == 2
    assert set(pages.values()) == {1}
    assert pages.keys() >= PAGES - {"/"} | {"/new"}


def test_an_order_about_a_foreign_host_names_its_owner() -> None:
    node = SimpleNamespace(knows_owners=True, foreign_owner=lambda host: "n2")
    # Nothing else of the crawl is asked: nothing can have changed.
    steering = object.__new__(Steering)
    steering._node = node  # type: ignore[assignment]
    with pytest.raises(ForeignHostError, match="node n2 owns a"):
        steering.forget("a.dom.test")


def test_a_url_is_added_once(tmp_path: Path) -> None:
    said: list[str] = []
    with SimulatedWeb(spec=SPEC) as web:

        def steer() -> Script:
            yield lambda: asked(web, "a.test")["/1"] > 0
            krowl = console()
            said.extend(repr(krowl.add(web.url("a.test", "/new"), 9)) for _ in range(2))
            said.append(repr(krowl.add("ftp://a.test/")))
            said.append(repr(krowl.pause("nowhere.test")))
            said.append(repr(krowl.pause("a b")))
            yield lambda: asked(web, "a.test")["/new"] > 0
            # With its priority, it is next.
            assert asked(web, "a.test")["/3"] == 0
            interrupt()

        crawl_of(web, tmp_path, [web.url("a.test")], script=steer()).run()
    assert said[0] == "queued"
    assert said[1].startswith("not queued: It is number 1 of ")
    assert "is not a URL that a crawl fetches" in said[2]
    assert said[3].endswith("It is unknown: the order holds when it comes.")
    assert "'a b' is not the name of a host" in said[4]


def test_a_stopped_crawl_says_that_a_host_is_paused(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SPEC) as web:

        def steer() -> Script:
            yield lambda: asked(web, "a.test")["/1"] > 0
            console().pause(web.url("a.test"))
            yield later(5)
            interrupt()

        crawl = crawl_of(web, tmp_path, [web.url("a.test")], script=steer()).run()
        done = scrapy("frontier", crawl.jobdir, "--host", web.url("a.test"))
    assert b": It is paused by a.test:" in done.stdout
    assert "\n  paused " not in crawl.log
    assert b"\ndue in   put off\n" in done.stdout


def test_the_summary_says_that_the_crawl_is_paused(tmp_path: Path) -> None:
    """As the next start will fetch nothing either."""
    with SimulatedWeb(spec=SPEC) as web:

        def steer() -> Script:
            yield lambda: asked(web, "a.test")["/1"] > 0
            console().pause()
            yield later(5)
            interrupt()

        crawl = crawl_of(web, tmp_path, [web.url("a.test")], script=steer()).run()
    assert "\n  paused       by a person, and still at the next start: the button " in crawl.log

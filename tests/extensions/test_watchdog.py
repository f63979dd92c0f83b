"""The watchdog: what holds the event loop is named, SIGINT ends the crawl even then, the second
time sets a host aside."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from math import inf
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.frontier.hosts.host_record import NOTES
from krowlspider.frontier.store.schema import host_key, queue_key
from krowlspider.frontier.work_mark import BEAT_AT, MARK, NOTHING, mark_of
from krowlspider.job.monitoring.watchdog import HELD, LOOK, Hold
from tests.mockweb import MockWeb
from tests.support.crawling import Crawl, frontier_view, scrapy
from tests.support.crawls import crawl_of, page, pages
from tests.whole_crawls.test_poison import HOSTS, ORDINARY, SIGKILL, SITE, deadly_crawl

if TYPE_CHECKING:
    from collections.abc import Iterable

URL = "http://a.test/page"
PAGE = mark_of(queue_key(host_key("a.test"), 0, 7), URL)
OTHER = mark_of(queue_key(host_key("b.test"), 0, 7), "http://b.test/")
SECONDS = HELD + LOOK
# Seconds within which SIGINT ends a crawl.
PROMISED = 10.0


# --- what is seen, look by look ---


def seen(*looks: tuple[float, bytes, float]) -> Hold:
    """After looks: beat, mark and seconds since the one before."""
    hold = Hold()
    for look in looks:
        hold.look(*look)
    return hold


def same(mark: bytes, count: int, beat: float = 100.0, passed: float = LOOK) -> Iterable[Any]:
    return [(beat, mark, passed)] * count


def test_loop_five_seconds_late_is_held() -> None:
    assert not seen(*same(PAGE, int(SECONDS))).is_long
    hold = seen(*same(PAGE, int(SECONDS) + 1))
    assert hold.is_long
    assert hold.culprit == ("a.test", URL)


def test_a_loop_that_turns_is_not_held_and_says_how_long_it_was() -> None:
    hold = seen(*same(PAGE, 9))
    assert hold.look(111.0, PAGE, LOOK) == pytest.approx(10.0)
    assert not hold.is_long


def test_a_loop_that_turns_for_the_last_time_says_how_long_it_was_held() -> None:
    hold = seen(*same(PAGE, 9))
    assert hold.look(inf, PAGE, 0.0) == pytest.approx(7 * LOOK)
    assert not hold.is_long
    assert hold.look(inf, PAGE, LOOK) == 0.0


def test_pages_in_turns_are_not_blamed() -> None:
    turns = [look for _ in range(5) for look in (*same(PAGE, 2), *same(OTHER, 2))]
    hold = seen(*turns)
    assert hold.is_long
    assert hold.culprit is None


def test_page_begun_after_the_last_look_is_blamed() -> None:
    assert seen(*same(OTHER, 1), *same(PAGE, int(SECONDS))).culprit == ("a.test", URL)


def test_nobody_is_blamed_where_no_page_is_at_work() -> None:
    hold = seen(*same(NOTHING, 9))
    assert hold.is_long
    assert hold.culprit is None


def test_work_on_a_host_is_blamed_on_it_and_names_its_robots_txt() -> None:
    robots = "http://a.test/robots.txt"
    assert seen(*same(mark_of(host_key("a.test"), robots), 9)).culprit == ("a.test", robots)
    assert seen(*same(mark_of(host_key("a.test")), 9)).culprit == ("a.test", "")


def test_a_mark_that_is_half_written_blames_nobody() -> None:
    torn = PAGE[:8] + b"x" + PAGE[9:]
    assert seen(*same(torn, 9)).culprit is None


def test_longest_key_and_url_are_cut_to_the_room() -> None:
    url = "http://a.test/" + 10_000 * "x"
    culprit = seen(*same(mark_of(queue_key(host_key("a.test"), 0, 7), url), 9)).culprit
    assert culprit is not None
    assert len(culprit[1]) > 3000
    assert url.startswith(culprit[1])


def test_a_machine_that_was_asleep_held_nothing() -> None:
    assert not seen(*same(PAGE, 1), (100.0, PAGE, 86_400.0)).is_long


def test_a_crawl_that_closes_its_folder_is_not_watched() -> None:
    assert not seen(*same(PAGE, 5), *same(PAGE, 99, beat=inf)).is_long


@pytest.mark.parametrize(
    ("mark", "signalled", "ends"),
    [(PAGE, 0.0, False), (PAGE, 99.0, True), (NOTHING, 99.0, False), (NOTHING, 101.0, True)],
)
def test_a_signal_ends_a_crawl_that_is_held_unless_it_is_closing(
    mark: bytes, signalled: float, *, ends: bool
) -> None:
    """One that came before the loop last turned, at 100, has begun to close it: a page may not hold
    that up."""
    assert seen(*same(mark, 9)).strands(signalled) is ends
    assert not seen(*same(mark, 3)).strands(signalled)


# --- whole crawls ---


def hold_and_interrupt(web: MockWeb, crawl: Crawl) -> float:
    """SIGINT while a step holds the loop; how long it took to end, as if by kill -9."""
    asked = "/robots.txt" if crawl.arguments["way"] == "robots" else "/deadly"
    before = len(web.log())
    crawl.start()
    crawl.wait_until(lambda: any(entry.path == asked for entry in web.log()[before:]))
    # It has the answer by then, and is in the midst of it.
    time.sleep(1)
    start = time.monotonic()
    crawl.process.send_signal(signal.SIGINT)
    crawl.wait(code=SIGKILL)
    return time.monotonic() - start


def log_lines(crawl: Crawl) -> list[str]:
    return [
        line for line in crawl.log.splitlines() if "[krowlspider.job.monitoring.watchdog]" in line
    ]


def counters(crawl: Crawl) -> list[int]:
    """Holds, those for which a host is blamed, and hosts set aside."""
    names = ("holds_count", "blamed_count", "set_aside_count")
    return [crawl.stats[f"krowl/watchdog/{name}"] for name in names]


def watchdogs(pid: int) -> list[int]:
    """The watchdog among the children of a crawl, which runs other programs at its start."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"\0-I\0-S\0" in _command(child)]


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        # It has ended.
        return b""


@pytest.mark.slow
def test_sigint_ends_a_crawl_that_a_call_in_c_holds(tmp_path: Path) -> None:
    """One that no thread and no handler of Python's gets past. The page and its host are in the
    log."""
    with MockWeb(spec=SITE) as web:
        crawl = deadly_crawl(web, tmp_path, "locked")
        assert hold_and_interrupt(web, crawl) < PROMISED
        url = web.url(HOSTS[0], "/deadly")
        held, ended = log_lines(crawl)
        assert f"held for 5 s, by {url} (host {url.split('/')[2]}), in spiders/deadly.py:" in held
        assert re.search(r"deadly.py:\d+ locked < ", held)
        assert " WARNING: " in held
        assert "SIGINT received" in ended
        assert (crawl.jobdir / NOTES).exists()


def test_the_watchdog_ends_with_its_crawl_however_that_ends(tmp_path: Path) -> None:
    with MockWeb(spec=SITE) as web:
        crawl = deadly_crawl(web, tmp_path, "asleep").start()
        crawl.wait_until(lambda: bool(watchdogs(crawl.process.pid)))
        (watchdog,) = watchdogs(crawl.process.pid)
        # A terminal sends it to both.
        os.kill(watchdog, signal.SIGINT)
        os.kill(watchdog, signal.SIGTERM)
        crawl.wait_until(lambda: any(entry.path == "/deadly" for entry in web.log()))
        assert Path(f"/proc/{watchdog}").exists()
        crawl.kill()
        end = time.monotonic() + 30
        while Path(f"/proc/{watchdog}").exists():
            assert time.monotonic() < end
            time.sleep(0.05)


def test_its_counters_are_there_from_zero(tmp_path: Path) -> None:
    with MockWeb(spec=SITE) as web:
        assert counters(deadly_crawl(web, tmp_path, "parse").run()) == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["loop", "regex", "asleep", "robots"])
def test_it_ends_whatever_holds_the_loop(tmp_path: Path, way: str) -> None:
    with MockWeb(spec=SITE) as web:
        crawl = deadly_crawl(web, tmp_path, way)
        assert hold_and_interrupt(web, crawl) < PROMISED
        held, _ = log_lines(crawl)
        path = "/robots.txt" if way == "robots" else "/deadly"
        assert f"by {web.url(HOSTS[0], path)} (host {HOSTS[0]}:" in held


@pytest.mark.slow
def test_second_hold_sets_the_host_aside(tmp_path: Path) -> None:
    """All else is fetched."""
    with MockWeb(spec=SITE) as web:
        for _ in range(2):
            hold_and_interrupt(web, deadly_crawl(web, tmp_path, "loop"))
        before = len(web.log())
        last = deadly_crawl(web, tmp_path, "loop").run()
        host = web.url(HOSTS[0], "").split("/")[2]
        assert not [entry for entry in web.log()[before:] if entry.host == host]
        (warning,) = [line for line in last.complaints if "is set aside" in line]
        assert (
            f"{host} is set aside for a day: it has held the event loop for over 5 s 2" in warning
        )
        others = {(entry.host.partition(":")[0], entry.path) for entry in pages(web.log())}
        assert ORDINARY - others <= {(HOSTS[0], f"/{number}") for number in range(4)}
        shown = scrapy("frontier", last.jobdir, "--host", host)
        assert b"It is set aside: it has held the event loop" in shown.stdout
        assert counters(last) == [0, 0, 1]
        # The page that holds it, and what is left of the other four.
        assert 1 <= frontier_view(last.jobdir)["queued"] <= 5
        scrapy("frontier", last.jobdir, "--forget", host)
        deadly_crawl(web, tmp_path, "parse").run()
        done = {(entry.host.partition(":")[0], entry.path) for entry in pages(web.log())}
        assert done == ORDINARY | {(HOSTS[0], "/deadly")}


@pytest.mark.slow
def test_page_that_holds_a_closing_crawl_is_named_and_ended(tmp_path: Path) -> None:
    late = [page("/robots.txt", ""), page("/deadly", "late", latency=3), *SITE[2:]]
    with MockWeb(spec=late) as web:
        crawl = deadly_crawl(web, tmp_path, "loop").start()
        crawl.wait_until(lambda: any(entry.path == "/0" for entry in web.log()))
        crawl.process.send_signal(signal.SIGINT)
        crawl.wait(code=SIGKILL)
        assert "shutting down gracefully" in crawl.log
        assert f"by {web.url(HOSTS[0], '/deadly')} " in log_lines(crawl)[0]


@pytest.mark.slow
def test_what_is_worked_out_at_the_pop_is_blamed_on_its_host(tmp_path: Path) -> None:
    """An exclusion that goes back and forth without end, over a URL that is queued already."""
    url_path = "/" + 40 * "a" + "b"
    with MockWeb(spec=[page("/robots.txt", ""), page("^/", "late", latency=60)]) as web:
        url = web.url("a.test", url_path)
        crawl = crawl_of(web, tmp_path, [url]).start()
        crawl.wait_until(lambda: any(entry.path == url_path for entry in web.log()))
        crawl.kill()
        (tmp_path / "exclude").write_text("(a+)+$\n")
        settings = {"KROWL_EXCLUDE": tmp_path / "exclude"}
        again = crawl_of(web, tmp_path, [web.url("b.test")], settings=settings).start()
        again.wait_until(lambda: bool(log_lines(again)))
        again.process.send_signal(signal.SIGTERM)
        again.wait(code=SIGKILL)
        held, ended = log_lines(again)
        assert f"by work on host {url.split('/')[2]}, in " in held
        assert "urls/seeds.py" in held
        assert "SIGTERM received" in ended


@pytest.mark.slow
def test_a_hold_that_ends_by_itself_ends_nothing(tmp_path: Path) -> None:
    with MockWeb(spec=SITE) as web:
        crawl = deadly_crawl(web, tmp_path, "slow", KROWL_LOG_FORMAT="json").run()
        lines = [json.loads(line) for line in crawl.log.splitlines()]
        held, free = (line for line in lines if line["event"] in {"loop_held", "loop_free"})
        assert f"by {web.url(HOSTS[0], '/deadly')} " in held["message"]
        assert free["level"] == "INFO"
        assert re.search(r"^The event loop is free again after [89] s$", free["message"])
        # Its lines are as those of the crawl.
        assert {*map(tuple, lines)} == {tuple(held)}
        assert {line["time"][10::13] for line in lines} == {"TZ"}
        assert {line["pid"] for line in lines} == {held["pid"]}
        assert counters(crawl) == [1, 1, 0]
        assert {(e.host.partition(":")[0], e.path) for e in pages(web.log())} >= ORDINARY
        # While it closed its folder it was not watched.
        (beat,) = Struct("=d").unpack_from((crawl.jobdir / MARK).read_bytes(), BEAT_AT)
        assert beat == inf

"""Whole crawls by the library: exact pages, however a loop ends."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from krowlspider import crawl, run
from krowlspider.errors import CrawlError, JobError, SettingsError
from krowlspider.job.folder import holder_of
from krowlspider.library import process
from tests.library.webs import GIVEN, PAGES, REACHING, asked, found, small_web, urls_of
from tests.mockweb import MockWeb
from tests.support.archived import valid_records
from tests.support.crawling import CONTACT, DEADLINE, ROOT, scrapy, write_seeds
from tests.support.crawls import ROBOTS, anchors, page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider import Page

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _all_have_ended() -> Iterator[None]:
    """Each crawl of a test ends, and its temporary folder is gone."""
    yield
    gc.collect()
    for child in list(process._started):
        assert child.is_leaving
        child.wait()
    assert process._started == []


async def all_of(web: MockWeb, host: str = "a.test", **more: Any) -> list[Page]:
    return [each async for each in crawl(web.url(host), **{**GIVEN, **more})]


# --- pages ---


def test_pages_come_with_what_is_known_of_them(tmp_path: Path) -> None:
    spec = [
        ROBOTS,
        page("/", "<html lang=de><title>Root</title><a href=/moved>x</a><a href=/gone>x</a>"),
        {"path": "/moved", "redirect": "/latin"},
        page("/gone", "not here", status=404),
        {
            "path": "/latin",
            "headers": {"Content-Type": "text/html; charset=iso-8859-1", "X-A": "b"},
            "body_base64": "Z3L8bg==",
        },
    ]
    with MockWeb(spec=spec) as web:
        seed = web.url("a.test")
        with run(seed, jobdir=tmp_path / "job", **GIVEN) as pages:
            root, *others = sorted(pages, key=lambda each: each.url)
        assert (root.url, root.status, root.depth, root.seed) == (seed, 200, 0, seed)
        assert (root.title, root.lang, root.tag) == ("Root", "de", None)
        assert root.links == [web.url("a.test", "/moved"), web.url("a.test", "/gone")]
        gone, latin = others
        assert (gone.status, gone.body, gone.depth) == (404, b"not here", 1)
        assert (latin.url, latin.redirected_from) == (
            web.url("a.test", "/latin"),
            [web.url("a.test", "/moved")],
        )
        assert (latin.text, latin.charset, latin.media_type) == (
            "grün",
            "windows-1252",
            "text/html",
        )
        assert latin.headers["x-a"] == "b"
        assert abs(latin.fetched.timestamp() - time.time()) < DEADLINE
    archived = valid_records(tmp_path / "job" / "warc")
    for each in (root, gone, latin):
        (record,) = archived.about(each.url).of_kind("response")
        assert each.record is not None
        assert (each.record.file, each.record.id) == (record.file, record["WARC-Record-ID"])
        assert each.body in record.block


def test_a_crawl_is_a_crawl_of_the_command(tmp_path: Path) -> None:
    """Each goes on in the folder of the other, and asks for no page again."""
    job = tmp_path / "job"
    with small_web() as web:
        with run(web.url("a.test"), jobdir=job, max_pages=5, **GIVEN) as pages:
            assert len(found(pages)) == 5
        assert pages.stats["finish_reason"] == "max_pages"
        options = [f"{name}={value}" for name, value in REACHING.items()]
        more = [word for each in options for word in ("-s", each)]
        seeds = write_seeds(tmp_path / "seeds.txt", [web.url("b.test")])
        scrapy(
            *("crawl", "broad", "-a", f"seeds={seeds}", "-a", "max_pages=9"),
            *("-s", f"JOBDIR={job}", "-s", f"KROWL_CONTACT={CONTACT}", *more),
        )
        rest = found(run((), jobdir=job, **GIVEN))
        assert len(rest) == 2 * PAGES - 5 - 9
        assert asked(web) == sorted([*urls_of(web), *urls_of(web, "b.test")])


def test_a_file_of_seeds_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with small_web() as web:
        seeds = write_seeds(tmp_path / "seeds", [web.url("a.test"), "ftp://a", web.url("b.test")])
        pages = run(seeds, max_depth=0, **GIVEN)
        assert found(pages) == [web.url("a.test"), web.url("b.test")]
    assert f"{seeds} line 2 skipped: scheme ftp" in caplog.text


def test_a_crawl_may_have_no_archive(tmp_path: Path) -> None:
    """And an archive may outlive a temporary folder."""
    warc = tmp_path / "warc"
    with small_web() as web:
        one = list(run(web.url("a.test"), jobdir=tmp_path / "job", archive=False, **GIVEN))
        settings = {**REACHING, "KROWL_WARC_DIR": warc}
        two = list(run(web.url("a.test"), archive=True, contact=CONTACT, settings=settings))
    assert found(one) == found(two) == urls_of(web)
    assert {each.record for each in one} == {None}
    assert not list((tmp_path / "job").rglob("*.warc.gz"))
    ids = {each.record.id for each in two if each.record is not None}
    assert len(ids) == PAGES
    assert len(valid_records(warc)) > 2 * PAGES


def test_limits_and_settings_hold(tmp_path: Path) -> None:
    """A feed has the same pages as the program."""
    feed = tmp_path / "pages.jsonl"
    settings = {**REACHING, "FEEDS": {feed: {"format": "jsonlines"}}}
    with small_web() as web:
        pages = run(
            web.url("a.test"), deny=r"/\d\d", same_domain=True, contact=CONTACT, settings=settings
        )
        urls = [each for each in urls_of(web) if not each.endswith(("/10", "/11"))]
        assert found(pages) == urls
        assert asked(web) == urls
    assert sorted(json.loads(line)["url"] for line in feed.read_text().splitlines()) == urls


# --- loops ---


def test_each_asyncio_run_has_its_crawls() -> None:
    """Two crawls in a loop at once and one after them, then others in a second loop, in uvloop,
    in a thread, and without a loop while one runs."""

    async def both(web: MockWeb) -> None:
        one, two = await asyncio.gather(all_of(web), all_of(web, "b.test"))
        assert (found(one), found(two)) == (urls_of(web), urls_of(web, "b.test"))
        assert found(await all_of(web)) == urls_of(web)

    async def blocking(web: MockWeb) -> None:
        assert found(run(web.url("a.test"), **GIVEN)) == urls_of(web)

    with small_web() as web:
        asyncio.run(both(web))
        asyncio.run(blocking(web))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert found(runner.run(all_of(web))) == urls_of(web)
        results: list[list[Page]] = []
        thread = threading.Thread(target=lambda: results.append(asyncio.run(all_of(web))))
        thread.start()
        thread.join()
        assert found(results[0]) == urls_of(web)


def test_one_task_iterates() -> None:
    async def main(web: MockWeb) -> None:
        async with crawl(web.url("a.test"), **GIVEN) as pages:
            first = asyncio.create_task(anext(pages))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task waits for the next page"):
                await anext(pages)
            assert (await first).url == web.url("a.test")

    with small_web() as web:
        asyncio.run(main(web))


# --- ends ---


def test_the_next_run_has_what_is_left_after_a_break(tmp_path: Path) -> None:
    """With ``async with`` and ``with``, each page comes exactly once. Others have been fetched when
    the program leaves, and wait for it."""
    job = tmp_path / "job"
    before: list[Page] = []

    async def some(web: MockWeb, count: int) -> list[Page]:
        taken = []
        async with crawl(web.url("a.test"), jobdir=job, **GIVEN) as pages:
            async for each in pages:
                taken.append(each)
                if len(taken) == count:
                    await asyncio.to_thread(others_wait, web, len(before) + count)
                    break
        before.extend(taken)
        assert pages.stats["finish_reason"] == "shutdown"
        assert [each async for each in pages] == []
        return taken

    with small_web() as web:
        taken = asyncio.run(some(web, 3))
        taken += asyncio.run(some(web, 1))
        with run(web.url("a.test"), jobdir=job, **GIVEN) as pages:
            taken += [next(pages), next(pages)]
            others_wait(web, len(taken))
        assert list(pages) == []
        assert not list((job / "warc").glob("*.open"))
        with run(web.url("a.test"), jobdir=job, **GIVEN) as pages:
            taken += pages
        assert found(taken) == urls_of(web)


def others_wait(web: MockWeb, taken: int) -> None:
    """Wait until more pages were fetched than were taken."""
    end = time.monotonic() + DEADLINE
    while len(set(asked(web))) < taken + 2:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_crawl_waits_for_the_one_before_in_its_folder(tmp_path: Path) -> None:
    """That one stops only when a slow page has come."""
    given = {**GIVEN, "jobdir": tmp_path / "job"}
    slow = page("/slow", "slow", latency=5)

    async def left(web: MockWeb) -> list[str]:
        async for _ in crawl(web.url("a.test"), **given):
            # Its next request is under way by then.
            await asyncio.sleep(1)
            break
        return found([each async for each in crawl(web.url("a.test"), **given)])

    with MockWeb(
        spec=[ROBOTS, page("/", anchors("/slow", "/more")), slow, page("/more", "")]
    ) as web:
        urls = [web.url("a.test", path) for path in ("/", "/more", "/slow")]
        assert asyncio.run(left(web)) == urls


@pytest.mark.parametrize("how", ["break", "error", "error with", "cancel", "timeout", "stop"])
def test_the_page_at_hand_is_acknowledged_by_the_next(tmp_path: Path, how: str) -> None:
    """After an error, a cancelled task, or a loop that was only left, it comes again."""
    job = tmp_path / "job"

    async def three(web: MockWeb) -> list[Page]:
        taken = []
        pages = crawl(web.url("a.test"), jobdir=job, **GIVEN)
        if how == "error with":
            async with pages:
                async for each in pages:
                    taken.append(each)
                    if len(taken) == 3:
                        seen.append(taken)
                        raise ZeroDivisionError
        async for each in pages:
            taken.append(each)
            if len(taken) < 3:
                continue
            seen.append(taken)
            if how == "break":
                break
            if how == "error":
                raise ZeroDivisionError
            if how == "cancel":
                asyncio.current_task().cancel()  # type: ignore[union-attr]
                await asyncio.sleep(1)
            if how == "timeout":
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0):
                        await anext(pages)
                # Of a crawl that was cancelled no page comes.
                assert [each async for each in pages] == []
            if how == "stop":
                await pages.stop()
        return taken

    seen: list[list[Page]] = []
    with small_web() as web:
        try:
            asyncio.run(three(web))
        except (ZeroDivisionError, asyncio.CancelledError):
            assert how in {"error", "error with", "cancel"}
        (taken,) = seen
        assert len(taken) == 3
        rest = found(run(web.url("a.test"), jobdir=job, **GIVEN))
        # In "timeout" the next page was asked for, and in "stop" the block went on to its end.
        done = taken if how in {"timeout", "stop"} else taken[:-1]
        assert rest == sorted({*urls_of(web)} - {each.url for each in done})


def is_asked(web: MockWeb) -> None:
    while not web.log():
        time.sleep(0.1)


def test_a_crawl_that_is_stopped_gives_no_more_pages() -> None:
    """A task that waits gets none: the answer comes after 30 s only."""

    async def main(web: MockWeb) -> None:
        pages = crawl(web.url("a.test"), **GIVEN, jobdir=None)
        waiting = asyncio.create_task(anext(pages, None))
        await asyncio.to_thread(is_asked, web)
        await pages.stop()
        assert await waiting is None
        await pages.stop()
        assert await anext(pages, None) is None

    with MockWeb(spec=[ROBOTS, page("/", "slow", latency=3)]) as web:
        asyncio.run(main(web))


def test_a_stop_before_the_start_starts_nothing() -> None:
    async def main() -> None:
        pages = crawl("a.test", **GIVEN)
        await pages.stop()
        assert [each async for each in pages] == []

    asyncio.run(main())
    blocking = run("a.test", **GIVEN)
    blocking.stop()
    assert list(blocking) == []
    assert process._started == []


def test_a_temporary_folder_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with small_web() as web:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        pages = run(web.url("a.test"), **GIVEN)
        next(pages)
        (folder,) = tmp_path.glob("krowlspider-*")
        assert (folder / "frontier").is_dir()
        assert len(list(pages)) == PAGES - 1
        assert list(tmp_path.iterdir()) == []
        # The process removes it too when nobody waits for it.
        pages = run(web.url("a.test"), **GIVEN)
        next(pages)
        (child,) = process._started
        del pages
        child._process.wait(DEADLINE)
        assert list(tmp_path.iterdir()) == []


# --- back-pressure ---


def test_a_slow_program_holds_the_crawl() -> None:
    """Ahead of the program are at most as many pages as may be in flight."""
    settings = {**REACHING, "CONCURRENT_REQUESTS": 4, "KROWL_DELAY_MIN": 0, "KROWL_DELAY_FACTOR": 0}
    with small_web(60, body="x" * 100_000) as web:
        with run(web.url("a.test"), contact=CONTACT, settings=settings) as pages:
            taken = [next(pages), next(pages)]
            before = -1
            while (now := len(asked(web))) != before:
                before = now
                time.sleep(1)
            # The second page is at hand.
            assert now <= 1 + 4
            taken += pages
        assert found(taken) == urls_of(web, pages=60)


# --- faults ---


def test_a_wrong_setting_is_named_before_anything_is_asked() -> None:
    with small_web() as web:
        for name, value, error in [
            ("KROWL_DELAY_MAX", -1, "KROWL_DELAY_MAX=-1"),
            ("KROWL_DELAY_MAXX", 1, "KROWL_DELAY_MAXX is not a setting: did you mean"),
            ("SCHEDULER", "scrapy.core.scheduler.Scheduler", "SCHEDULER="),
            ("ITEM_PIPELINES", {"no.such.Pipeline": 1}, "no.such.Pipeline"),
        ]:
            given = {**GIVEN, "settings": {**REACHING, name: value}}
            with pytest.raises((SettingsError, CrawlError), match=error):
                list(run(web.url("a.test"), **given))
        assert web.log() == []


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    given = {**GIVEN, "jobdir": tmp_path / "job"}
    with small_web() as web:
        with run(web.url("a.test"), **given) as pages:
            next(pages)
            with pytest.raises(JobError, match="is in use by process"):
                list(run(web.url("a.test"), **given))
            taken = 1 + len(list(pages))
        assert taken == PAGES
    with pytest.raises(CrawlError, match=r"no URL is queued in .*: give seeds"):
        list(run((), contact=CONTACT, jobdir=tmp_path / "new"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_the_process_is_an_error(tmp_path: Path, number: int) -> None:
    """And the same folder goes on."""
    given = {**GIVEN, "jobdir": tmp_path / "job"}
    error = "killed by signal 9; the same jobdir" if number == signal.SIGKILL else "by a signal"
    with small_web() as web:
        taken = []
        pages = run(web.url("a.test"), **given)
        taken += [next(pages), next(pages), next(pages)]
        process._started[0]._process.send_signal(number)
        with pytest.raises(CrawlError, match=error):
            taken.extend(pages)
        taken += run(web.url("a.test"), **given)
        assert {*found(taken)} == {*urls_of(web)}


def test_nothing_fetched_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    assert (
        list(run("http://a.test:8/", **{**GIVEN, "settings": {**REACHING, "RETRY_TIMES": 0}})) == []
    )
    assert "No page was fetched" in caplog.text


def test_the_program_decides_what_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with small_web() as web:
        assert len(list(run(web.url("a.test"), **GIVEN))) == PAGES
    lines = [each for each in caplog.records if "Crawl ended (finished)" in each.getMessage()]
    assert len(lines) == 1
    assert lines[0].levelno == logging.INFO


# --- programs ---

_SCRIPT = """
import asyncio, sys
from krowlspider import crawl

async def main():
    async with crawl({seed!r}, contact={contact!r}, settings={settings!r}, jobdir="job") as pages:
        async for page in pages:
            with open("taken", "a") as taken:
                taken.write(page.url + chr(10))
            await asyncio.sleep({pause})

asyncio.run(main())
"""


def script(folder: Path, web: MockWeb, pause: float = 0.05, **more: Any) -> subprocess.Popen[str]:
    """Start a program in a folder of its own, as in a terminal of its own."""
    text = _SCRIPT.format(
        seed=web.url("a.test"), contact=CONTACT, settings={**REACHING, **more}, pause=pause
    )
    (folder / "program.py").write_text(text)
    return subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def taken_by(folder: Path) -> list[str]:
    path = folder / "taken"
    return path.read_text().splitlines() if path.exists() else []


def wait_for(folder: Path, count: int) -> None:
    end = time.monotonic() + DEADLINE
    while len(taken_by(folder)) < count:
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("both", [False, True], ids=["program", "both"])
def test_kill_9_of_a_program_loses_no_page(tmp_path: Path, *, both: bool) -> None:
    """Each page comes at least once. If only the program is killed, one at most comes twice for
    each kill."""
    pages = 40
    with small_web(pages) as web:
        for count in (3, 12, 25):
            with script(tmp_path, web) as started:
                wait_for(tmp_path, count)
                child = int((tmp_path / "job" / "lock").read_text())
                if both:
                    os.kill(child, signal.SIGKILL)
                started.kill()
                started.communicate()
            wait_for_end(child)
        with script(tmp_path, web) as started:
            _, errors = started.communicate(timeout=DEADLINE)
        assert started.returncode == 0, errors
        taken = taken_by(tmp_path)
        assert {*taken} == {*urls_of(web, pages=pages)}
        if not both:
            assert len(taken) <= pages + 3


def wait_for_end(pid: int) -> None:
    end = time.monotonic() + DEADLINE
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_program_ends_after_its_crawls(tmp_path: Path) -> None:
    """Also after a crawl that it has only left, whose slow page is under way."""
    slow = page("/slow", "slow", latency=5)
    text = """
import time
from krowlspider import run

pages = run({seed!r}, contact={contact!r}, settings={settings!r}, jobdir="job")
next(pages)
time.sleep(1)
"""
    with MockWeb(spec=[ROBOTS, page("/", anchors("/slow")), slow]) as web:
        text = text.format(seed=web.url("a.test"), contact=CONTACT, settings=REACHING)
        # Without pipes, which its crawl would hold open.
        command = [sys.executable, "-c", text]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, check=True, cwd=tmp_path, env=environment, stderr=DEVNULL)
        assert holder_of(tmp_path / "job") is None
        assert not list((tmp_path / "job" / "warc").glob("*.open"))
        assert web.url("a.test", "/slow") in asked(web)


def test_a_crawl_ends_though_a_forked_process_lives(tmp_path: Path) -> None:
    """A pool of workers that was forked during the crawl outlives its program."""
    text = """
import os, signal, sys
from krowlspider import run

pages = run({seed!r}, contact={contact!r}, settings={settings!r}, jobdir="job")
next(pages)
if os.fork() == 0:
    try:
        next(pages)
    except RuntimeError as error:
        print(error, flush=True)
    sys.stdin.read()
    os._exit(0)
os.wait()
"""
    with small_web() as web:
        text = text.format(seed=web.url("a.test"), contact=CONTACT, settings=REACHING)
        with subprocess.Popen(
            [sys.executable, "-c", text],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=DEVNULL,
        ) as started:
            assert started.stdin is not None
            assert started.stdout is not None
            assert b"this crawl is of another process" in started.stdout.readline()
            child = int((tmp_path / "job" / "lock").read_text())
            started.kill()
            wait_for_end(child)
            started.stdin.close()


@pytest.mark.timeout(300)
def test_ctrl_c_ends_a_program_and_its_crawl(tmp_path: Path) -> None:
    """A terminal sends it to the whole foreground group: the archive is whole when the program has
    ended, and the next start has the rest."""
    with small_web() as web:
        with script(tmp_path, web) as started:
            wait_for(tmp_path, 3)
            os.killpg(started.pid, signal.SIGINT)
            _, errors = started.communicate(timeout=DEADLINE)
        assert "KeyboardInterrupt" in errors or "interrupted" in errors
        assert not list((tmp_path / "job" / "warc").glob("*.open"))
        with script(tmp_path, web, pause=0) as started:
            started.communicate(timeout=DEADLINE)
        taken = taken_by(tmp_path)
        assert {*taken} == {*urls_of(web)}
        assert len(taken) <= PAGES + 1

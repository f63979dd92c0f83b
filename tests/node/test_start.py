"""What `scrapy node` refuses, what each process gets, and the exit code of all."""

from __future__ import annotations

import asyncio
import json
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.transport.redis_connection import redis_client
from krowlspider.errors import KrowlError, SettingsError
from krowlspider.job.limits import CrawlLimits
from krowlspider.node.figures import exit_code, reason
from krowlspider.node.processes import PrivateRedis, find_redis
from krowlspider.node.tree import DIVIDED, Tree, Words, shares
from tests.support.crawling import CONTACT
from tests.support.debian import program
from tests.support.in_process import run_here
from tests.support.settings import project_settings
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Mapping


def refused(*words: object, environment: Mapping[str, str] | None = None) -> str:
    """The one line by which the command ends."""
    given = ["node", "-s", f"KROWL_CONTACT={CONTACT}", *map(str, words)]
    done = run_here(given, environment=environment)
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    return line.removeprefix("krowlspider: ")


@table(
    ("words", "reason"),
    [
        (["--processes", "0"], "--processes 0 is not a number from 1 to 64"),
        (["--processes", "two"], "--processes two is not a number"),
        (["nobody"], "there is no spider 'nobody'"),
        (["-s", "KROWL_DELAY_MAX=x"], "KROWL_DELAY_MAX='x'"),
        (["-s", "KROWL_NO_SUCH=1"], "KROWL_NO_SUCH is not a setting"),
        (["-s", "KROWL_NODE_ID=a"], "KROWL_NODE_ID is set, and scrapy node makes a cluster"),
        ([], "JOBDIR is not set"),
        (["-s", "JOBDIR=j", "-a", "max_pages=x"], "-a max_pages=x: give a whole number"),
        (
            ["-s", "JOBDIR=j", "-a", "max_pages=5", "-s", "KROWL_CLUSTER_PAGES=9"],
            "max_pages and KROWL_CLUSTER_PAGES are both given",
        ),
    ],
)
def test_bad_input_stops_the_start(words: list[str], reason: str) -> None:
    assert refused(*words).startswith(reason)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("job.json", "belongs to a crawl of one process"), ("notes", "is not empty and not of")],
)
def test_folder_of_something_else_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / name).touch()
    assert reason in refused("-s", f"JOBDIR={tmp_path}")


def test_draft_of_the_register_that_a_kill_has_left_is_no_obstacle(tmp_path: Path) -> None:
    for name in ("p1", "register", "register.4711.new"):
        (tmp_path / name).touch()
    tree = Tree(tmp_path)
    tree.check()
    tree.take()
    assert not (tmp_path / "register.4711.new").exists()
    assert (tmp_path / "register").exists()


def test_missing_redis_server_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KrowlError, match=r"no redis-server on PATH.*apt install redis-server"):
        find_redis(tmp_path / "none", servers=str(tmp_path))


def test_budgets_are_divided() -> None:
    settings = project_settings(KROWL_MEMORY_LIMIT=400_000_000, CONCURRENT_REQUESTS=3)
    parts = shares(settings, 4)
    assert parts["KROWL_MEMORY_LIMIT"] == 100_000_000
    # Never 0, which would be no limit.
    assert parts["CONCURRENT_REQUESTS"] == 1
    assert "KROWL_CRAWL_LOG" not in parts
    assert "KROWL_DISK_FLOOR" not in {*parts, *DIVIDED}
    # The check of the settings refuses less.
    assert shares(settings, 64)["KROWL_MEMORY_LIMIT"] == 4 * settings.getint("DOWNLOAD_MAXSIZE")


def test_each_process_has_its_own_files(tmp_path: Path) -> None:
    pages = {"format": "jsonlines", "overwrite": True}
    feeds = {"out/pages.jsonl.gz": pages, "-": {"format": "csv"}}
    given = {"LOG_LEVEL": "INFO", "LOG_FILE": "log", "LOG_FILE_APPEND": False}
    settings = project_settings(FEEDS=feeds, KROWL_WARC_DIR="/archive", **given)
    words = Words("broad", {"seeds": "a.test"}, ["LOG_LEVEL=INFO"], settings, 2)

    def own(restarts: int) -> dict[str, str]:
        found = words.of("p2", tmp_path / "p2", restarts)
        return dict(word.split("=", 1) for flag, word in pairwise(found) if flag == "-s")

    first = own(0)
    assert json.loads(first["FEEDS"])["out/pages-p2.jsonl.gz"]["overwrite"]
    assert not json.loads(own(1)["FEEDS"])["out/pages-p2.jsonl.gz"]["overwrite"]
    assert "-" in json.loads(first["FEEDS"])
    assert first["KROWL_WARC_DIR"] == "/archive/p2"
    assert first["JOBDIR"] == str(tmp_path / "p2")
    assert "[p2]" in first["LOG_FORMAT"]
    # The page of all takes 9410.
    assert first["PROMETHEUS_PORT"] == "9412,9512"
    assert first["LOG_LEVEL"] == "INFO"
    # The next one that opens it must not empty it.
    assert first["LOG_FILE_APPEND"] == "1"


def test_password_of_a_feed_gets_into_no_list_of_processes() -> None:
    feeds = {"ftp://user:secret@files.example/pages.csv": {"format": "csv"}}
    with pytest.raises(SettingsError, match="a feed names a user") as caught:
        Words("broad", {}, [], project_settings(FEEDS=feeds), 2)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("codes", "done", "dropped", "stopped", "code"),
    [
        ([0, 0], 5, 1, False, 0),
        ([0, 7, 3], 5, 0, False, 3),
        ([6, 7], 5, 0, True, 6),
        # No process knows that no other has fetched a page.
        ([0, 0], 0, 2, False, 4),
        ([0, 0], 0, 2, True, 0),
        ([0, 0], 0, 0, False, 0),
        ([0, -9], 5, 0, True, 1),
    ],
)
def test_exit_code_is_the_gravest(
    codes: list[int], done: int, dropped: int, stopped: bool, code: int
) -> None:
    total = {"done": done, "dropped": dropped, "deferred": 0}
    assert exit_code(codes, total, stopped=stopped) == code


@pytest.mark.parametrize(
    ("codes", "queued", "limits", "stopped", "why"),
    [
        ([0, 3], 5, CrawlLimits(pages=9), False, "failed"),
        ([0, 0], 5, CrawlLimits(pages=9), True, "stopped"),
        ([0, 0], 5, CrawlLimits(pages=9), False, "max_pages"),
        ([0, 0], 5, CrawlLimits(pages=9, seconds=60), False, "closespider_timeout"),
        ([0, 0], 0, CrawlLimits(pages=9, seconds=61), False, "finished"),
        ([0, 0], 5, CrawlLimits(), False, "finished"),
    ],
)
def test_reason_names_the_limit_that_was_reached(
    codes: list[int], queued: int, limits: CrawlLimits, stopped: bool, why: str
) -> None:
    assert reason(codes, {"queued": queued}, limits, 60.0, stopped=stopped) == why


def test_private_redis_syncs_no_message(tmp_path: Path) -> None:
    """A URL leaves the disk of its finder when it is on that of its owner. A snapshot keeps what a
    person has pushed for the next start."""

    async def run(redis: PrivateRedis, process: subprocess.Popen[bytes]) -> tuple[object, object]:
        await redis.wait(lambda: process.poll() is not None)
        async with redis_client(redis.url_of("p1")) as client:
            before = await client.get("pushed")
            await client.set("pushed", "url")
            return await client.config_get("appendonly"), before

    found = []
    for _ in range(2):
        redis = PrivateRedis(Path(program("redis-server")), tmp_path)
        process = subprocess.Popen(redis.command(), stdout=subprocess.DEVNULL)
        try:
            found.append(asyncio.run(run(redis, process)))
        finally:
            process.terminate()
            process.wait(20)
            redis.remove_sockets()
    assert found == [({"appendonly": "no"}, None), ({"appendonly": "no"}, b"url")]

"""``scrapy ring``: members, their backlog, and who owns a URL."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from krowlspider.cluster.membership import parse_ring
from krowlspider.cluster.ring import Ring
from tests.cluster.servers import redis_server
from tests.crawling import CONTACT, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.servers import Server

DOWN = "redis://:secret@127.0.0.1:1/0"


def ring(*arguments: str, members: str) -> subprocess.CompletedProcess[str]:
    settings = ["-s", f"KROWL_CONTACT={CONTACT}", "-s", f"KROWL_RING={members}"]
    return subprocess.run(
        [sys.executable, "-m", "scrapy", "ring", *settings, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with redis_server(tmp_path / "redis") as server:
        yield server


def test_it_shows_what_waits_for_each_member_and_what_it_last_said(server: Server) -> None:
    with Redis.from_url(server.url) as client:
        client.lpush("broad:requests", *(b'{"url": "http://a.test/"}' for _ in range(3)))
        client.lpush("broad:start_urls", "http://b.test/")
        client.lpush("broad:dead", "{}")
        said = {"done": 12, "queued": 5, "outbox": 4}
        client.hset(
            "krowlspider:krowlspider:beats", "a", json.dumps({**said, "time": time.time() - 70})
        )
    result = ring("--json", members=f"a={server.url},b={server.url[:-1]}1*3")
    a, b = json.loads(result.stdout)
    assert result.returncode == 0
    waiting = {"requests": 3, "start_urls": 1, "processing": 0, "dead": 1}
    assert {name: a[name] for name in (*waiting, *said)} == {**waiting, **said}
    assert 70 <= a["seconds_ago"] < 100
    assert (a["id"], b["id"]) == ("a", "b")
    assert a["share"] == pytest.approx(0.25, abs=0.03)
    assert a["share"] + b["share"] == pytest.approx(1, abs=0.001)
    assert "done" not in b
    assert "start_urls" in ring(members=f"a={server.url}").stdout


def test_a_redis_that_is_down_is_named_without_its_password_and_the_others_are_shown(
    server: Server,
) -> None:
    result = ring("--json", members=f"a={server.url},b={DOWN}")
    a, b = json.loads(result.stdout)
    assert result.returncode == 1
    assert a["requests"] == 0
    assert b["trouble"].startswith("down: ")
    assert "secret" not in result.stdout + result.stderr


def test_it_says_who_owns_a_url_without_asking_anybody() -> None:
    members = f"a={DOWN},b={DOWN[:-1]}1"
    urls = [f"https://www.site{number}.co.uk/x" for number in range(8)]
    found = json.loads(ring("--json", *urls, members=members).stdout)
    expected = Ring(parse_ring(members.split(",")))
    assert [row["owner"] for row in found] == [
        expected.owner(f"site{number}.co.uk") for number in range(8)
    ]
    assert {row["owner"] for row in found} == {"a", "b"}


@pytest.mark.parametrize(
    ("arguments", "members", "says"),
    [
        ((), "", "no ring"),
        ((), "a=http://x", "member 1 is not of the form"),
        (("http://",), f"a={DOWN}", "http://"),
    ],
)
def test_what_is_wrong_is_named(arguments: tuple[str, ...], members: str, says: str) -> None:
    result = ring(*arguments, members=members)
    assert result.returncode == 2
    assert says in result.stderr + result.stdout
    assert "Traceback" not in result.stderr

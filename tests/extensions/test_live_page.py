"""The live page, its API and the telnet console of a real crawl."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.request
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote

import pytest
from scrapy.exceptions import NotConfigured
from scrapy.utils.test import get_crawler

from extensions.live_page import LivePage
from krowlspider.crawl.monitoring.history import FIELDS, KEPT, History
from krowlspider.views.live import _is_local
from tests.mockweb import MockWeb
from tests.support.crawling import CONTACT, Crawl, write_seeds
from tests.support.crawls import anchors, page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPEC = [
    page("/robots.txt", "User-agent: *\nDisallow: /secret\n"),
    page("/", anchors(*(f"/{at}" for at in range(50)), "/secret")),
    page("^/[0-9]+$", "x"),
]


@contextmanager
def crawling(folder: Path) -> Iterator[SimpleNamespace]:
    """A crawl under way, with its web, the address of its page and its telnet console."""
    with MockWeb(spec=SPEC) as web:
        seeds = write_seeds(folder / "seeds.txt", [web.url("a.test")])
        settings = {
            "PROMETHEUS_ENABLED": 1,
            "PROMETHEUS_PORT": 0,
            "TELNETCONSOLE_ENABLED": 1,
            "KROWL_DELAY_MIN": 2,
        }
        run = Crawl(folder / "job", arguments={"seeds": seeds}, settings=settings)
        run.start()
        watch = awaited(run, r"page (http://127.0.0.1:\d+)/; .*telnet 127.0.0.1 (\d+)")
        while not any(entry.path == "/0" for entry in web.log()):
            time.sleep(0.05)
        yield SimpleNamespace(web=web, url=watch[1], telnet=int(watch[2]), jobdir=run.jobdir)
        run.interrupt()


def awaited(run: Crawl, pattern: str) -> re.Match[str]:
    """Return the first match in the log, once it is there."""
    end = time.monotonic() + 30
    while (found := re.search(pattern, run.log_path.read_text())) is None:
        assert time.monotonic() < end, run.log_path.read_text()
        time.sleep(0.05)
    return found


def ask(crawl: SimpleNamespace, path: str, **headers: str) -> tuple[int, Any, bytes]:
    request = urllib.request.Request(crawl.url + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except HTTPError as error:
        return error.code, error.headers, error.read()


def api(crawl: SimpleNamespace, path: str, status: int = 200) -> Any:
    code, _, body = ask(crawl, f"/api/v1/{path}")
    assert code == status, body
    return json.loads(body)


def check_the_api(crawl: SimpleNamespace) -> None:
    own = crawl.web.url("a.test")
    status = api(crawl, "status")
    assert (status["spider"], status["folder"]) == ("broad", str(crawl.jobdir))
    assert status["hosts"] == 1
    assert 40 < status["queued"] <= 50
    (host,) = api(crawl, "hosts?sort=queued&limit=5")
    assert own == f"http://{host['host']}/"
    view = api(crawl, f"host?name={quote(own)}")
    assert view["robots"][0]["status"] == 200
    assert view["why"].startswith(("It is due in", "A request to it"))
    found = api(crawl, f"explain?url={quote(own)}secret")
    assert (found["state"], found["setting"]) == ("queued", "ROBOTSTXT_OBEY")
    assert found["robots"] == "line 2: Disallow: /secret"
    assert api(crawl, "history")["fields"] == list(FIELDS)
    assert all(row["outcome"] == "done" for row in api(crawl, "pages"))


def check_bad_questions(crawl: SimpleNamespace) -> None:
    assert "no host 'x.test'" in api(crawl, "host?name=x.test", 404)["error"]
    assert "needs ?url=" in api(crawl, "explain", 400)["error"]
    assert "sorted by one of queued" in api(crawl, "hosts?sort=names", 400)["error"]
    for limit in ("0", "-1", "201", "x", "9" * 5000):
        assert "give 1 to 200" in api(crawl, f"hosts?limit={limit}", 400)["error"]
    assert api(crawl, "explain?url=ftp://x/")["state"] == "invalid"
    assert ask(crawl, "/api/v1/nothing")[0] == 404


def check_that_other_sites_cannot_read_it(crawl: SimpleNamespace) -> None:
    code, headers, body = ask(crawl, "/")
    assert code == 200
    assert b"Why is this URL not fetched?" in body
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Access-Control-Allow-Origin"] is None
    assert not re.search(rb"https?://(?!example\.org)", body)
    for name in ("live.js", "live.css"):
        assert ask(crawl, f"/{name}")[0] == 200
    assert ask(crawl, "/api/v1/status", Host="rebound.example:9410")[0] == 421
    assert ask(crawl, "/", Host="localhost")[0] == 200
    assert ask(crawl, "/metrics", Host="prometheus.example")[0] == 200


# Telnet's commands (RFC 854): what to answer to each offer, so that the other side asks no more.
_ANSWERS = {251: 253, 252: 254, 253: 252}


def check_the_telnet_console(crawl: SimpleNamespace) -> None:
    url = crawl.web.url("a.test", "/secret")
    with socket.create_connection(("127.0.0.1", crawl.telnet), timeout=20) as console:
        said = b""
        for awaited_text, line in (
            (b"Username: ", "scrapy"),
            (b"Password: ", (crawl.jobdir / "telnet-password").read_text().strip()),
            (b">>> ", "krowl"),
            (b"krowl.explain(", "krowl.status()"),
            (b"in flight   ", f"krowl.explain({url!r})"),
            (b"it will be dropped at its turn.", ""),
        ):
            while awaited_text not in said:
                received = console.recv(65536)
                assert received, said
                for offer, option in re.findall(rb"\xff([\xfb-\xfd])(.)", received, re.DOTALL):
                    console.sendall(bytes([255, _ANSWERS[offer[0]], option[0]]))
                said += received
            said = b""
            console.sendall(line.encode() + b"\r\n")


def test_a_running_crawl_answers_browsers_and_the_console(tmp_path: Path) -> None:
    with crawling(tmp_path) as crawl:
        check_the_api(crawl)
        check_bad_questions(crawl)
        check_that_other_sites_cannot_read_it(crawl)
        check_the_telnet_console(crawl)


# --- parts ---


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9:80", True),
        ("localhost:9410", True),
        ("[::1]:9410", True),
        ("[::1]", True),
        ("", False),
        ("localhost.example.com", False),
        ("192.0.2.1:9410", False),
        ("rebound.example:9410", False),
    ],
)
def test_only_loopback_addresses_are_local(host: str, is_local: bool) -> None:
    assert _is_local(host) is is_local


@pytest.mark.parametrize(
    "settings",
    [{"PROMETHEUS_HOST": "0.0.0.0"}, {"KROWL_LIVE_PAGE": 0}, {"PROMETHEUS_ENABLED": 0}],
)
def test_the_page_is_only_for_this_machine(settings: dict[str, Any]) -> None:
    known = {"PROMETHEUS_ENABLED": 1, "PROMETHEUS_HOST": "127.0.0.1", "KROWL_LIVE_PAGE": 1}
    crawler = get_crawler(settings_dict={"KROWL_CONTACT": CONTACT, **known, **settings})
    with pytest.raises(NotConfigured):
        LivePage(crawler)


def test_the_charts_survive_a_restart_and_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    figures = {"in_flight": 1, "queued": 2, "archive_mb": 3, "lag_ms": 4}
    first = History(path)
    for at in range(KEPT + 10):
        first.add(1000.0 + 10 * at, {"done": 50 * at, "failed": 20 * at, **figures})
    first.write()
    again = History(path)
    samples = again.samples()["samples"]
    assert len(samples) == KEPT
    assert samples[-1] == [1000.0 + 10 * (KEPT + 9), 5.0, 2.0, 1, 2, 3, 4]
    # The first sample of a start has no rate.
    again.add(9000.0, {"done": 7, "failed": 0, **figures})
    assert again.samples()["samples"] == samples
    for broken in ("[[1]]", "{", "[[null,1,1,1,1,1,1]]", "7"):
        path.write_text(broken)
        assert History(path).samples()["samples"] == []

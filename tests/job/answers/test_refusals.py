"""The log names hosts whose fetches the crawler gives up, in a few lines."""

from __future__ import annotations

import logging
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

from krowlspider.fetch.errors import CertificateRefused, DecodeFailed, TooLarge
from krowlspider.job.answers import retries
from krowlspider.job.answers.retries import HOSTS, PERIOD, Refusals
from tests.support.crawls import crawl_of, page
from tests.support.simulated_web import SimulatedRawWeb, SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

CODED = {"headers": {"Content-Encoding": "deflate, br, gzip"}, "body": "x"}
BROKEN = {"headers": {"Content-Encoding": "gzip"}, "body": "no gzip at all"}
GIVEN_UP = "Fetch given up: "


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def refusals(clock: Clock, caplog: pytest.LogCaptureFixture) -> Refusals:
    caplog.set_level(logging.INFO)
    return Refusals(clock)


def tell(refusals: Refusals, *hosts: str) -> None:
    for host in hosts:
        refusals.log(host, f"http://{host}/", DecodeFailed("broken gzip data"))


def test_a_host_is_named_with_url_and_cause(
    refusals: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    tell(refusals, "a.test")
    assert caplog.messages == [
        "Fetch given up: http://a.test/ (host a.test), decode: broken gzip data"
    ]


def test_few_hosts_are_named_in_a_minute(
    refusals: Refusals, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """For each kind. The last line of a minute says that others are only counted."""
    tell(refusals, *(f"h{number}.test" for number in range(1000)))
    assert len(caplog.messages) == HOSTS
    assert [" only counted" in line for line in caplog.messages] == [False] * (HOSTS - 1) + [True]
    refusals.log("large.test", "http://large.test/", TooLarge("a body of more than 9 bytes"))
    assert "large.test), too_large" in caplog.messages[HOSTS]
    clock.now += PERIOD
    tell(refusals, "late.test")
    assert "late.test" in caplog.messages[HOSTS + 1]


def test_a_host_takes_one_line_of_a_minute(
    refusals: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    """So that it hides no other host."""
    tell(refusals, *["a.test"] * 1000, "b.test")
    assert [line.split()[3] for line in caplog.messages] == ["http://a.test/", "http://b.test/"]


def test_a_refused_certificate_is_a_warning_once(
    refusals: Refusals,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For each host, however many pages it has: a person has to accept it, or to leave it. The
    hosts are bounded."""
    monkeypatch.setattr(retries, "CERTIFICATES", 3)
    for host in ("a.test", "a.test", "b.test", "a.test", "c.test", "d.test"):
        refusals.log(host, f"gemini://{host}/", CertificateRefused("another one than before"))
        clock.now += PERIOD
    found = [(record.levelname, record.getMessage().split()[3]) for record in caplog.records]
    assert found == [("WARNING", f"gemini://{name}.test/") for name in "abc"]


def test_what_a_stranger_wrote_makes_no_long_line(
    refusals: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    refusals.log("a.test", "http://a.test/" + "x" * 16_000, DecodeFailed("y" * 60_000))
    assert len(caplog.messages[0]) < 600


def given_up(log: str) -> set[tuple[str, str]]:
    """Return host (without port) and kind of the fetches that a log names."""
    lines = [line.partition(GIVEN_UP)[2] for line in log.splitlines() if GIVEN_UP in line]
    return {
        (line.split("(host ")[1].split(":")[0], line.split("), ")[1].split(":")[0])
        for line in lines
    }


def test_every_bound_of_a_fetch_names_the_host(tmp_path: Path) -> None:
    """Except for TLS: see tests/fetch/tls/test_work.py."""
    raw = b64encode(b"SSH-2.0-OpenSSH_9\r\n" * 9).decode()
    spec = [
        {"host": "broken.test", **page("/", ""), **BROKEN},
        {"host": "coded.test", "path": "/robots.txt", **CODED},
        {"host": "strange.test", "path": "/", "raw_base64": raw},
        {"host": "large.test", "path": "/", "size": 3000},
        {"host": "drip.test", "path": "/", "size": 1_000_000, "drip": 600, "latency": 29},
        {"host": "mute.test", "path": "/", "latency": 1000},
        page("/robots.txt", "", status=404),
        page("/", "x"),
    ]
    hosts = ["broken", "coded", "strange", "large", "drip", "mute", "good"]
    with SimulatedRawWeb({}) as silent, SimulatedWeb(spec=spec) as web:
        seeds = [web.url(f"{host}.test") for host in hosts]
        seeds.append(f"https://silent.test:{silent.port}/")
        settings = {
            "DOWNLOAD_TIMEOUT": 32,
            "DOWNLOAD_MAXSIZE": 2500,
            "KROWL_CONNECT_TIMEOUT": 1,
            "RETRY_TIMES": 0,
        }
        crawl = crawl_of(web, tmp_path, seeds, settings=settings).run()
    assert given_up(crawl.log) == {
        ("broken.test", "decode"),
        ("coded.test", "decode"),
        ("strange.test", "protocol"),
        ("large.test", "too_large"),
        ("drip.test", "total_timeout"),
        ("mute.test", "first_byte_timeout"),
        ("silent.test", "connect_timeout"),
    }
    assert f"{web.url('coded.test', '/robots.txt')} (host" in crawl.log


def test_a_page_at_a_forbidden_address_names_the_host(tmp_path: Path) -> None:
    """Without robots.txt, whose middleware would log it first."""
    with SimulatedWeb(spec=[page("/", "x")]) as web:
        settings = {"KROWL_ALLOW_ADDRESSES": "", "RETRY_TIMES": 0, "ROBOTSTXT_OBEY": 0}
        crawl = crawl_of(web, tmp_path, [web.url("own.test")], settings=settings).run(code=4)
        assert web.log() == []
    assert given_up(crawl.log) == {("own.test", "address_forbidden")}

"""A setting that Scrapy users know works, or a line at the start says that it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.config.validation import without_effect
from tests.support.crawls import crawl_raw
from tests.support.rawweb import HTML, Raw, answer
from tests.support.settings import project_settings
from tests.support.simulated_web import SimulatedRawWeb
from tests.support.tables import table

if TYPE_CHECKING:
    from pathlib import Path

FOUND = b"HTTP/1.1 302 Found"
BROKEN = b"HTTP/1.1 500 Oops"


def test_limits_of_scrapy_hold_for_the_broad_spider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxies of the environment do not, which a line says without their passwords."""
    monkeypatch.setenv("http_proxy", "http://user:secret@127.0.0.1:9")
    monkeypatch.delenv("https_proxy", raising=False)
    pages = {
        "/robots.txt": Raw(answer(body=b"")),
        "/": Raw(answer(HTML, body=b"<a href=/one>1</a><a href=/away>2</a><a href=/err>3</a>")),
        "/one": Raw(answer(HTML, body=b"<a href=/two>2</a>")),
        "/two": Raw(answer(HTML, body=b"two")),
        "/away": Raw(answer(b"Location: /target", status=FOUND)),
        "/target": Raw(answer(HTML, body=b"target")),
        "/err": Raw(answer(status=BROKEN)),
    }
    limits = {"DEPTH_LIMIT": 1, "REDIRECT_ENABLED": 0, "RETRY_ENABLED": 0, "RETRY_TIMES": 2}
    with SimulatedRawWeb(pages) as web:
        crawl = crawl_raw(tmp_path, [web.url("a.test")], KROWL_SITEMAPS=0, **limits)
    assert sorted(path for path, _ in web.requests) == ["/", "/away", "/err", "/one", "/robots.txt"]
    (line,) = (line for line in crawl.complaints if "no effect" in line)
    assert "http_proxy in the environment has no effect: the broad spider fetches directly" in line


@table(
    ("changes", "line"),
    [
        ({"REFERER_ENABLED": True}, "REFERER_ENABLED=True has no effect: no Referer is sent. To"),
        ({"METAREFRESH_ENABLED": "1"}, "METAREFRESH_ENABLED=1 has no effect: the broad spider"),
        ({"DOWNLOAD_BIND_ADDRESS": "127.0.0.3"}, "DOWNLOAD_BIND_ADDRESS=127.0.0.3 has no effect"),
        ({"DNS_TIMEOUT": 5}, "DNS_TIMEOUT=5 has no effect: the project has its own resolver, with"),
        ({"COMPRESSION_ENABLED": 0}, "COMPRESSION_ENABLED=0 has no effect: compressed bodies are"),
        ({"DOWNLOAD_VERIFY_CERTIFICATES": True}, "DOWNLOAD_VERIFY_CERTIFICATES=True has no effect"),
        ({"SCHEDULER_DEBUG": True}, "SCHEDULER_DEBUG=True has no effect: an error in the log"),
        ({"ROBOTSTXT_PARSER": "x.Y"}, "ROBOTSTXT_PARSER=x.Y has no effect: robots.txt is read"),
        ({"SCHEDULER_DISK_QUEUE": "x.Y"}, "SCHEDULER_DISK_QUEUE=x.Y has no effect: requests wait"),
    ],
)
def test_a_setting_without_effect_is_named(changes: dict[str, Any], line: str) -> None:
    (found,) = without_effect(project_settings(**changes))
    assert found.startswith(line)


@pytest.mark.parametrize(
    "changes",
    [{}, {"REFERER_ENABLED": False}, {"COMPRESSION_ENABLED": True}, {"DNS_TIMEOUT": None}],
)
def test_what_is_done_anyway_needs_no_line(changes: dict[str, Any]) -> None:
    assert list(without_effect(project_settings(**changes))) == []

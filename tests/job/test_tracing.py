"""Traces of requests, as a collector gets them: OTLP 1.0 over HTTP, in JSON."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import Settings

from krowlspider import __version__
from krowlspider.config.checks import collector as collector_check
from krowlspider.job import tracing
from tests.support.crawls import anchors, crawl_of, page
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.crawling import Crawl

SPEC = [
    page("/robots.txt", "", status=404),
    page("/", anchors("/a", "/b", "/cut")),
    page("^/[ab]$", "x"),
    page("/cut", "x" * 100, close_early=3),
]
PARTS = {"request", "pop", "dns", "connect", "first byte", "body", "archive", "parse", "commit"}


class Collector(ThreadingHTTPServer):
    """Keeps what is posted to it."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, str, dict[str, Any]]] = []
        posts = self.posts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                posts.append((self.path, self.headers["Content-Type"], json.loads(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def traces(self) -> list[dict[str, dict[str, Any]]]:
        """Return the spans of each trace by their names."""
        found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        for _, _, body in self.posts:
            for resource in body["resourceSpans"]:
                for span in resource["scopeSpans"][0]["spans"]:
                    found[span["traceId"]][span["name"]] = span
        return list(found.values())


@contextmanager
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def crawl(folder: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch, share: float) -> Crawl:
    """Crawl a host, one of whose answers is cut; ``share`` of the requests are sampled."""
    monkeypatch.setattr(tracing, "SHARE", share)
    with SimulatedWeb(spec=SPEC) as web:
        settings = {"KROWL_TRACES": endpoint, "RETRY_TIMES": 0}
        return crawl_of(web, folder, [web.url("a.test")], settings=settings).run()


def attributes(span: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


def test_spans_of_a_request_follow_it_to_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as server:
        crawl(tmp_path, f"http://127.0.0.1:{server.server_port}", monkeypatch, 1.0)
    assert {post[:2] for post in server.posts} == {("/v1/traces", "application/json")}
    resource = server.posts[0][2]["resourceSpans"][0]["resource"]
    about = {"service.name": "krowlspider", "service.version": __version__, "krowl.spider": "broad"}
    assert attributes(resource) == about
    fetched = {attributes(spans["request"])["url.full"]: spans for spans in server.traces}
    assert sorted(url.rpartition("/")[2] for url in fetched) == ["", "a", "b", "cut", "robots.txt"]
    # robots.txt has opened the connection of all.
    assert max(map(set, fetched.values()), key=len) == PARTS
    for spans in fetched.values():
        request = spans["request"]
        assert PARTS - {"dns", "connect"} <= set(spans)
        assert len({span["spanId"] for span in spans.values()}) == len(spans)
        for name in set(spans) - {"request"}:
            assert spans[name]["parentSpanId"] == request["spanId"]
            assert int(spans[name]["startTimeUnixNano"]) <= int(spans[name]["endTimeUnixNano"])
        # The simulation has a clock of its own: the times of an exchange are of another one.
        for names in (("pop", "parse", "commit"), ("first byte", "body")):
            starts = [int(spans[name]["startTimeUnixNano"]) for name in names]
            assert starts == sorted(starts)
        assert spans["commit"]["endTimeUnixNano"] == request["endTimeUnixNano"]


def test_requests_that_fail_are_all_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as server:
        url = f"http://127.0.0.1:{server.server_port}/otlp"
        crawl(tmp_path, url, monkeypatch, 0.0)
    assert {path for path, *_ in server.posts} == {"/otlp"}
    (spans,) = server.traces
    about = attributes(spans["request"])
    assert about["url.full"].endswith("/cut")
    assert about["http.response.status_code"] == "200"
    assert spans["request"]["status"] == {"code": 2, "message": about["error.type"]}
    assert about["error.type"] == "disconnect"


def test_collector_that_is_down_costs_traces_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = crawl(tmp_path, "http://127.0.0.1:1", monkeypatch, 1.0)
    first, *rest = (line for line in done.complaints if "KROWL_TRACES" in line)
    assert "requests: http://127.0.0.1 does not answer" in first
    # Each lost one is counted: in the warning, or at the end.
    lost = [int(re.findall(r"traces of (\d+) request", line)[0]) for line in (first, *rest)]
    assert sum(lost) == done.stats["downloader/response_count"]
    assert len(rest) <= 1
    assert done.stats["finish_reason"] == "finished"


def test_traces_that_wait_have_a_bound(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that are lost are counted in a warning, at the end of the crawl at the latest."""
    monkeypatch.setattr(tracing, "TRACES_MAX", 2)
    monkeypatch.setattr(tracing.Traces, "_work", lambda _: None)
    sender = tracing.Traces("http://127.0.0.1:1", "broad", "", lambda: 0.0)
    for _ in range(5):
        sender._keep(object())  # type: ignore[arg-type]
    assert len(sender.take()) == 2
    for _ in range(tracing.WAITING_MAX + 5):
        sender.committed([object()])  # type: ignore[list-item]
    assert sender._queue.qsize() == tracing.WAITING_MAX
    assert sender._lost == 3 + 5
    sender.close()
    assert [record.getMessage() for record in caplog.records] == [
        "KROWL_TRACES: lost the traces of 8 requests"
    ]


def test_without_the_setting_nothing_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("krowlspider.job.tracing")]:
        monkeypatch.delitem(sys.modules, name)
    with SimulatedWeb(spec=SPEC) as web:
        crawl_of(web, tmp_path, [web.url("a.test")]).run()
    assert not [name for name in sys.modules if name.startswith("krowlspider.job.tracing")]


@pytest.mark.parametrize(
    ("value", "is_taken"),
    [
        ("", True),
        ("https://collector.test:4318/v1/traces", True),
        ("collector:4318", False),
        ("http://user:secret@collector.test", False),
        (None, False),
    ],
)
def test_a_collector_is_a_url_without_a_user(value: str | None, is_taken: bool) -> None:
    fault = collector_check(Settings({"KROWL_TRACES": value}), "KROWL_TRACES")
    assert (fault is None) is is_taken

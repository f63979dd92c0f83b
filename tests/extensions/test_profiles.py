"""Profiles for Pyroscope: their tags, the extra that they need, and a server that hangs."""

from __future__ import annotations

import gzip
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from scrapy.settings import Settings

from krowlspider.config.validation import CHECKERS
from krowlspider.errors import install_with
from krowlspider.extensions import profiles
from tests.cluster.register_nodes import found, supervisor_register
from tests.cluster.servers import redis_server
from tests.mockweb import MockWeb
from tests.support.crawling import ROOT
from tests.support.crawls import anchors, crawl_of, page
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

SPEC = [page("/robots.txt", "", status=404), page("/", anchors("/a", "/b")), page("^/[ab]$", "x")]


class Agent(SimpleNamespace):
    """Stands in for the module ``pyroscope``; its shutdown hangs until ``released``."""

    def __init__(self) -> None:
        self.released = Event()
        self.given: list[dict[str, object]] = []

    def configure(self, **given: object) -> None:
        self.given.append(given)

    def shutdown(self) -> None:
        self.released.wait(60)


def test_server_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent()
    monkeypatch.setitem(sys.modules, "pyroscope", agent)  # type: ignore[arg-type]
    monkeypatch.setattr("krowlspider.config.checks.find_spec", lambda _: object())
    monkeypatch.setattr(profiles, "_LAST", 0.05)
    with SimulatedWeb(spec=SPEC) as web:
        settings = {"KROWL_PYROSCOPE": "http://127.0.0.1:4040"}
        done = crawl_of(web, tmp_path, [web.url("a.test")], settings=settings).run()
    assert not agent.released.is_set()
    agent.released.set()
    assert done.stats["finish_reason"] == "finished"
    (given,) = agent.given
    assert given["server_address"] == "http://127.0.0.1:4040"
    assert given["tags"] == {"spider": "broad", "job": str(done.jobdir)}


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", None),
        ("http://127.0.0.1:4040", f"needs pyroscope-io: {install_with('pyroscope')}"),
        ("pyroscope:4040", "is not the http(s) URL of a server, without user or password"),
        (None, "is not the http(s) URL of a server, without user or password"),
    ],
)
def test_missing_package_names_the_extra(
    value: str | None, fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("krowlspider.config.checks.find_spec", lambda _: None)
    checker = CHECKERS["KROWL_PYROSCOPE"]
    assert checker(Settings({"KROWL_PYROSCOPE": value}), "KROWL_PYROSCOPE") == fault


@pytest.mark.slow
def test_agent_sends_profiles_with_node_job_and_spider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real agent, which is installed beside the environment of the tests."""
    library = tmp_path / "library"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    wanted = ROOT / "tests" / "pyroscope-requirements.txt"
    subprocess.run([*pip, "--target", library, "-r", wanted], check=True)
    monkeypatch.setenv("PYTHONPATH", str(library))
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(gzip.decompress(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server,
        MockWeb(spec=SPEC) as web,
        redis_server(tmp_path / "redis") as redis,
        supervisor_register(tmp_path) as register,
    ):
        found(register, "krowlspider")
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        settings = {
            "KROWL_PYROSCOPE": f"http://127.0.0.1:{server.server_port}",
            "KROWL_CONSUL": register.url,
            "REDIS_URL": redis.url,
            "KROWL_NODE_ID": "a",
        }
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=settings)
        crawl.cold = True
        crawl.run()
        server.shutdown()
        thread.join()
    tags = {"service_name": "krowlspider", "spider": "broad", "job": crawl.jobdir, "node": "a"}
    for name, value in tags.items():
        assert all(name.encode() in body and str(value).encode() in body for body in bodies), name
    # Functions of the crawl are in the samples.
    assert any(b"krowlspider/" in body for body in bodies)

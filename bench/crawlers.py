"""The crawlers that are measured on the bench web, and what is not equal between them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench import web as webserver
from bench.process import Usage, measured
from bench.venvs import python_of
from tests.support.crawling import CONTACT, ROOT
from tests.support.debian import program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bench.web import BenchWeb

PEERS = ROOT / "bench" / "peers"


@dataclass(frozen=True, slots=True)
class Task:
    """One run: so many pages from the seeds in a file, with all that it writes in ``scratch``."""

    web: BenchWeb
    seeds: Path
    pages: int
    scratch: Path
    concurrency: int = 256
    settings: Mapping[str, object] = field(default_factory=dict)
    """More settings for krowlspider."""


@dataclass(frozen=True, slots=True)
class Crawler:
    """``run`` returns what the crawler used, and the CPU seconds of servers that it needs besides."""

    name: str
    run: Callable[[Task], tuple[Usage, float]]
    unequal: str


def krowlspider_command(task: Task) -> list[str]:
    """The command as a user gives it; pauses are as short as they can be."""
    shape = task.web.shape
    settings: dict[str, object] = {
        "JOBDIR": task.scratch / "job",
        "KROWL_CONTACT": CONTACT,
        "KROWL_ALLOW_ADDRESSES": "127.0.0.0/8",
        "KROWL_DELAY_MIN": 0,
        "KROWL_DELAY_FACTOR": 0,
        # Hosts of this web have addresses of their own, which are asked without a delay as they
        # are.
        "KROWL_IP_DELAY_MIN": 0,
        # This web has none; each host would be asked once more.
        "KROWL_SITEMAPS": 0,
        "CONCURRENT_REQUESTS": task.concurrency,
        # Any port that is free.
        "PROMETHEUS_PORT": 0,
        **({"KROWL_DNS_SERVERS": f"127.0.0.1:{task.web.dns}"} if shape.names else {}),
        **task.settings,
    }
    command = [sys.executable, "-m", "scrapy", "crawl", "broad"]
    command += ["-a", f"seeds={task.seeds}", "-a", f"max_pages={task.pages}"]
    for name, value in settings.items():
        command += ["-s", f"{name}={value}"]
    return command


def _krowlspider(task: Task) -> tuple[Usage, float]:
    return measured(krowlspider_command(task), task.scratch / "log"), 0.0


def _stock(task: Task) -> tuple[Usage, float]:
    command = _peer(sys.executable, "stock_scrapy.py", task, task.scratch / "job")
    return measured(command, task.scratch / "log", task.scratch), 0.0


def _scrapy_redis(task: Task) -> tuple[Usage, float]:
    python = python_of("scrapy-redis")
    with redis_server(task.scratch / "redis") as (url, cpu_seconds):
        command = [*_peer(python, "stock_scrapy.py", task, task.scratch / "job"), url]
        return measured(command, task.scratch / "log", task.scratch), cpu_seconds()


def _crawlee(queue: str) -> Callable[[Task], tuple[Usage, float]]:
    def run(task: Task) -> tuple[Usage, float]:
        folder = task.scratch / "storage"
        command = _peer(python_of("crawlee"), "crawlee_http.py", task, folder)
        return measured([*command, queue], task.scratch / "log", task.scratch), 0.0

    return run


def _peer(python: str | Path, script: str, task: Task, folder: Path) -> list[str | Path]:
    """A script of ``bench/peers`` with the arguments that all of them take."""
    command = [python, PEERS / script, task.seeds, str(task.pages), folder]
    return [*command, str(task.concurrency)]


CRAWLERS = {
    crawler.name: crawler
    for crawler in (
        Crawler(
            "krowlspider",
            _krowlspider,
            "everything on: robots.txt, politeness with delays of 0, one request to a host at a time, a durable frontier"
            " with a commit a second, WARC with digests, index and revisits; up to 10 requests to a host in a row, so that its pages are of fewer hosts; sitemaps off, as the web has none",
        ),
        Crawler(
            "scrapy",
            _stock,
            "stock Scrapy with JOBDIR and LinkExtractor: no archive; its queue is on disk and not synced, so a kill"
            " loses it; up to 8 requests to a host at a time, in the default order of its queue, as fast here as the plain one",
        ),
        Crawler(
            "scrapy-redis",
            _scrapy_redis,
            "stock Scrapy with queue and fingerprints in Redis: no archive; what is in flight is lost by a kill. The"
            " Redis server has the web's core, and its CPU is listed apart",
        ),
        Crawler(
            "crawlee",
            _crawlee("file"),
            "crawlee-python's ParselCrawler with its default storage, a file for each request: no archive, no"
            " limit for a host",
        ),
        Crawler(
            "crawlee-memory",
            _crawlee("memory"),
            "the same with its queue in memory: nothing lasts",
        ),
    )
}


@contextmanager
def redis_server(
    folder: Path, cores: str = str(webserver.CORE)
) -> Iterator[tuple[str, Callable[[], float]]]:
    """A Redis server as it comes, with its URL and the CPU seconds it has used."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir()
    command: list[str | Path] = ["taskset", "-c", cores, program("redis-server")]
    command += ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_for(port, server)
        yield f"redis://127.0.0.1:{port}/0", lambda: cpu_seconds_of(server.pid)
    finally:
        server.kill()
        server.wait()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("redis-server does not start")


def cpu_seconds_of(pid: int) -> float:
    """That a running process and its ended children have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

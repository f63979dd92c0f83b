"""Run the real command in a real process, and read the files that it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support import warm
from tests.support.in_process import run_here
from tests.support.warm import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

# In a domain for private use, because a contact in a reserved one is refused as a placeholder.
CONTACT = "crawl-tests@krowlspider.internal"
# Most seconds of a crawl in a test: a hang becomes a failure with its log.
DEADLINE = 300.0

# Loopback is allowed and delays are short. Every rule stays on.
SETTINGS: Mapping[str, object] = {
    "KROWL_CONTACT": CONTACT,
    "KROWL_ALLOW_ADDRESSES": "127.0.0.0/8",
    "KROWL_RESOLVE": json.dumps({"*.test": "127.0.0.1"}),
    # All hosts of the tests share an address.
    "KROWL_IP_CONCURRENCY": "0",
    "KROWL_IP_DELAY_MIN": "0",
    "KROWL_DELAY_MIN": "0.05",
    "KROWL_DELAY_FACTOR": "1",
    "KROWL_RETRY_DELAY": "0.1",
    "KROWL_COMMIT_INTERVAL": "0.2",
    "KROWL_STATUS_INTERVAL": "1",
    # Some tests have a disk of 100 MB.
    "KROWL_DISK_FLOOR": "0",
    # Saves a request per host. tests/spiders/test_sitemaps.py turns it on.
    "KROWL_SITEMAPS": "0",
    "TELNETCONSOLE_ENABLED": "0",
    # Any free port: many crawls run at once.
    "PROMETHEUS_PORT": "0",
    "STATS_CLASS": "tests.support.statsdump.DumpedStats",
}


# Commands that install no reactor: a test process could not remove it.
WITHOUT_ENGINE = {"changes", "frontier", "graph", "identity", "ring", "seeds", "warc"}

_started: list[warm.Process] = []


def end_all() -> None:
    """Kill the processes that a failed test left."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            process.kill()
            process.wait()


@dataclass
class Crawl:
    """One run of ``scrapy crawl``: started by `start`, awaited by `wait`."""

    jobdir: Path
    spider: str = "broad"
    arguments: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    cwd: Path = ROOT
    log_folder: Path | None = None
    prefix: Sequence[str] = ()
    # Start without `warm`, for tests of the start or of its memory.
    cold: bool = False
    # Without a feed, the broad spider makes no items.
    feed: bool = True

    def __post_init__(self) -> None:
        folder = self.log_folder or self.jobdir.parent
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{self.jobdir.name}-{time.monotonic_ns()}"
        self.log_path = folder / f"{stem}.log"
        self.items_path = folder / f"{stem}.jsonl"
        self.stats_path = folder / f"{stem}.stats.json"

    def command(self) -> list[str]:
        return [*self.prefix, sys.executable, "-m", "scrapy", *self.words()]

    def words(self) -> list[str]:
        settings = {**SETTINGS, "JOBDIR": self.jobdir, **self.settings}
        command = ["crawl", self.spider]
        command += ["-o", str(self.items_path)] if self.feed else []
        for name, value in self.arguments.items():
            command += ["-a", f"{name}={value}"]
        for name, value in settings.items():
            if value is not None:
                command += ["-s", f"{name}={value}"]
        return command

    def start(self) -> Crawl:
        environment = {**os.environ, "STATS_FILE": str(self.stats_path)}
        with self.log_path.open("wb") as log:
            self.process = warm.start(
                self.command(),
                cold=self.cold,
                cwd=self.cwd,
                environment=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        _started.append(self.process)
        return self

    def wait(self, *, code: int = 0) -> Crawl:
        """Wait for the end; assert the exit code."""
        try:
            found = self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the crawl did not end:\n{self.log[-5000:]}") from None
        assert found == code, f"exit code {found}:\n{self.log[-5000:]}"
        return self

    def run(self, *, code: int = 0) -> Crawl:
        return self.start().wait(code=code)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition while the process runs."""
        end = time.monotonic() + DEADLINE
        while not condition():
            assert self.process.poll() is None, f"the crawl ended too early:\n{self.log[-5000:]}"
            assert time.monotonic() < end, f"the condition never held:\n{self.log[-5000:]}"
            # Reading the log of a web takes some milliseconds.
            time.sleep(0.03)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def interrupt(self) -> Crawl:
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = json.loads(self.stats_path.read_text())
        return stats

    @property
    def items(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.items_path.read_text().splitlines()]

    @property
    def complaints(self) -> list[str]:
        """The log lines of warnings and errors, and tracebacks."""
        words = (" WARNING: ", " ERROR: ", " CRITICAL: ", "Traceback", "Warning: ")
        return [line for line in self.log.splitlines() if any(word in line for word in words)]


def write_seeds(path: Path, seeds: Iterable[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{seed}\n" for seed in seeds))
    return path


def scrapy(*words: object, code: int = 0, given: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run a command of the project, in this process unless it needs Scrapy's engine.

    Assert the exit code, and that there is no traceback.
    """
    command = list(map(str, words))
    if command[0] in WITHOUT_ENGINE:
        done = run_here(command, given=given.encode())
    else:
        done = warm.run([sys.executable, "-m", "scrapy", *command], given=given.encode())
    errors = done.stderr.decode()
    assert done.returncode == code, errors
    assert "Traceback" not in errors, errors[-4000:]
    return done


def frontier_view(jobdir: Path) -> dict[str, Any]:
    """Return the output of ``scrapy frontier --json``."""
    view: dict[str, Any] = json.loads(scrapy("frontier", "--json", jobdir).stdout)
    return view

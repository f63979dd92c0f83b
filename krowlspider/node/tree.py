"""The JOBDIR of a crawl of several processes, the command of each, and their flame graphs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from krowlspider.archive.disk import is_draft
from krowlspider.config.checks import port_range
from krowlspider.errors import JobError, KrowlError, SettingsError, counted, install_with
from krowlspider.job.folder import REGISTER, JobFolder, JobInUseError, holder_of, lock_folder
from krowlspider.job.monitoring.access import CONTROL_TOKEN, METRICS, PAGE
from krowlspider.job.monitoring.disk_guard import memory_to_be_had
from krowlspider.job.monitoring.page_server import CONTROL_HOST
from krowlspider.job.parts import MEMORY_SHARE, process_warc_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

# The most processes: each has some 100 MB of memory, and a core is kept busy by one.
PROCESSES_MAX = 64
_PROCESS = re.compile(r"p[1-9][0-9]*")
_LOCK, _REDIS, _REPORTS = "lock", "redis", "reports"
# Seconds for the processes of a supervisor that was killed to end, and between two looks.
_PATIENCE = 120.0
_LOOK = 0.2


def ids(count: int) -> list[str]:
    """Return the ids of so many processes, which are the names of their folders too."""
    return [f"p{number}" for number in range(1, count + 1)]


def processes(count: int) -> str:
    return counted(count, "process")


def number_of(process: str) -> int:
    """Return the number of a process, from 1."""
    return int(process[1:])


def process_folders(path: Path) -> list[Path]:
    """Return the folders of processes in a JOBDIR, those of earlier starts too."""
    found = [each for each in path.glob("p*") if _PROCESS.fullmatch(each.name)]
    return sorted(found, key=lambda each: number_of(each.name))


class StoppedError(Exception):
    """The supervisor was stopped meanwhile."""


class Tree:
    """The folder ``path``, locked for this supervisor from `take` until the process ends."""

    def __init__(self, path: Path):
        self.path = path
        self.register = path / REGISTER
        self.redis = path / _REDIS
        self.reports = path / _REPORTS

    def folder(self, process: str) -> JobFolder:
        return JobFolder(self.path / process)

    def take(self) -> None:
        """Lock the folder; make it if it is new.

        :raises JobError: it is in use, of a crawl of one process, or cannot be used
        """
        with self._usable():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_content()
            # Until this process ends.
            lock_folder(self.path)
            for draft in self._drafts():
                draft.unlink()
            self.redis.mkdir(mode=0o700, exist_ok=True)

    def check(self) -> None:
        """Check, before anything is made, that the folder is not of something else.

        :raises JobError: as `take`
        """
        with self._usable():
            if self.path.exists():
                self._check_content()

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise JobError(f"JOBDIR {self.path} cannot be used: {error.strerror}") from error

    def _check_content(self) -> None:
        names = {each.name for each in self.path.iterdir()} - {each.name for each in self._drafts()}
        if "job.json" in names:
            raise JobError(
                f"JOBDIR {self.path} belongs to a crawl of one process: continue it with scrapy"
                " crawl, or give another JOBDIR"
            )
        own = {_LOCK, REGISTER, _REDIS, _REPORTS, CONTROL_TOKEN, PAGE, METRICS}
        if REGISTER not in names and any(map(_PROCESS.fullmatch, names)):
            raise JobError(
                f"JOBDIR {self.path} has folders of processes but no file {REGISTER!r}, which says"
                " whose each host is: put it back from a copy, or give another JOBDIR"
            )
        if strange := {name for name in names - own if not _PROCESS.fullmatch(name)}:
            raise JobError(
                f"JOBDIR {self.path} is not empty and not of a crawl of several processes (it holds"
                f" {min(strange)!r}): give a new or empty folder"
            )

    def _drafts(self) -> list[Path]:
        """Return the drafts of the register that killed supervisors have left."""
        return [each for each in self.path.iterdir() if is_draft(each, REGISTER)]

    def wait(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait for the processes that a killed supervisor has left, which are ending.

        :raises JobError: one does not end, or a folder cannot be used
        :raises StoppedError: ``is_stopped`` has returned true
        """
        end = time.monotonic() + _PATIENCE
        with self._usable():
            for path in process_folders(self.path):
                os.close(_locked(path, end, is_stopped))


def _locked(path: Path, end: float, is_stopped: Callable[[], bool]) -> int:
    is_told = False
    while True:
        try:
            return lock_folder(path)
        except JobInUseError as error:
            if is_stopped():
                raise StoppedError from error
            if time.monotonic() >= end:
                raise
            if not is_told:
                logger.info(
                    "Waiting for process %s of the last start, which still uses %s",
                    *(error.holder, path),
                )
            is_told = True
            time.sleep(_LOOK)


# Settings of which each process has its part. 0 stays 0: no limit.
DIVIDED = (
    *("CONCURRENT_REQUESTS", "DNSCACHE_SIZE", "SCRAPER_SLOT_MAX_ACTIVE_SIZE"),
    *("CLOSESPIDER_ITEMCOUNT", "CLOSESPIDER_PAGECOUNT", "MEMUSAGE_LIMIT_MB"),
    *("KROWL_CRAWL_LOG", "KROWL_FRONTIER_MAX"),
)
# The supervisor sets them.
_RESERVED = (*("KROWL_CONSUL", "KROWL_NODE_ID", "REDIS_URL", "REDIS_URL_FILE"),)
# Seconds; the other processes go on meanwhile.
_DRAIN_TIMEOUT = 86_400
# The priority of this project's settings.py, and of a variable of the environment.
_OF_PROJECT = 20
# Ports beyond its first one that a process may take.
_MORE_PORTS = 100
_PORT_MAX = 65_535
# Levels at which the log has the status lines of a process. At other levels it writes its figures
# each _LIVE_INTERVAL seconds, if a live line shows them.
_WITH_STATUS_LINES = ("DEBUG", "INFO")
_LIVE_INTERVAL = 1.0
_USER = re.compile("://[^/]*@")


def check_reserved(settings: BaseSettings) -> None:
    """:raises SettingsError: a setting is given that the supervisor sets"""
    if given := [name for name in _RESERVED if settings.get(name)]:
        raise SettingsError(
            f"{given[0]} is set, and scrapy node makes a cluster of its own processes: leave it"
            " out, or start each node of your cluster by scrapy crawl"
        )


def shares(settings: BaseSettings, count: int) -> dict[str, int]:
    """Return the settings of each of ``count`` processes that are a part of a budget."""
    parts = {name: max(1, whole // count) for name in DIVIDED if (whole := settings.getint(name))}
    memory = settings.getint("KROWL_MEMORY_LIMIT") or memory_to_be_had() // MEMORY_SHARE
    # The least that the check of the settings lets pass.
    parts["KROWL_MEMORY_LIMIT"] = max(memory // count, 4 * settings.getint("DOWNLOAD_MAXSIZE"))
    return parts


class Words:
    """The words of ``scrapy crawl`` for each of ``count`` processes.

    ``given`` are the settings of the command line, ``spargs`` the arguments of the spider, and
    ``settings`` what holds for it.

    :raises SettingsError: a feed cannot be written by several processes
    """

    def __init__(
        self,
        spider: str,
        spargs: Mapping[str, str],
        given: Sequence[str],
        settings: BaseSettings,
        count: int,
    ):
        self._start = [sys.executable, "-m", "scrapy", "crawl", spider]
        for name, value in spargs.items():
            self._start += ["-a", f"{name}={value}"]
        for word in given:
            self._start += ["-s", word]
        self._settings = settings
        self._parts = shares(settings, count)
        self._feeds: dict[str, dict[str, Any]] = {
            str(uri): dict(options) for uri, options in settings.getdict("FEEDS").items()
        }
        if any(_USER.search(uri) for uri in self._feeds):
            raise SettingsError(
                "a feed names a user in its URI, and every user of the machine could read it in the"
                " list of processes: write the feed to a file, or crawl by scrapy crawl"
            )
        try:
            json.dumps(self._feeds)
        except TypeError as error:
            raise SettingsError(
                "FEEDS has values that JSON cannot hold, so it cannot be given to several"
                " processes: write it with names of classes, or give -o FILE"
            ) from error

    def of(
        self,
        process: str,
        folder: Path,
        restarts: int,
        *,
        is_live: bool = False,
        leaves: bool = False,
    ) -> list[str]:
        """Return the words of a process with its job folder.

        ``is_live``: a live line shows its figures. ``leaves``: it hands over what it has, and ends.
        """
        settings = self._settings
        own: dict[str, object] = {
            "JOBDIR": folder,
            # One line shows the progress of all.
            "KROWL_PROGRESS": 0,
            # Prometheus asks the supervisor.
            "PROMETHEUS_HOST": CONTROL_HOST,
            "PROMETHEUS_PORT": self._ports(process),
            # The supervisor serves it.
            "KROWL_GRPC": "",
            "LOG_FORMAT": _log_format(settings["LOG_FORMAT"], process),
            # A process that is stopped keeps its hosts for the next start.
            "KROWL_DRAIN_TIMEOUT": _DRAIN_TIMEOUT if leaves else 0,
            **self._parts,
        }
        if settings["KROWL_WARC_DIR"]:
            # Two writers cannot use one folder.
            own["KROWL_WARC_DIR"] = process_warc_folder(settings, folder)
        own["LOG_ENABLED"] = settings["LOG_ENABLED"]
        if settings["LOG_FILE"]:
            # The supervisor has begun it.
            own |= {"LOG_FILE": settings["LOG_FILE"], "LOG_FILE_APPEND": 1}
        is_chosen = (settings.getpriority("LOG_LEVEL") or 0) > _OF_PROJECT
        own["LOG_LEVEL"] = settings["LOG_LEVEL"] if is_chosen else "WARNING"
        if is_live and own["LOG_LEVEL"] not in _WITH_STATUS_LINES:
            interval = settings.getfloat("KROWL_STATUS_INTERVAL")
            own["KROWL_STATUS_INTERVAL"] = min(interval, _LIVE_INTERVAL)
        if self._feeds:
            own["FEEDS"] = json.dumps(self._feeds_of(process, restarts))
        words = list(self._start)
        for name, value in own.items():
            words += ["-s", f"{name}={value}"]
        return words

    def _ports(self, process: str) -> str:
        """Return the ports of a process, which come after that of the supervisor's page."""
        ports = port_range(self._settings["PROMETHEUS_PORT"])
        if not ports[0]:
            return "0"
        first = min(ports[0] + number_of(process), _PORT_MAX)
        return f"{first},{min(first + _MORE_PORTS, _PORT_MAX)}"

    def _feeds_of(self, process: str, restarts: int) -> dict[str, dict[str, Any]]:
        feeds = {_with(uri, process): dict(options) for uri, options in self._feeds.items()}
        if restarts:
            for options in feeds.values():
                options["overwrite"] = False
        return feeds


def _log_format(text: str, process: str) -> str:
    """Return the format of the log with the process in each line."""
    if "[%(name)s]" in text:
        return text.replace("[%(name)s]", f"[{process}] [%(name)s]")
    return f"[{process}] {text}"


def _with(uri: str, process: str) -> str:
    """Return the URI of a feed with the process in the name of its file: pages-p1.jsonl."""
    folder, slash, name = uri.rpartition("/")
    stem, dot, suffix = name.partition(".")
    if stem.startswith(("-", "stdout:")) or not stem:
        return uri
    return f"{folder}{slash}{stem}-{process}{dot}{suffix}"


# The flame graph, in the JOBDIR of its process.
_GRAPH = "profile.svg"
SECONDS_MAX = 3600
# What py-spy says when it may not read the memory of another process.
_REFUSED = ("Permission Denied", "Operation not permitted")


def find_py_spy(folder: Path = Path(sys.executable).parent) -> Path:
    """Return the program, from the ``folder`` of this Python or from PATH.

    :raises KrowlError: it is not installed
    """
    if found := shutil.which("py-spy", path=folder) or shutil.which("py-spy"):
        return Path(found)
    raise KrowlError(f"py-spy is not installed: {install_with('profile')}")


async def record(jobdir: Path, seconds: int, spy: Path) -> list[Path]:
    """Sample the processes of the crawl in a JOBDIR at the same time; return the flame graphs.

    :raises KrowlError: no crawl runs there, or py-spy fails
    """
    folders = [jobdir] if (jobdir / "job.json").exists() else process_folders(jobdir)
    running = {pid: folder / _GRAPH for folder in folders if (pid := holder_of(folder))}
    if not running:
        raise KrowlError(f"no crawl runs in {jobdir}: give the JOBDIR of a running one")
    sampled = (_sample(spy, pid, seconds, graph) for pid, graph in running.items())
    for pid, error in zip(running, await asyncio.gather(*sampled), strict=True):
        if error is not None:
            raise KrowlError(_explained(pid, error))
    return list(running.values())


async def _sample(spy: Path, pid: int, seconds: int, graph: Path) -> str | None:
    """Write the flame graph of a process; return what py-spy says if it fails."""
    process = await asyncio.create_subprocess_exec(
        *(spy, "record", "--pid", str(pid), "--duration", str(seconds), "--threads"),
        *("--format", "flamegraph", "--output", graph),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    return errors.decode(errors="replace") if process.returncode else None


def _explained(pid: int, error: str) -> str:
    if any(word in error for word in _REFUSED):
        return (
            f"py-spy may not read process {pid}: run the command as root, or after sysctl"
            " kernel.yama.ptrace_scope=0; in a container, add the capability SYS_PTRACE"
        )
    line = next((each for each in error.splitlines() if each.strip()), "it gave no reason")
    return f"py-spy could not sample process {pid}: {line.strip()}"

"""The command of each process: the words of this start, and its part of the budgets."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

from krowlspider.config.checks import port_range
from krowlspider.crawl.monitoring.machine_memory import memory_to_be_had
from krowlspider.crawl.monitoring.servers import CONTROL_HOST
from krowlspider.crawl.parts import MEMORY_SHARE
from krowlspider.errors import SettingsError
from krowlspider.node.tree import number_of, process_warc_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scrapy.settings import BaseSettings

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

"""The crawl that uses a JOBDIR, asked over HTTP by a command that may not open the folder."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from krowlspider.config.credentials import read_files
from krowlspider.crawl.explain import Explanation
from krowlspider.crawl.forecasting import CrawlForecast
from krowlspider.crawl.monitoring.access import CONTROL_TOKEN
from krowlspider.errors import JobError
from krowlspider.frontier.admin.export import Imported
from krowlspider.programs.program import BAD_NAMED, BadLines
from krowlspider.views.files import read_lines
from krowlspider.views.top.source import NoCrawlError, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy.settings import Settings

    from krowlspider.crawl.folder import JobInUseError


# Lines that are sent at a time.
_LINES_AT_ONCE = 1000

# Seconds between two questions how it goes, and how many in a row may have no answer.
_INTERVAL = 0.2
_MISSES = 10


@contextmanager
def reached(error: JobInUseError) -> Iterator[Source]:
    """Reach the crawl that uses a folder.

    :raises JobError: it does not answer
    """
    try:
        yield Source.of(str(error.path))
    except NoCrawlError as cause:
        raise JobError(
            f"JOBDIR {error.path} is in use by process {error.holder}, which does not answer over"
            " HTTP: stop it first, or start it with PROMETHEUS_ENABLED=True"
        ) from cause


def token_of(error: JobInUseError, settings: Settings) -> str:
    """Return the token that the orders to a crawl need.

    :raises JobError: none is given, and the crawl has not left it in its folder
    :raises SettingsError: KROWL_CONTROL_TOKEN_FILE cannot be read
    """
    read_files(settings)
    if given := str(settings["KROWL_CONTROL_TOKEN"]):
        return given
    file = error.path / CONTROL_TOKEN
    try:
        return file.read_text().strip()
    except FileNotFoundError as cause:
        raise JobError(
            f"JOBDIR {error.path} is in use by process {error.holder}, which takes orders with a"
            f" token, and {file} is not there: set KROWL_CONTROL_TOKEN or KROWL_CONTROL_TOKEN_FILE"
            " as the crawl has it"
        ) from cause


def import_running(error: JobInUseError, name: str, settings: Settings) -> Imported:
    """Have the crawl that uses a folder queue the URLs of a file; return what became of them.

    The first bad lines are reported on standard error with their numbers.

    :raises JobError: it does not answer
    :raises KrowlError: it refuses the file, or the file cannot be read
    """
    bad = BadLines(BAD_NAMED)
    with reached(error) as source:
        token = token_of(error, settings)
        found = source.send(_pieces(read_lines(name)), token)
    for line in found["bad_lines"]:
        bad.add(line["line"], line["reason"])
    fields = (found[each] for each in ("new", "known", "refused", "bad", "sent"))
    return Imported(*fields)


def _pieces(lines: Iterator[bytes]) -> Iterator[bytes]:
    while some := list(islice(lines, _LINES_AT_ONCE)):
        yield b"".join(some)


def explain_running(error: JobInUseError, url: str) -> Explanation:
    """Return where a URL is, as the crawl that uses a folder says.

    :raises JobError: it does not answer
    """
    with reached(error) as source:
        found = source.ask(f"explain?url={quote(url, safe='')}")
    return msgspec.convert(found, Explanation)


def forecast_of_running(error: JobInUseError, target: str) -> CrawlForecast:
    """Return how fresh the pages stay, as the crawl that uses a folder says.

    :raises JobError: it does not answer
    :raises KrowlError: it has no pages
    """
    with reached(error) as source:
        return msgspec.convert(source.forecast(target), CrawlForecast)


def snapshot_of_running(error: JobInUseError, target: Path, settings: Settings) -> str:
    """Have the crawl that uses a folder take a snapshot of it; return what it says at the end.

    :raises JobError: it takes no orders, or ends before
    :raises KrowlError: it could not take it
    """
    target = target.absolute()
    with reached(error) as source:
        source.order("snapshot", {"folder": str(target)}, token_of(error, settings))
    misses = 0
    while misses < _MISSES:
        time.sleep(_INTERVAL)
        try:
            said = source.whole_snapshot(target)
        except NoCrawlError:
            misses += 1
            continue
        if said:
            return said
        misses = 0
    if target.is_dir():
        # It has got its name, and then the crawl has ended.
        return f"snapshot in {target}"
    raise JobError(f"the crawl in {error.path} has ended before the snapshot was whole")

"""The crawl that uses a JOBDIR, asked over HTTP by a command that may not open the folder."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from krowlspider.crawl.explain import Explanation
from krowlspider.crawl.monitoring.secret import CONTROL_TOKEN
from krowlspider.errors import JobError
from krowlspider.frontier.admin.export import Imported
from krowlspider.programs.program import BAD_NAMED, BadLines
from krowlspider.views.files import read_lines
from krowlspider.views.top.source import NoCrawlError, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.settings import Settings

    from krowlspider.crawl.folder import JobInUseError


# Lines that are sent at a time.
_LINES_AT_ONCE = 1000


@contextmanager
def reached(error: JobInUseError) -> Iterator[Source]:
    """Reach the crawl that uses a folder.

    :raises JobError: it does not answer
    """
    try:
        yield Source.of(str(error.path))
    except (NoCrawlError, FileNotFoundError) as cause:
        raise JobError(
            f"JOBDIR {error.path} is in use by process {error.holder}, which does not answer over"
            " HTTP: stop it first, or start it with its live page"
        ) from cause


def token_of(error: JobInUseError, settings: Settings) -> str:
    """Return the token that the orders to a crawl need.

    :raises FileNotFoundError: the crawl has made none
    """
    given = str(settings["KROWL_CONTROL_TOKEN"])
    return given or (error.path / CONTROL_TOKEN).read_text().strip()


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

"""The crawl that uses a JOBDIR, asked over HTTP by a command that may not open the folder."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from krowlspider.crawl.explain import Explanation
from krowlspider.crawl.monitoring.secret import CONTROL_TOKEN
from krowlspider.errors import JobError
from krowlspider.views.top.source import NoCrawlError, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.settings import Settings

    from krowlspider.crawl.folder import JobInUseError


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
            " HTTP: stop it first, or start it with KROWL_LIVE_PAGE=True and a loopback"
            " PROMETHEUS_HOST"
        ) from cause


def token_of(error: JobInUseError, settings: Settings) -> str:
    """Return the token that the orders to a crawl need.

    :raises FileNotFoundError: the crawl has made none
    """
    given = str(settings["KROWL_CONTROL_TOKEN"])
    return given or (error.path / CONTROL_TOKEN).read_text().strip()


def explain_running(error: JobInUseError, url: str) -> Explanation:
    """Return where a URL is, as the crawl that uses a folder says.

    :raises JobError: it does not answer
    """
    with reached(error) as source:
        found = source.ask(f"explain?url={quote(url, safe='')}")
    return msgspec.convert(found, Explanation)

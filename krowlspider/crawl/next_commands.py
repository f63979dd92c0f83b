"""Commands for the user to paste: to look at a crawl, read its archive, and go on with it."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.archive.index.cdxj import INDEX, WARC, parse
from krowlspider.errors import scrapy_with

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.archive.index.cdxj import IndexLine

# Words of a command line that may hold a secret, which must not get into the log.
_SECRET = re.compile(r"auth|cookie|credential|key|pass|secret|token|://[^/\s]*@", re.IGNORECASE)
# Scrapy's options that overwrite a feed, and those that append to it.
_APPENDING = {"-O": "-o", "--overwrite-output": "--output"}
# Index lines read to find a page.
_LINES_READ = 2000


def same_again(spider: str, jobdir: Path) -> str:
    """Return the command that started this crawl, with its folder; in words if it may hold a
    secret. It appends to a feed that the first start has overwritten."""
    # Scrapy has removed the name of its command.
    words = [_APPENDING.get(word, word) for word in sys.argv[1:]]
    if any(word.startswith("_job=") for word in words):
        # scrapyd gave this argument. Outside of it there may be no such command.
        return f"the same schedule.json with setting=JOBDIR={jobdir}"
    folders = sum(word.startswith("JOBDIR=") for word in words)
    # `scrapy node` adds a second one for a process: its own command goes on.
    if spider not in words or folders > 1 or any(map(_SECRET.search, words)):
        return "the same command and JOBDIR"
    if not folders:
        # The folder is temporary, or comes from the project's settings.
        words += ["-s", f"JOBDIR={jobdir}"]
    return scrapy_with("crawl", *words)


def archive_commands(jobdir: Path, archive: Path) -> dict[str, str]:
    """Return how to print a page of the archive and how to replay it; nothing without a page."""
    page = _archived_page(archive)
    if page is None:
        return {}
    # By a JOBDIR the commands find its own folder of WARC files; any other is given to them.
    place = jobdir if archive == jobdir / "warc" else archive
    packed = jobdir / "crawl.wacz"
    return {
        "print a page": scrapy_with("warc", "cat", page.url, place),
        "pack": scrapy_with("warc", "wacz", place, "-o", packed),
        "replay": f"open {packed} at https://replayweb.page",
    }


def _archived_page(archive: Path) -> IndexLine | None:
    """Return a page in the newest finished file that has one near the start of its index."""
    for index in sorted(archive.glob(f"*{INDEX}"), reverse=True):
        if not index.with_name(index.name.removesuffix(INDEX) + WARC).exists():
            continue
        with suppress(OSError, ValueError), index.open("rb") as file:
            for line in map(parse, islice(file, _LINES_READ)):
                if line.status == "200" and line.mime == "text/html":
                    return line
    return None

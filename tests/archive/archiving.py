"""Jobs that archive and acknowledge pages, each in its own process, whose system calls a `Watch`
serves.

``python -m tests.archive.archiving`` reads orders, one JSON object a line. For each it forks a
process and prints its exit code, which is negative if it was killed. An order has ``folder``, the
folder of the job; ``pages``, their number in all; ``file_size``, at which a WARC file ends; and
``watch``, the address of the `Watch`, empty for none. The process continues the job that an earlier
one left in the folder. It exits as a crawl does: with 0, 3 if its disk has failed, or 2 if the
folder cannot be opened.

``python -m tests.archive.archiving ADDRESS ...`` is the scrapy command, watched."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import runpy
import sys
from pathlib import Path
from typing import Any

from scrapy.settings import Settings

from krowlspider import settings
from krowlspider.archive.disk import ArchiveError
from krowlspider.archive.write import writer
from krowlspider.errors import JobError, for_want_of_room
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.store.store import StoreError
from krowlspider.job.job import Job
from krowlspider.urls.canonical import domain_of
from tests.support.crawling import CONTACT

from .captures import Odd, capture
from .syscalls import be_watched

logger = logging.getLogger(__name__)

# Pages acknowledged with one commit, and the size at which a file ends: with the third page.
BURST = 2
FILE_SIZE = 9_000
PAGE_SIZE = 3_000
SAME_AS = {5: 4, 6: 0}


def url_of(number: int) -> str:
    """Return the URL of a page. Each has its own host, so that none waits for another."""
    return f"http://page{number}.test/{number}"


def odd_of(number: int) -> Odd:
    """Return a page that cannot be compressed. Some pages equal another one of the same commit or
    of an earlier one."""
    noise = random.Random(SAME_AS.get(number, number)).randbytes(PAGE_SIZE)
    return Odd(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + noise, noise)


def job_in(folder: Path, file_size: int = FILE_SIZE) -> Job:
    ours = {name: value for name, value in vars(settings).items() if name.startswith("KROWL_")}
    given = {
        "KROWL_CONTACT": CONTACT,
        "KROWL_DELAY_MIN": 0,
        "KROWL_WARC_MAX_SIZE": file_size,
        "JOBDIR": str(folder),
    }
    return Job(Settings({**ours, **given}))


async def archive(folder: Path, pages: int, file_size: int) -> int:
    try:
        crawl = job_in(folder, file_size)
    except JobError as error:
        logger.exception("not opened")
        return 3 if for_want_of_room(error) else 2
    try:
        await _archive(crawl, pages)
    except (ArchiveError, StoreError, OSError) as error:
        logger.exception("failed")
        crawl.fail(error)
    await crawl.close()
    return 0 if crawl.failure is None else 3


async def _archive(crawl: Job, pages: int) -> None:
    frontier = crawl.frontier
    urls = [url_of(number) for number in range(pages)]
    frontier.add([Candidate(url[7:-2], crawl.hasher.key(url), Entry(url, 0)) for url in urls])
    while frontier.pending:
        written = []
        while len(written) < BURST and (host := frontier.schedule.pop()) is not None:
            lease = frontier.queues.pop(host)
            assert lease is not None
            url = lease.entry.url
            page = capture(odd=odd_of(int(url[-1])), url=url)
            written.append((host, lease, crawl.archive.write(page)))
        for host, lease, where in written:
            await where
            frontier.schedule.release(host, 0)
            frontier.acknowledge(lease)
        await crawl.commits.commit()


def serve() -> None:
    # A full disk is tried again at once.
    writer._TRY_AGAIN = 0.001
    logging.basicConfig(level=logging.INFO)
    # The first call takes long; the forked processes inherit its result.
    domain_of("a.test")
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        child = os.fork()
        if not child:
            code = 1
            try:
                if order["watch"]:
                    be_watched(order["watch"])
                folder, pages = Path(order["folder"]), order["pages"]
                code = asyncio.run(archive(folder, pages, order["file_size"]))
            except BaseException:
                logger.exception("unexpected")
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve()
    else:
        be_watched(sys.argv[1])
        sys.argv = ["scrapy", *sys.argv[2:]]
        runpy.run_module("scrapy", run_name="__main__", alter_sys=True)

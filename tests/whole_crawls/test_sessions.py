"""Sessions in whole crawls: the order in which hosts are fetched."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import pytest

from tests.support.archived import assert_archived
from tests.support.crawls import crawl_of, page, pages
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = ["a.test", "b.test", "c.test"]
PATHS = [f"/{number}" for number in range(12)]
SITE = [
    page("/", "".join(f"<a href={path}>x</a>" for path in PATHS)),
    *(page(path, f"page {path}") for path in PATHS),
]
# One request at a time, and each host is due again at once.
ONE_AT_A_TIME = {"CONCURRENT_REQUESTS": 1, "KROWL_DELAY_MIN": 0, "KROWL_DELAY_FACTOR": 0}


@pytest.mark.parametrize("length", [1, 4])
def test_a_host_is_asked_so_often_in_a_row_and_no_more(tmp_path: Path, length: int) -> None:
    with SimulatedWeb(spec=SITE) as web:
        seeds = [web.url(host) for host in HOSTS]
        settings = {**ONE_AT_A_TIME, "KROWL_SESSION_REQUESTS": length}
        crawl_of(web, tmp_path, seeds, settings=settings).run()
        entries = web.log()
    assert_archived(tmp_path / "job", entries)
    fetched = pages(entries)
    assert len(fetched) == len({entry.url for entry in fetched}) == len(HOSTS) * (1 + len(PATHS))
    # Until the last host's robots.txt is read, the other hosts go on without it.
    begun = 1 + max(
        next(place for place, entry in enumerate(fetched) if entry.host == host)
        for host in {entry.host for entry in fetched}
    )
    rows = [len(list(row)) for _, row in groupby(entry.host for entry in fetched[begun:])]
    # The first and the last session may be shorter, or longer if no other host is due. So may some
    # others: on a busy machine a page takes long, and its host rests for that.
    inner = rows[1:-1]
    assert inner.count(length) >= 0.75 * len(inner)

"""The crawls of a folder: the default one in the folder itself, the others below it.

Everything here blocks, and belongs to one thread.
"""

from __future__ import annotations

import time
from functools import partial
from hashlib import blake2b
from itertools import cycle, islice
from shutil import rmtree
from typing import TYPE_CHECKING

from krowlspider.errors import JobError, KrowlError
from krowlspider.job.folder import JobFolder
from krowlspider.rpc.urlfrontier.crawl import ServedCrawl, removed_in_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from scrapy.settings import BaseSettings

    from krowlspider.rpc.urlfrontier.intake import AckStatus, Report
    from krowlspider.rpc.urlfrontier.records import Item

DEFAULT = "DEFAULT"
# Crawls, each with files and memory of its own. Characters of the id of one.
CRAWLS_MAX = 50
ID_MAX = 256
_FOLDER = "crawls"
_REMOVED = ".removed"
Leased = tuple[str, str, "Item"]


class CrawlsError(KrowlError):
    """A crawl cannot be begun; nothing has changed."""


class Crawls:
    """The crawls in the folder ``root``, all open until `close`. ``wall`` and ``monotonic`` are as
    in `Frontier`.

    :raises JobError: a folder cannot be used
    :raises StoreError: a frontier cannot be opened
    """

    def __init__(
        self,
        root: Path,
        settings: BaseSettings,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ):
        self._root = root
        self._opened = partial(ServedCrawl, settings=settings, wall=wall, monotonic=monotonic)
        self._open: dict[str, ServedCrawl] = {}
        self._turn = 0
        try:
            self._add(self._opened(JobFolder(root), crawl_id=DEFAULT), DEFAULT)
            for path in sorted((root / _FOLDER).glob("*")):
                self._reopen(path)
        except BaseException:
            self.close()
            raise

    def _reopen(self, path: Path) -> None:
        """Open a crawl other than the default one, unless it was being removed, or begun."""
        if not path.name.endswith(_REMOVED):
            crawl = self._opened(JobFolder(path), crawl_id="")
            if crawl.state.crawl_id:
                self._add(crawl, crawl.state.crawl_id)
                return
            crawl.close()
        rmtree(path)

    def _add(self, crawl: ServedCrawl, crawl_id: str) -> ServedCrawl:
        self._open[crawl_id] = crawl
        return crawl

    def close(self) -> None:
        """Commit and close all crawls."""
        while self._open:
            self._open.popitem()[1].close()

    def get(self, crawl_id: str) -> ServedCrawl | None:
        """Return a crawl, "" being the default one; None if there is none of this id."""
        return self._open.get(_normal(crawl_id))

    def begun(self, crawl_id: str) -> ServedCrawl:
        """Return a crawl, which is begun if there is none of this id.

        :raises CrawlsError: there are too many, or the id is too long
        :raises StoreError: it cannot be written
        """
        name = _normal(crawl_id)
        if (crawl := self._open.get(name)) is not None:
            return crawl
        if len(name) > ID_MAX:
            raise CrawlsError(f"a crawl ID of more than {ID_MAX} characters: give a shorter one")
        if len(self._open) >= CRAWLS_MAX:
            raise CrawlsError(f"there are {CRAWLS_MAX} crawls: delete one by DeleteCrawl")
        folder, delay = JobFolder(_path(self._root, name)), self._open[DEFAULT].state.delay
        crawl = self._opened(folder, crawl_id=name, delay=delay)
        if not self.is_active:
            crawl.set_active(active=False)
        return self._add(crawl, name)

    def ids(self) -> list[str]:
        """Return the ids of the crawls that have queues."""
        return [name for name, crawl in self._open.items() if crawl.ledger.count]

    def delete(self, crawl_id: str) -> Generator[None, None, int]:
        """Remove a crawl, and return how many URLs of it were not done. Its files are removed in
        steps; between two of them all is allowed but another removal."""
        name = _normal(crawl_id)
        if name == DEFAULT:
            return (yield from self._open[name].clear())
        if (crawl := self._open.pop(name, None)) is None:
            return 0
        count, path = crawl.figures().active, _path(self._root, name)
        crawl.close()
        # A start after a death removes what is left.
        removed = path.with_name(path.name + _REMOVED)
        path.rename(removed)
        yield from removed_in_steps(removed)
        return count

    @property
    def is_active(self) -> bool:
        return self._open[DEFAULT].is_active

    def set_active(self, *, active: bool) -> None:
        """Pause all crawls, or let them go on."""
        for crawl in self._open.values():
            crawl.set_active(active=active)

    def set_delay(self, crawl_id: str, seconds: float, name: str = "") -> None:
        """Set the least delay of a queue, or with "" of all queues. Of all queues of the default
        crawl, it is that of all crawls, also of those begun later.

        :raises OrderError: as `ServedCrawl.set_delay`
        :raises CrawlsError: the crawl cannot be begun
        """
        if name or _normal(crawl_id) != DEFAULT:
            self.begun(crawl_id).set_delay(seconds, name)
            return
        for crawl in self._open.values():
            crawl.set_delay(seconds)

    def block(self, crawl_id: str, name: str, until: float) -> None:
        """Block a queue as `ServedCrawl.block`, also one of a crawl that is begun later.

        :raises OrderError: as there
        :raises CrawlsError: the crawl cannot be begun
        """
        self.begun(crawl_id).block(name, until)

    def put(self, reports: Sequence[tuple[str, Report]]) -> list[AckStatus | CrawlsError]:
        """Take reports, each with the id of its crawl, and return what becomes of them, in their
        order. Those of a crawl that cannot be begun have its error."""
        by_crawl: dict[str, list[int]] = {}
        for number, (crawl_id, _) in enumerate(reports):
            by_crawl.setdefault(_normal(crawl_id), []).append(number)
        found: dict[int, AckStatus | CrawlsError] = {}
        for crawl_id, numbers in by_crawl.items():
            try:
                crawl = self.begun(crawl_id)
            except (CrawlsError, JobError) as error:
                fault = CrawlsError(str(error))
                found.update(dict.fromkeys(numbers, fault))
                continue
            some = crawl.put([reports[number][1] for number in numbers])
            found.update(zip(numbers, some, strict=True))
        return [found[number] for number in range(len(reports))]

    def take(
        self, crawl_id: str | None, queues: int, per_queue: int, seconds: float, name: str
    ) -> list[Leased]:
        """Lease URLs as `Leases.take` of a crawl, or with None of all in turn, and return them with
        the ids of their crawls and their hosts."""
        if crawl_id is not None:
            crawl_id = _normal(crawl_id)
            crawl = self._open.get(crawl_id)
            some = [] if crawl is None else crawl.take(queues, per_queue, seconds, name or None)
            return [(crawl_id, *each) for each in some]
        self._turn += 1
        found: list[Leased] = []
        ids = list(self._open)
        for each in islice(cycle(ids), self._turn % len(ids), self._turn % len(ids) + len(ids)):
            left = queues - len({(taken[0], taken[1]) for taken in found})
            if queues and left <= 0:
                break
            some = self._open[each].take(left if queues else 0, per_queue, seconds)
            found += [(each, *one) for one in some]
        return found

    def tick(self) -> None:
        """Do what is due by the time alone, in all crawls."""
        for crawl in self._open.values():
            crawl.tick()


def _path(root: Path, name: str) -> Path:
    """Return the folder of a crawl other than the default one: no text of a client is its name."""
    return root / _FOLDER / blake2b(name.encode(), digest_size=10).hexdigest()


def _normal(crawl_id: str) -> str:
    return crawl_id if crawl_id.strip() else DEFAULT

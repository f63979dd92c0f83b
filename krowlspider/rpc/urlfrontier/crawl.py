"""A crawl that is served: a frontier without a crawl that fetches from it.

Everything here blocks, and belongs to one thread.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import ExitStack, suppress
from dataclasses import replace as changed
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from krowlspider.errors import JobError, scrapy_with
from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.limits import SessionLimits
from krowlspider.frontier.moves.transfer import give_up
from krowlspider.frontier.pages.row import read_row
from krowlspider.frontier.pages.rows import PageRows
from krowlspider.frontier.schedule.orders import BLOCK, DELAY, StandingOrder, StandingOrders
from krowlspider.frontier.seen import FilterFile
from krowlspider.frontier.served import CrawlState, put_state
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import (
    LevelStore,
    check_owner,
    delete,
    entries,
    put,
    put_owner,
    records,
    sync,
)
from krowlspider.job.folder import SNAPSHOT
from krowlspider.job.parts import delay_policy, frontier_limits, seen_set
from krowlspider.rpc.urlfrontier.intake import TIME_MAX, AckStatus, Report, ReportIntake
from krowlspider.rpc.urlfrontier.leases import DELETED, Leases
from krowlspider.rpc.urlfrontier.records import (
    Item,
    Name,
    Phase,
    QueueLedger,
    QueueState,
    decode_item,
    items_prefix,
)
from krowlspider.urls.canonical import IdentityHasher, host_of, normalise, queued_max
from krowlspider.urls.seeds import block_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from scrapy.settings import BaseSettings

    from krowlspider.frontier.hosts.host import Host
    from krowlspider.job.folder import JobFolder

# Keys that are removed in a step, and URLs that a purge looks at: some milliseconds of work.
_STEP = 500
_REMOVED, _NEXT = "frontier.removed", "frontier.next"
# The begin of the note of an order that a client has given.
_BY = "by URLFrontier"
# The end of the note of a delay of a person that a client has made longer.
_LONGER = f" (longer {_BY})"


class QueueCounts(NamedTuple):
    """Numbers of a queue or a crawl: URLs that are not done, leased ones, those done, queues in
    all and those with URLs that are not done."""

    active: int
    leased: int
    done: int
    queues: int
    active_queues: int


def removed_in_steps(folder: Path) -> Iterator[None]:
    """Remove a folder, a file in each step."""
    for path, _, names in os.walk(folder):
        for name in names:
            (Path(path) / name).unlink()
            yield
    shutil.rmtree(folder)


def _is_of_client(order: StandingOrder) -> bool:
    return order.note.startswith(_BY)


class ServedCrawl:
    """The frontier in a folder, which is locked until `close`. ``crawl_id`` and ``delay``, the
    least delay of all queues, are kept in it if it is new.

    :raises JobError: the folder cannot be used
    :raises StoreError: the frontier cannot be opened
    """

    def __init__(
        self,
        folder: JobFolder,
        settings: BaseSettings,
        crawl_id: str,
        delay: float = 0.0,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ):
        self._folder = folder
        self._settings = settings
        self._wall, self._monotonic = wall, monotonic
        with ExitStack() as undo:
            self._head = folder.take()
            undo.callback(folder.leave)
            if self._head.ring:
                raise JobError(
                    f"JOBDIR {folder.path} belongs to a node of a cluster, whose other nodes own"
                    " some of its hosts: export the URLs of each node, and import them into a new"
                    f" JOBDIR: {scrapy_with('frontier', folder.path, '--export', 'FILE')}"
                )
            if (folder.path / SNAPSHOT).exists():
                raise JobError(
                    f"JOBDIR {folder.path} is a snapshot, which clients would change: make a copy:"
                    f" {scrapy_with('frontier', 'NEWDIR', '--restore', folder.path)}"
                )
            self._end_clearing()
            self._open(CrawlState(crawl_id, delay), new=not folder.frontier.exists())
            undo.pop_all()

    def _open(self, state: CrawlState, *, new: bool) -> None:
        """Open the frontier. One that was never served gets ``state``."""
        settings, head = self._settings, self._head
        hasher = IdentityHasher(head.seed)
        store = LevelStore(self._folder.frontier, create=new)
        try:
            check_owner(store, head.seed, head.ring)
            put_owner(store, head.seed, head.ring)
            self.ledger = QueueLedger(store)
            url_max = queued_max(settings.getint("URLLENGTH_LIMIT"))
            self._intake = ReportIntake(self.ledger, hasher.key, self._wall, url_max)
            # A client asks a host as it likes: there is no connection to keep.
            limits = changed(
                frontier_limits(settings),
                slots=0,
                sessions=SessionLimits(requests=1, wait=0.0, hosts=0),
            )
            self.frontier = Frontier(
                store,
                seen_set(settings, self._folder, store),
                limits,
                delay_policy(settings),
                monotonic=self._monotonic,
                wall=self._wall,
                pages=PageRows(store, hasher.key),
                on_admitted=self._intake.admitted,
            )
            self._leases = Leases(self.frontier, self.ledger, hasher.key, self._wall)
            self._intake.open(self.frontier, self._leases)
            self._store, self._key_of = store, hasher.key
            if self.ledger.state is None:
                self.ledger.put_state(state)
            self._adopt()
            self._set_least_delay(self.state.delay)
            # A death has cut them short.
            for name in sorted(self.ledger.leaving):
                for _ in self._delete(name):
                    pass
        except BaseException:
            store.close()
            raise

    def _adopt(self) -> None:
        """Count the hosts of a crawl by Scrapy as queues."""
        found = records(self._store)
        while some := list(islice(found, _STEP)):
            for name, _ in some:
                if self.ledger.known_queue(name) is None:
                    self.ledger.put_queue(name, QueueState())
            self.ledger.write()

    @property
    def state(self) -> CrawlState:
        assert self.ledger.state is not None
        return self.ledger.state

    def close(self) -> None:
        """Commit, close the frontier, and unlock the folder."""
        self.commit()
        self.frontier.close()
        self._folder.leave()

    # --- URLs in and out ---

    def put(self, reports: Sequence[Report]) -> list[AckStatus]:
        """Take reports as `ReportIntake.put`; they are durable when this returns."""
        found = self._intake.put(reports)
        self.commit()
        return found

    def take(
        self, queues: int, per_queue: int, seconds: float, name: str | None = None
    ) -> list[tuple[str, Item]]:
        """Lease URLs as `Leases.take`; none while a person, or a client, has paused the crawl."""
        if not self.is_active:
            return []
        return self._leases.take(queues, per_queue, seconds, name)

    def tick(self) -> None:
        """Do what is due by the time alone: leases end, pages are due again."""
        self._leases.advance()
        self.commit()

    def commit(self) -> None:
        """Make all durable that was taken."""
        self.frontier.schedule.cache.evict()
        commit = self.frontier.begin_commit()
        commit.write()
        self.frontier.end_commit(commit)

    # --- orders ---

    @property
    def is_active(self) -> bool:
        return self._store.get(schema.CRAWL_PAUSED) is None

    def set_active(self, *, active: bool) -> None:
        """Pause the crawl, or let it go on; a start of `scrapy crawl` finds it so too."""
        batch = self._store.batch(sync=True)
        if active:
            batch.delete(schema.CRAWL_PAUSED)
        else:
            batch.put(schema.CRAWL_PAUSED, b"")
        batch.write()

    def set_delay(self, seconds: float, name: str = "") -> None:
        """Set the least delay of a queue, or with "" of all queues. That of the settings stays,
        and one of a person, which can only become longer.

        :raises OrderError: there are too many queues with a delay of their own
        """
        if not name:
            self._set_least_delay(seconds)
            self.ledger.put_state(replace(self.state, delay=seconds))
            return
        orders = self.frontier.schedule.orders
        before = orders.standing.in_force(DELAY).get(name)
        ended, note = seconds <= self._least, _BY
        if before is not None and not _is_of_client(before):
            if ended or seconds <= before.seconds:
                return
            # It stays that of a person: what a client has set, clients can end.
            note = before.note.removesuffix(_LONGER) + _LONGER
        order = orders.made(DELAY, name, note, 0 if ended else seconds, ended=ended)
        if orders.take(order) and not ended:
            orders.wait(self.frontier.schedule.cache.get(name))
        self.commit()

    @property
    def _least(self) -> float:
        return max(delay_policy(self._settings).minimum, self.state.delay)

    def _set_least_delay(self, seconds: float) -> None:
        least = max(delay_policy(self._settings).minimum, seconds)
        self.frontier.schedule.orders.delays.change_policy("minimum", least)

    def block(self, name: str, until: float) -> None:
        """Send no URL of a queue until a time, in epoch seconds; a time in the past ends that. It
        is a block as at the console; one of a person, which has no end, stays.

        :raises OrderError: there are too many blocks
        """
        orders, until = self.frontier.schedule.orders, min(until, TIME_MAX)
        rule = name
        with suppress(ValueError):
            rule = block_rule(f"http://{name}/")
        before = orders.standing.in_force(BLOCK).get(rule)
        if before is not None and not before.seconds:
            return
        left = until - self._wall()
        if before is None and left < 0:
            return
        note = f"{_BY}, until {time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime(until))}"
        end = self.frontier.schedule.now() + left
        orders.take(orders.made(BLOCK, rule, note, 0 if left < 0 else end, ended=left < 0))
        self.commit()

    def limit(self, name: str, most: int) -> bool:
        """Send no URL of a queue once so many are done, 0 for no limit. Return False if there is
        no such queue."""
        queue = self.ledger.known_queue(name)
        if queue is None:
            return False
        self.ledger.put_queue(name, replace(queue, limit=most))
        self.ledger.write(sync=True)
        self._leases.let_go_on(self.frontier.schedule.cache.get(name))
        return True

    # --- removing ---

    def delete_queue(self, name: str) -> Generator[None, None, int]:
        """Remove everything of a host, its seen marks too, in steps. Return how many URLs were not
        done. Between two steps, all is allowed but another removal; what is reported of the host
        has failed."""
        if self.ledger.known_queue(name) is None:
            return 0
        count = self.figures(name).active
        self.ledger.begin_leaving(name)
        yield from self._delete(name)
        return count

    def _delete(self, name: str) -> Iterator[None]:
        """Remove everything of a host that is leaving, some keys in each step."""
        frontier, ledger, cache = self.frontier, self.ledger, self.frontier.schedule.cache
        self._leases.drop_host(cache.get(name))
        self.commit()
        host = frontier.schedule.ownership.seal(name)
        keys = self._store.keys(items_prefix(name))
        while some := list(islice(keys, _STEP)):
            for key in some:
                ledger.put((name, key[-schema.KEY_SIZE :]), None)
            ledger.write()
            yield
        yield from self._empty(host)
        for _ in give_up(frontier, host, ()):
            yield
        cache.remove(host)
        frontier.poisoned.discard(name)
        ledger.end_leaving(name)
        self.commit()

    def _empty(self, host: Host) -> Iterator[None]:
        """Remove the queue of a sealed host, and the rows of its pages."""
        frontier, prefix = self.frontier, schema.host_key(host.name)
        keys = self._store.keys(prefix, after=prefix)
        while some := list(islice(keys, _STEP)):
            batch = self._store.batch()
            for key in some:
                batch.delete(key)
            frontier.queues.count_removed(host, len(some))
            host.queue.queued -= len(some)
            if frontier.budget.most:
                frontier.budget.add(host.domain, -len(some))
                frontier.budget.end_batch(batch)
            frontier.schedule.cache.record_now(host, batch)
            yield
        rows = self._store.keys(schema.page_prefix(host.name))
        while some := list(islice(rows, _STEP)):
            delete(self._store, some)
            yield

    def clear(self) -> Generator[None, None, int]:
        """Begin anew with an empty frontier, which keeps the delay of all queues, the pause, and
        what people have ordered. Return how many URLs were not done. The files of the old one are
        removed in steps; between two of them all is allowed but another removal."""
        count, path = self.figures().active, self._folder.path
        self._make_next(path / _NEXT)
        self.frontier.close()
        FilterFile(self._folder.seen).remove()
        removed = path / _REMOVED
        self._folder.frontier.rename(removed)
        (path / _NEXT).rename(self._folder.frontier)
        sync(path)
        self._open(self.state, new=False)
        yield from removed_in_steps(removed)
        return count

    def _make_next(self, folder: Path) -> None:
        """Make the frontier with which the crawl begins anew."""
        shutil.rmtree(folder, ignore_errors=True)
        store, standing = LevelStore(folder, create=True), self.frontier.schedule.orders.standing
        try:
            put_owner(store, self._head.seed, self._head.ring)
            batch = store.batch()
            StandingOrders(store).put(
                (each for each in standing.all() if not each.ended and not _is_of_client(each)),
                batch,
            )
            batch.write()
            if not self.is_active:
                put(store, schema.CRAWL_PAUSED, b"")
            put_state(store, CrawlState(self.state.crawl_id, self.state.delay))
        finally:
            store.close()

    def _end_clearing(self) -> None:
        """Do the rest of `clear` after a death."""
        path = self._folder.path
        if not self._folder.frontier.exists() and (path / _NEXT).exists():
            (path / _NEXT).rename(self._folder.frontier)
        for name in (_NEXT, _REMOVED):
            shutil.rmtree(path / name, ignore_errors=True)

    def purge(self, days: int, name: str = "") -> Generator[None, None, int]:
        """Remove the URLs that were stored so many days ago or earlier, except leased ones; those
        of one queue only. Return how many. It is done in steps, as `delete_queue`."""
        before = self._wall() - days * 86_400
        self.ledger.put_state(replace(self.state, has_purged=True))
        count = 0
        names: Iterable[str] = [name] if name else (host for host, _ in self.ledger.queues())
        keys = (
            (host, key[-schema.KEY_SIZE :])
            for host in names
            for key in self._store.keys(items_prefix(host))
        )
        while some := list(islice(keys, _STEP)):
            count += sum(self._purge(each, before) for each in some)
            self.commit()
            yield
        return count

    def _purge(self, name: Name, before: float) -> bool:
        """Remove a URL that was stored before a time and is not leased; return whether it was."""
        # It may have changed since the search for it began.
        item = self.ledger.item(name)
        if item is None or item.created >= before or item.phase in (Phase.LEASED, Phase.PURGED):
            return False
        self.ledger.put(name, Item("", Phase.PURGED, 0.0))
        self.ledger.write()
        if item.phase is Phase.QUEUED:
            self._leases.done(name, item, DELETED)
        return True

    # --- looking ---

    def figures(self, name: str = "") -> QueueCounts:
        """Return the numbers of a queue, or of the crawl."""
        frontier, ledger = self.frontier, self.ledger
        self._leases.advance()
        if not name:
            sums = ledger.totals
            active = frontier.pending + sums.scheduled
            return QueueCounts(
                active, sums.leased, sums.done, ledger.count, frontier.schedule.host_count
            )
        if (queue := ledger.known_queue(name)) is None:
            return QueueCounts(0, 0, 0, 0, 0)
        pending = frontier.schedule.cache.get(name).queue.pending
        active = pending + queue.scheduled
        return QueueCounts(active, queue.leased, queue.done, 1, int(active > 0))

    def queue_names(self, *, include_inactive: bool) -> Iterator[str | None]:
        """Yield the queues by name, None for each that is left out. An inactive one is blocked or
        paused, or has no URL that is not done."""
        holder_of = self.frontier.schedule.orders.holder_of
        for name, queue in self.ledger.queues():
            is_listed = include_inactive or (
                holder_of(name) is None and (queue.scheduled or self._has_entries(name))
            )
            yield name if is_listed else None

    def _has_entries(self, name: str) -> bool:
        return next(entries(self._store, name), None) is not None

    def items(self, name: str = "") -> Iterator[tuple[str, Item]]:
        """Yield the URLs of a queue, or of all, with their hosts; also those that `scrapy crawl`
        has queued or fetched."""
        now = self._wall()
        for host in [name] if name else (host for host, _ in self.ledger.queues()):
            for _, value in self._store.items(items_prefix(host)):
                item = decode_item(value)
                if item.phase is not Phase.PURGED:
                    yield host, item
            for item in self._of_scrapy(host, now):
                yield host, item

    def _of_scrapy(self, host: str, now: float) -> Iterator[Item]:
        for key, value in entries(self._store, host):
            entry = entry_of(key, value)
            if entry.is_plain and not self._has_item(host, entry.url):
                yield Item(entry.url, Phase.QUEUED, 0.0, max(entry.due, now))
        for key, value in self._store.items(schema.page_prefix(host)):
            row = read_row(value, host, key)
            if row is not None and not self._has_item(host, row.url):
                phase = Phase.SCHEDULED if row.due else Phase.DONE
                yield Item(row.url, phase, row.first, row.due)

    def _has_item(self, host: str, url: str) -> bool:
        return self._store.get(items_prefix(host) + self._key_of(url)) is not None

    def find(self, text: str) -> tuple[str, Item] | None:
        """Return a URL and its host; None if it is not known. One that `scrapy crawl` has seen is
        done if it has a row, else it is queued."""
        self._leases.advance()
        url = normalise(text)
        if url is None:
            return None
        host = host_of(url)
        key = self._key_of(url)
        item = self.ledger.item((host, key))
        if item is not None:
            return None if item.phase is Phase.PURGED else (host, item)
        pages = self.frontier.pages
        if pages is not None and (row := pages.get(url)) is not None:
            phase = Phase.SCHEDULED if row.due else Phase.DONE
            return host, Item(row.url, phase, row.first, row.due)
        if self.frontier.seen.known(host, key):
            return host, Item(url, Phase.QUEUED, 0.0, self._wall())
        return None

"""What a hand-over changes in both frontiers: hosts are given up, forgotten, and taken in.

Take in hosts from other frontiers, chunk by chunk. The number of chunks that have arrived of a host
is written in the batch that queues a chunk. So each chunk counts once, however often it is sent,
and the hand-over survives a death of either side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.hosts.host import DEFERRED, HELD, IDLE, SCHEDULED, SEALED, Health, Host
from krowlspider.frontier.hosts.table import HostEvent
from krowlspider.frontier.moves.chunks import Chunk, ChunkContent, put_poison, read_chunk
from krowlspider.frontier.pages.row import last_fetch, without_plan
from krowlspider.frontier.schedule.ownership import HostBusyError
from krowlspider.frontier.seed_table import leave_states, take_state
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import authorities_of, split_queue_key, whole_microseconds
from krowlspider.frontier.store.store import Batch, Store, entries

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.moves.chunks import Identify
    from krowlspider.frontier.robots.gate import RobotsCache

# The most pages done or dropped that a host is taken over with: half of what its record holds,
# which leaves room for more here.
_COUNT_MAX = 0x7FFFFFFF
# Entries of a host that are read in a step of its removal.
_STEP = 1000


def entries_of(frontier: Frontier, name: str) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield all queued entries of a host, then its poison, as (``queued`` or ``poison``, key,
    value)."""
    for key, value in entries(frontier.store, name):
        yield "queued", key, value
    if name in frontier.poisoned:
        for key, value in frontier.store.items(schema.poison_prefix(name)):
            yield "poison", key, value


def _keys_of(frontier: Frontier, name: str) -> Iterator[bytes]:
    """Yield the keys of `entries_of`."""
    prefix = schema.host_key(name)
    yield from frontier.store.keys(prefix, after=prefix)
    if name in frontier.poisoned:
        yield from frontier.store.keys(schema.poison_prefix(name))


def give_up(
    frontier: Frontier, host: Host, kept: Collection[bytes], *, moves: bool = False
) -> Generator[None, None, int]:
    """Remove a sealed host that another frontier has taken over, with its seen marks. Return how
    many entries stay: those with the keys ``kept``, because no other job can read them.

    ``moves``: what becomes of its seeds is known there.

    Some entries and rows of pages are read in each step. They are removed in one batch. After it,
    some marks are removed in each step.
    """
    name, store = host.name, frontier.store
    batch = store.batch()
    for number, key in enumerate(_keys_of(frontier, name), 1):
        if number % _STEP == 0:
            yield
        if key not in kept:
            batch.delete(key)
    for number, key in enumerate(store.keys(schema.page_prefix(name)), 1):
        if number % _STEP == 0:
            yield
        batch.delete(key)
    for note in store.keys(schema.arriving_prefix(name)):
        batch.delete(note)
    if not kept:
        _delete_robots(frontier, name, batch)
        batch.delete(schema.trust_key(name))
        batch.delete(schema.hints_key(name))
        frontier.header_terms.forget(name, batch)
        batch.delete(schema.soft_not_found_key(name))
        _delete_demand(frontier, name, batch)
        if frontier.quotas is not None:
            frontier.quotas.forget(name, batch)
        batch.delete(schema.deferred_key(name))
        if moves:
            leave_states(store, name, batch)
    marks = frontier.seen.forget(name, batch)
    queued = [key for key in kept if key[:1] == schema.QUEUE]
    if frontier.budget.most:
        gone = host.queue.queued - len(queued)
        frontier.budget.add(host.domain, -gone - host.queue.done)
    frontier.queues.keep(host, queued)
    frontier.budget.end_batch(batch)
    if kept:
        frontier.schedule.cache.record([host], batch)
    else:
        frontier.schedule.cache.erase(host, batch)
    batch.write()
    yield from marks
    return len(kept)


def _delete_robots(frontier: Frontier, name: str, batch: Batch) -> None:
    """Put the removal of a host's robots.txt records into the batch."""
    # Delete only what exists: a search scans over deleted keys.
    keys = [schema.robots_key(authority) for authority in authorities_of(name)]
    for key, record in zip(keys, frontier.store.read(keys), strict=True):
        if record is not None:
            batch.delete(key)


def _delete_demand(frontier: Frontier, name: str, batch: Batch) -> None:
    if frontier.pages is not None and frontier.pages.planner is not None:
        frontier.pages.planner.forget(name, batch)
    elif frontier.store.get(key := schema.demand_key(name)) is not None:
        # Without the sum, the next schedule adds up the demands of the hosts.
        batch.delete(key)
        batch.delete(schema.DEMAND)


def take_over(frontier: Frontier, part: ChunkContent, batch: Batch) -> None:
    """Take over one part of a host that another frontier hands over, and write the batch.

    Its entries go behind those queued here, except the ones known here. What the other frontier has
    done is removed from the queue here.
    """
    schedule = frontier.schedule
    schedule.cache.evict()
    host = schedule.cache.get(part.name)
    if part.host is not None:
        _merge(frontier, host, part.host)
    _withdraw(frontier, host, part, batch)
    known = frontier.seen.marked_among(
        host.name, [key for _, _, key in part.entries if key is not None]
    )
    for done in part.done:
        frontier.seen.restore(host.name, done)
    new = [
        Candidate(host.name, key, entry, priority)
        for priority, entry, key in part.entries
        if key not in known
    ]
    frontier.counters["known"] += len(part.entries) - len(new)
    frontier.seen.mark(host.name, [each.key for each in new if each.key is not None])
    frontier.queues.append(host, new, batch)
    if frontier.budget.most:
        frontier.budget.add(host.domain, len(new))
    for url, state in part.seeds:
        take_state(frontier.store, url, state, batch)
    if frontier.pages is not None:
        for url, words in part.seed_names:
            frontier.pages.seeds.key_of(url)
            if words is not None:
                frontier.pages.seeds.begin_words().learn(url, words)
    if part.used and frontier.quotas is not None:
        frontier.quotas.take(host.name, part.used, batch)
    if part.pages:
        _put_rows(frontier, host.name, part.pages, batch)
    if part.poison:
        put_poison(frontier.store, part, batch)
        frontier.poisoned.add(host.name)
    if host.state is DEFERRED:
        batch.put(schema.deferred_key(host.name), b"")
    schedule.due_changed(host)
    frontier.budget.end_batch(batch)
    frontier.seen.end_batch(batch)
    schedule.cache.record([host], batch)
    batch.write()


def _put_rows(frontier: Frontier, name: str, rows: list[tuple[bytes, bytes]], batch: Batch) -> None:
    """Put rows of pages into a batch. Where this frontier has a row too, the one with the later
    fetch stays; one of another version stays always."""
    prefix = schema.page_prefix(name)
    rows = sorted(rows)
    own = frontier.store.read([prefix + identity for identity, _ in rows])
    taken = [
        (identity, row)
        for (identity, row), there in zip(rows, own, strict=True)
        if there is None or last_fetch(row, name) > last_fetch(there, name)
    ]
    planner = None if frontier.pages is None else frontier.pages.planner
    if planner is None:
        # No bucket here has them: a later schedule plans them.
        taken = [(identity, without_plan(row, name)) for identity, row in taken]
    else:
        taken = planner.take(name, taken, batch)
    for identity, row in taken:
        batch.put(prefix + identity, row)


def _merge(frontier: Frontier, host: Host, other: Host) -> None:
    """Keep the slower rate and the later times of both hosts, and add up their counts."""
    delay = frontier.schedule.rule.delay
    if delay(other.rate) > delay(host.rate):
        host.rate = other.rate
    host.due = max(host.due, whole_microseconds(other.due))
    if host.state is not DEFERRED or host.ready:
        # A ``ready`` of 0 means deferred until the next round: it stays.
        host.ready = max(host.ready, whole_microseconds(other.ready))
    for name in ("done", "dropped", "extras"):
        total = getattr(host.queue, name) + getattr(other.queue, name)
        setattr(host.queue, name, min(total, _COUNT_MAX))
    if frontier.budget.most:
        frontier.budget.add(host.domain, other.queue.done)
    if host.health is Health.NEW and host.state in (IDLE, SCHEDULED, HELD):
        host.set_health(other.health)
        if other.health is Health.DEFERRED:
            frontier.schedule.transitions.move(host, HostEvent.IS_DEFERRED)
            host.ready = host.due if other.ready else 0.0
            frontier.schedule.deferral.schedule(host)


def _withdraw(frontier: Frontier, host: Host, part: ChunkContent, batch: Batch) -> None:
    """Remove the entries from a host's queue that the other frontier has done, except leased ones
    and those of pages that are fetched again."""
    queue = host.queue
    doubtful = frontier.seen.marked_among(host.name, part.done)
    if not doubtful or not queue.queued:
        return
    removed = 0
    for key, value in entries(frontier.store, host.name):
        entry = entry_of(key, value)
        if split_queue_key(key) in queue.leased or entry.is_again:
            continue
        if part.identity(entry) not in doubtful:
            continue
        batch.delete(key)
        removed += 1
        if frontier.budget.most:
            frontier.budget.add(host.domain, -1)
    queue.queued -= removed
    frontier.queues.count_removed(host, removed)
    frontier.counters["known"] += removed
    if host.state is DEFERRED:
        frontier.schedule.transitions.deferred -= removed


# Most URLs of a host that is forgotten, queued or done: it is done in one turn of the event loop.
FORGOTTEN_MAX = 5000


def forget_now(frontier: Frontier, name: str) -> int | None:
    """Remove everything of a host, its seen marks too. Return how many URLs were queued; None for a
    host with more than FORGOTTEN_MAX URLs, of which nothing is changed.

    Its queue goes in one batch, with the note that its marks go too, which a restart completes.

    :raises HostBusyError: it has a request in flight or pages that are not acknowledged
    """
    schedule, queue = frontier.schedule, frontier.schedule.cache.get(name).queue
    if queue.pending + queue.done + queue.dropped > FORGOTTEN_MAX:
        return None
    host, queued = schedule.ownership.seal(name), queue.queued
    # No other node must be able to read its entries.
    for _ in give_up(frontier, host, ()):
        pass
    schedule.cache.remove(host)
    frontier.poisoned.discard(name)
    frontier.counters["dropped/operator"] += queued
    return queued


class Arrivals:
    """The hosts that come to a frontier; ``url_max`` is the length of the longest URL taken."""

    def __init__(
        self,
        frontier: Frontier,
        store: Store,
        robots: RobotsCache,
        identify: Identify,
        *,
        url_max: int,
    ):
        self._frontier = frontier
        self._store = store
        self._robots = robots
        self._identify = identify
        self._url_max = url_max

    def take(self, chunk: Chunk) -> int:
        """Take a chunk if it is the next of its host.

        Return how many chunks have arrived. They survive a power loss after the next commit: tell
        the sender only then. `Ownership.is_ours` decides whether the host may be fetched.

        :raises BadChunk: the chunk cannot be taken; nothing has changed
        :raises HostBusyError: this node is handing the host over itself
        """
        part = read_chunk(chunk, self._frontier.now(), self._identify, url_max=self._url_max)
        if self._frontier.schedule.cache.get(part.name).state is SEALED:
            raise HostBusyError(f"{part.name} is on its way to another node")
        key = schema.arriving_prefix(part.name) + part.transfer
        arrived = int.from_bytes(self._store.get(key) or b"", "big")
        if part.number != arrived:
            return arrived
        batch = self._store.batch()
        for authority, record in part.robots:
            self._robots.take_over(authority, record, batch)
        batch.put(key, (arrived + 1).to_bytes(4, "big"))
        take_over(self._frontier, part, batch)
        return arrived + 1

"""The frontier: which URL of which host is fetched next, kept so that no URL is lost.

A URL's seen mark and its queue entry are written in one batch. Acknowledgements are collected and
written in one synced batch (`begin_commit`). The caller writes that batch once the pages' records
are durable.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

from krowlspider.frontier.entry_queues import (
    FELL_BACK,
    PAGE,
    Admission,
    Candidate,
    EntryQueues,
    Lease,
)
from krowlspider.frontier.header_terms import HeaderTerms
from krowlspider.frontier.hosts.host import origin_of
from krowlspider.frontier.hosts.host_record import Tally
from krowlspider.frontier.limits import DomainBudget, DomainLoad, FrontierLimits, LinkedPorts
from krowlspider.frontier.outbox import Foreign, Outbox, foreign_mark
from krowlspider.frontier.outcomes import Outcomes, WatchedHosts
from krowlspider.frontier.schedule.cache import JobClock
from krowlspider.frontier.schedule.scheduler import HostScheduler
from krowlspider.frontier.seed_table import SeedTable, ended, put_states
from krowlspider.frontier.stopped import catch_up, read_counters
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import after_all, host_in
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from krowlspider.frontier.pages.rows import PageRows
    from krowlspider.frontier.quotas import Quotas
    from krowlspider.frontier.seen import SeenSet
    from krowlspider.frontier.store.store import Batch, Store
    from krowlspider.politeness.delay import DelayPolicy

# Acknowledged entries after which the consumed part of the heap on disk is compacted: a start reads
# across what LevelDB keeps of it. Queues are read by key, and need no compaction.
COMPACT_EVERY = 500_000

# Pages of the last commits that are kept to be shown.
_RECENT = 100

# A lease that has ended, and the reason its entry was dropped; None where it was not dropped.
Acknowledged = tuple[Lease, str | None]


@dataclass(slots=True, eq=False)
class Commit:
    """Acknowledgements on their way to disk. ``upkeep`` follows them."""

    store: Store
    batch: Batch
    acknowledged: list[Acknowledged]
    counters: Counter[str]
    outcomes: Counter[str]
    upkeep: list[Callable[[], None]]
    pages: PageRows | None = None

    def write(self) -> None:
        """Write the batch and do the upkeep. This blocks for an fsync: call it off the event
        loop."""
        if self.pages is not None:
            self.pages.put(self.acknowledged, self.batch)
        ends = [ended(*each) for each in self.acknowledged if not each[0].entry.depth]
        put_states(self.store, filter(None, ends), self.batch)
        self.batch.write()
        for work in self.upkeep:
            work()


class Frontier:
    """The queues of all hosts, over a store.

    ``schedule`` says which host is next, ``queues`` which of its entries. ``seen`` knows all URLs
    that were ever queued, ``outbox`` has those of other nodes. ``counters`` are kept on disk.
    ``poisoned`` are the hosts with pages that killed the process three times and are set aside.
    ``refused`` counts what the caps refuse,
    ``outcomes`` counts the answers to pages, ``seeds`` keeps what became of each seed. ``pages``
    has a row for each page that was fetched, None without KROWL_PAGES; so ``seed_names`` has the
    seeds that these came from. ``quotas`` counts what sheets limit, None without KROWL_POLICIES.

    ``monotonic``, ``wall`` and ``boot`` are as in `JobClock`, ``may_fetch`` as in `Ownership`,
    ``may_overflow`` as in `Admission`. ``on_admitted`` is called with what is queued for a host,
    before the batch is written.
    """

    def __init__(
        self,
        store: Store,
        seen: SeenSet,
        limits: FrontierLimits,
        rule: DelayPolicy,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        boot: bytes = b"",
        may_fetch: Callable[[str], bool] | None = None,
        may_overflow: Callable[[], bool] = lambda: True,
        pages: PageRows | None = None,
        quotas: Quotas | None = None,
        on_admitted: Callable[[list[Candidate]], object] | None = None,
    ):
        self.seen = seen
        self.quotas = quotas
        self.store = store
        self.pages = pages
        self.seed_names = None if pages is None else pages.seeds
        self._clock = JobClock(store, monotonic=monotonic, wall=wall, boot=boot)
        self.now = self._clock.now
        self.counters = read_counters(store)
        tally = Tally.read(store)
        clean = store.get(schema.CLEAN)
        if clean is None:
            # The store was not closed: the last process died.
            catch_up(store, tally)
        known: dict[str, Any] = json.loads(clean or b"{}")
        # Few hosts are poisoned. For any other one, a search for its poison would walk over all
        # deleted keys behind that place.
        self.poisoned = {host_in(key) for key in store.keys(schema.POISON)}
        self.outbox = Outbox(store, limits.outbox, known.get("outbox"))
        self.budget = DomainBudget(store, limits.domain_budget)
        self.linked_ports = LinkedPorts(store, limits.ports)
        self._load = DomainLoad(store, limits.domain_share, limits.total)
        self._admission = Admission(
            limits,
            self._load,
            self.budget,
            self.counters,
            may_overflow,
            of_seeds=None if self.seed_names is None else self.seed_names.limits,
        )
        self._admit = self._admission.admit
        if on_admitted is not None:
            self._admit = partial(_noted, self._admission.admit, on_admitted)
        self.refused = self._admission.refused
        self.outcomes = Outcomes(store, self.now())
        self.header_terms = HeaderTerms(store)
        self.seeds = SeedTable(store)
        self._acknowledged: list[Acknowledged] = []
        # The last that were committed, the newest last.
        self.recent: deque[Acknowledged] = deque(maxlen=_RECENT)
        self.watched = WatchedHosts(rule)
        self._consumed = 0
        batch = store.batch(sync=True)
        batch.delete(schema.CLEAN)
        batch.put(schema.ROBOTS_END, b"")
        tally.put(batch)
        self._put_totals(batch, self.counters)
        batch.write()
        self.schedule = HostScheduler(
            store,
            tally,
            limits,
            rule,
            self._clock,
            recovered_at=known.get("unsure"),
            may_fetch=may_fetch,
        )
        self.queues = EntryQueues(
            store,
            self.schedule,
            self._load,
            queued=tally.queued,
            again_share=limits.again_share,
        )

    def close(self) -> None:
        """Mark the store as cleanly closed, and close it. Leased entries stay queued for the next
        start."""
        batch = self.store.batch(sync=True)
        self.schedule.cache.record_changed(batch)
        self._put_totals(batch, self.counters)
        known = {"unsure": self.schedule.recovered_at, "outbox": self.outbox.gauges()}
        batch.put(schema.CLEAN, json.dumps(known).encode())
        self.outcomes.put(batch, Counter())
        batch.write()
        self.seen.save(self.seen.snapshot())
        self.store.flush()
        self.store.close()

    def _put_totals(self, batch: Batch, counters: Counter[str]) -> None:
        batch.put(schema.COUNTERS, json.dumps(counters).encode())
        self._load.put(batch)
        self._clock.put(batch)

    # --- what comes in ---

    def knows(self, keys: Sequence[bytes], host_at: Callable[[int], str]) -> list[bool]:
        """Return for each identity whether it is known, in the order of ``keys``. ``host_at``
        returns the host of the identity at an index. The known ones are counted as ``known``."""
        known = self.seen.known_among(keys, host_at)
        if count := sum(known):
            self.counters["known"] += count
        return known

    def without_recent(self, urls: list[str]) -> list[str]:
        """Return those of the links of a page that were not found known lately, in order. The
        others are counted as ``known``."""
        recent = self.seen.recent_links.among(urls)
        if not recent:
            return urls
        new = [url for url in urls if url not in recent]
        self.counters["known"] += len(urls) - len(new)
        return new

    def add(self, candidates: Iterable[Candidate], *, is_exempt: bool = False) -> int:
        """Queue the candidates that are not known, as `queue` does, and return how many were
        queued."""
        new = [each for each in candidates if not self._is_known(each)]
        return self.queue(new, is_exempt=is_exempt)

    def _is_known(self, candidate: Candidate) -> bool:
        key = candidate.key
        return key is not None and self.knows((key,), lambda _: candidate.host)[0]

    def queue(
        self,
        candidates: list[Candidate],
        foreign: Sequence[Foreign] = (),
        decided: Sequence[bytes] = (),
        via: str = "",
        *,
        is_exempt: bool = False,
        has_lines: bool = False,
    ) -> int:
        """Queue candidates that are not known, and mark them seen, in one batch. Return how many
        were queued.

        A candidate that is given twice is queued once. Those that a cap refuses are not marked
        seen; `Admission` counts them.

        - ``foreign``: URLs that go into the outbox in the same batch, as in `_forward`.
        - ``decided``: keys of outbox entries that `Outbox.rebucket` returned; they leave the outbox
          with the batch.
        - ``via``: the host of the page on which all candidates were found: the origin of those
          hosts that are new.
        - ``is_exempt``: they are seeds, to which the cap on a host's queue does not apply. Without
          ``via``, the caps on a domain and on the frontier do not apply either (`Admission.admit`).
        - ``has_lines``: as in `SeedTable.queued`.
        """
        cache = self.schedule.cache
        cache.evict()
        # In the order of arrival, not by address in memory: the same crawl twice gives the same
        # result.
        by_host: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            by_host.setdefault(candidate.host, []).append(candidate)
        cache.read(by_host)
        batch = self.store.batch()
        added = 0
        touched = []
        queues = self.queues
        domain = domain_of(via) if via else ""
        for name, some in by_host.items():
            host = cache.hosts[name]
            by_stranger = bool(domain) and host.domain != domain
            if by_stranger and not (host.record or host.queue.levels):
                host.shares.origin = origin_of(domain)
            taken = self._admit(
                host,
                some,
                queued=queues.queued,
                by_stranger=by_stranger,
                is_exempt=is_exempt,
                is_given=is_exempt and not via,
            )
            if taken:
                self.seen.mark(name, [each.key for each in taken if each.key is not None])
                queues.append(host, taken, batch)
                touched.append(host)
                added += len(taken)
                if is_exempt and not via:
                    self.seeds.queued(taken, batch, has_lines=has_lines)
                elif taken[0].entry.chain and not taken[0].entry.depth:
                    self.seeds.queued(taken, batch, has_lines=True)
        if foreign:
            self._forward(foreign, batch)
        if decided:
            self.outbox.take_out(decided, batch)
        self.budget.end_batch(batch)
        self.seen.end_batch(batch)
        cache.record(touched, batch)
        batch.write()
        self.counters["queued"] += added
        return added

    def promote(self, seed: Candidate, key_of: Callable[[str], bytes]) -> bool:
        """Give a URL that was found as a link, and is queued, the place of a seed.

        ``key_of`` returns the identity of a URL. Return False if the URL is a seed already, or is
        not among the first URLs of its host's queue: fetched, in flight, or far behind.

        :raises StoreError: the store cannot be written
        """
        if self.seeds.follows(seed.entry.url):
            return False
        self.schedule.cache.evict()
        host = self.schedule.cache.get(seed.host)
        batch = self.store.batch()
        if not self.queues.promote(host, seed, key_of, batch):
            return False
        self.seeds.queued([seed], batch, has_lines=True)
        self.schedule.cache.record([host], batch)
        batch.write()
        return True

    def _forward(self, items: Sequence[Foreign], batch: Batch) -> None:
        """Put new items into the outbox and mark them as sent to their owner.

        Items put are counted as ``foreign``, known ones as ``known``. Those for which the outbox
        has no room are counted as ``dropped/outbox``, and not marked.
        """
        marks = [None if each.key is None else foreign_mark(each.owner, each.key) for each in items]
        asked = [mark for mark in marks if mark is not None]
        known = self.seen.known_among([key for _, key in asked], lambda at: asked[at][0])
        sent = set(compress(asked, known))
        for item, mark in zip(items, marks, strict=True):
            if mark is not None:
                if mark in sent:
                    self.counters["known"] += 1
                    continue
                # An item without a key goes in even if the outbox is full: its finder has marked it
                # as sent, and would not send it again.
                if self.outbox.full:
                    self._admission.refuse("outbox", item.host)
                    continue
                sent.add(mark)
                self.seen.mark(mark[0], mark[1:])
            self.outbox.put(item.owner, item.host, item.message, batch)
            self.counters["foreign"] += 1

    # --- what is done ---

    def acknowledge(self, lease: Lease, dropped: str | None = None) -> None:
        """Record that an entry is done. ``dropped`` is the reason if it was dropped, or FELL_BACK
        if its http URL was queued in its place. The next commit counts it and removes it from
        disk."""
        answer = lease.answer
        if lease.entry.request or (answer is not None and answer.location is not None):
            lease.settle()
        if self.seed_names is not None:
            if self.seed_names.words is not None:
                self.seed_names.words.ended(lease, dropped)
            if dropped is not None:
                self.seed_names.limits.add(lease.entry.seed, (dropped,))
        if self.quotas is not None:
            self.quotas.settle(lease, dropped)
        self._acknowledged.append((lease, dropped))

    def begin_commit(self) -> Commit:
        """Return a commit of all acknowledgements since the last one.

        The pages' records must be durable before its ``write``. After it, call `end_commit`.
        """
        self.schedule.deferral.advance_round()
        self.schedule.orders.advance()
        acknowledged, self._acknowledged = self._acknowledged, []
        batch = self.store.batch(sync=True)
        counted: Counter[str] = Counter()
        for lease, dropped in acknowledged:
            batch.delete(self.queues.key_of(lease))
            if dropped is None and lease.kind == PAGE:
                counted["done"] += 1
            else:
                counted[_counter(lease.kind, dropped)] += 1
        self._put_totals(batch, self.counters + counted)
        if self.seed_names is not None:
            self.seed_names.limits.put(batch)
            if self.seed_names.words is not None:
                self.seed_names.words.put(batch)
        if self.quotas is not None:
            self.quotas.put(batch)
        self.header_terms.put(batch)
        tallied = self.outcomes.tally(acknowledged)
        if acknowledged:
            self.outcomes.put(batch, tallied)
            # `end_commit` writes the records of these hosts. If the process dies before that, the
            # next start counts their queues.
            names = {lease.host.name for lease, _ in acknowledged}
            batch.put(schema.ACKNOWLEDGED, json.dumps(sorted(names)).encode())
        upkeep = self._upkeep(len(acknowledged))
        return Commit(self.store, batch, acknowledged, counted, tallied, upkeep, self.pages)

    def _upkeep(self, acknowledged: int) -> list[Callable[[], None]]:
        """Return the upkeep that is due, for the thread that writes the commit."""
        due: list[Callable[[], None]] = []
        if self.seen.due_to_save():
            due.append(partial(self.seen.save, self.seen.snapshot()))
        self._consumed += acknowledged
        if self._consumed >= COMPACT_EVERY:
            self._consumed = 0
            due.append(partial(self.store.compact, *self.schedule.due.consumed()))
        if self.outbox.consumed():
            due.append(partial(self.store.compact, schema.OUTBOX, after_all(schema.OUTBOX)))
        return due

    def end_commit(self, commit: Commit) -> None:
        """Finish a commit that is on disk: end its leases, count them, and write the records of
        their hosts."""
        cache = self.schedule.cache
        for lease, dropped in commit.acknowledged:
            host = lease.host
            self.queues.end_lease(lease)
            cache.note(host)
            if lease.entry.is_again:
                # The page was counted when it was fetched first.
                continue
            if dropped is None or dropped == FELL_BACK:
                host.queue.done += 1
                host.queue.extras += dropped is not None or lease.kind != PAGE
            else:
                host.queue.dropped += 1
            if dropped is not None and self.budget.most:
                self.budget.add(host.domain, -1)
        batch = self.store.batch()
        cache.record_changed(batch)
        self.budget.end_batch(batch)
        batch.write()
        if self.seed_names is not None and self.seed_names.words is not None:
            self.seed_names.words.committed()
        self.counters.update(commit.counters)
        self.outcomes.counts.update(commit.outcomes)
        self.recent.extend(commit.acknowledged[-_RECENT:])
        self.watched.take(commit.acknowledged, self.now())

    # --- figures ---

    @property
    def queued(self) -> int:
        """Return how many entries are queued."""
        return self.queues.queued

    @property
    def leased(self) -> int:
        """Return how many entries were popped and are not acknowledged."""
        return self.queues.leased

    @property
    def pending(self) -> int:
        """Return how many entries are queued or leased."""
        return self.queues.queued + self.queues.leased

    @property
    def deferred_queued(self) -> int:
        """Return how many entries of deferred hosts are queued."""
        return self.schedule.transitions.deferred

    @property
    def has_fetchable(self) -> bool:
        """Return whether entries are queued that may be fetched before the next round of deferred
        hosts."""
        return self.queued > self.deferred_queued or self.schedule.deferral.is_in_round


def _noted(
    admit: Callable[..., list[Candidate]],
    on_admitted: Callable[[list[Candidate]], object],
    *args: Any,
    **given: Any,
) -> list[Candidate]:
    taken = admit(*args, **given)
    on_admitted(taken)
    return taken


def _counter(kind: str, dropped: str | None) -> str:
    """Return the name of the counter of an acknowledged entry that is no page done."""
    if dropped is None:
        return f"done/{kind}"
    return dropped if dropped == FELL_BACK else f"dropped/{dropped}"

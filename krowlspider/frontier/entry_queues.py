"""The queue entries of all hosts, and the caps on what is queued.

The queue entries of all hosts: appended, leased, and put back. A popped entry stays on disk, as a
lease, until it is acknowledged. After a restart it is still queued.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from krowlspider.frontier.entry import Entry, Fetched
from krowlspider.frontier.hosts.host import SEED_PRIORITY, Health, Host, Level, level_of
from krowlspider.frontier.hosts.table import SchedulingState
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import split_queue_key
from krowlspider.politeness import gemini
from krowlspider.recrawl.validators import Meaning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krowlspider.frontier.limits import DomainBudget, DomainLoad, FrontierLimits
    from krowlspider.frontier.schedule.scheduler import HostScheduler
    from krowlspider.frontier.seed_limits import SeedLimits
    from krowlspider.frontier.store.store import Batch, Store

# Entries of a host that are read together when it is popped.
_AHEAD = 4
# Bytes of the longest entry that is kept in memory until it is popped.
_AHEAD_BYTES = 512
# Entries of a host among which a seed is looked for that is queued as a link.
_LOOKED_AT = 500
# Bytes of an answer's headers that are kept.
_MEDIA_TYPE_MAX = 256
_LOCATION_MAX = 2048
# Statuses that, with a Location, redirect (RFC 9110, section 15.4; those of Gemini).
REDIRECTS = frozenset({301, 302, 303, 307, 308, *gemini.REDIRECTS})
PAGE = "page"
REDIRECT = "redirect"
# The answer to a conditional request: the page is as it was.
NOT_MODIFIED = "not_modified"
# In place of the reason of a drop: the URL is over, and its http URL follows.
FELL_BACK = "fallback"
# The reason of a URL that a hook does not want.
HOOK = "hook"


class LastAnswer(NamedTuple):
    """The last answer to the request of a page.

    ``media_type`` and ``location`` are the starts of the headers as received, ``size`` is in bytes,
    ``latency`` in seconds.
    """

    status: int
    media_type: bytes | None
    location: bytes | None
    size: int
    latency: float

    @classmethod
    def of(
        cls,
        status: int,
        media_type: bytes | None,
        location: bytes | None,
        size: int,
        latency: float,
    ) -> LastAnswer:
        """Return an answer, with no more of its headers than is used: it waits for a commit."""
        kind = media_type and media_type[:_MEDIA_TYPE_MAX]
        return cls(status, kind, location and location[:_LOCATION_MAX], size, latency)


class Lease(Struct, eq=False):
    """An entry that was popped and is not acknowledged.

    ``answer`` is the last one to its request. ``kind`` is PAGE, REDIRECT, NOT_MODIFIED, or a word
    in `krowlspider.frontier.entry.FILES`, from the acknowledgement on. ``fetched`` is what its last
    answer says of the page, None without rows of pages. ``listing`` is what the row of a sitemap or
    a feed keeps of it, as in `PageRow`; empty where it gets no row.
    """

    host: Host
    priority: int
    sequence: int
    entry: Entry
    answer: LastAnswer | None = None
    kind: str = PAGE
    fetched: Fetched | None = None
    listing: bytes = b""

    @property
    def is_redirect(self) -> bool:
        """Return whether its last answer only names another URL."""
        answer = self.answer
        return answer is not None and answer.location is not None and answer.status in REDIRECTS

    def settle(self) -> None:
        """Set its kind. A plain page has it already, and needs no call."""
        if self.entry.request and (file := self.entry.file):
            self.kind = file
        elif self.is_redirect:
            self.kind = REDIRECT
        elif self.fetched is not None and self.fetched.meaning is Meaning.NOT_MODIFIED:
            self.kind = NOT_MODIFIED


class Candidate(Struct, gc=False):
    """A URL that may become a queue entry. ``key`` is its identity; with None, the URL is queued
    without a seen mark."""

    host: str
    key: bytes | None
    entry: Entry
    priority: int = 0


class EntryQueues:
    """The queue entries of all hosts. ``queued`` and ``leased`` count them.

    ``again_share`` is as in `FrontierLimits`.
    """

    def __init__(
        self,
        store: Store,
        schedule: HostScheduler,
        load: DomainLoad,
        *,
        queued: int,
        again_share: float = 0.0,
    ):
        self.queued = queued
        self.leased = 0
        self._store = store
        self._schedule = schedule
        self._load = load
        self._again_share = again_share

    def append(self, host: Host, candidates: Sequence[Candidate], batch: Batch) -> None:
        """Put entries into a host's queue and into the batch. The caller records the host in the
        same batch."""
        if not candidates:
            # Without an entry, the host would be scheduled for nothing.
            return
        name, queue = host.name, host.queue
        prefix, queue_key = schema.host_key(name), schema.queue_key
        most = schema.PRIORITY_LIMIT
        ready = False
        # The priority of the last entry without tries, and the level of such entries.
        plain, level = None, None
        for candidate in candidates:
            entry, priority = candidate.entry, candidate.priority
            if priority:
                priority = max(-most, min(priority, most))
            if entry.due:
                plain, level = None, queue.level(priority, entry.retries + entry.throttling or 1)
                if level.head == level.tail:
                    level.due = entry.due
            else:
                ready = True
                if level is None or priority != plain:
                    plain, level = priority, queue.level(priority)
            batch.put(queue_key(prefix, priority, level.tail), entry.encode(name))
            level.tail += 1
        queue.queued += len(candidates)
        self.queued += len(candidates)
        self._load.add(host.domain, len(candidates))
        are_seeds = candidates[-1].priority == SEED_PRIORITY
        self._schedule.pages_queued(host, len(candidates), ready=ready, are_seeds=are_seeds)

    def pop(self, host: Host, *, seeds_only: bool = False) -> Lease | None:
        """Lease the next entry of a host, and return the lease; None when no entry is due, or with
        ``seeds_only`` no seed. The entry stays on disk."""
        now, queue = self._schedule.now(), host.queue
        ahead, queue.ahead = queue.ahead, None
        most = 1 if not ahead and queue.has_gaps else _AHEAD
        share = 0.0 if seeds_only else self._again_share
        for number in queue.in_turn(share) if share else queue.in_order():
            if seeds_only and number >> 8 < SEED_PRIORITY:
                break
            level = queue.levels[number]
            while level.head < level.tail and level.due <= now:
                if not (ahead and ahead[-1][:2] == (number, level.head)):
                    ahead = self._read_ahead(host.name, number, level, most)
                saved = ahead.pop()[2]
                if saved is None:
                    # It was acknowledged before a restart, while an older entry of the host was
                    # not.
                    level.head += 1
                    continue
                entry = Entry.decode(saved, host.name)
                if entry.due > now:
                    level.due = entry.due
                    break
                level.head += 1
                queue.ahead = ahead
                return self._lease(host, number >> 8, level.head - 1, entry)
        return None

    def _read_ahead(
        self, name: str, number: int, level: Level, most: int
    ) -> list[tuple[int, int, bytes | None]]:
        """Read up to ``most`` next entries of a level, and return them in the form of
        `HostQueue.ahead`. Nothing is read behind a missing entry, nor from a long one on, unless
        that is the first."""
        prefix = schema.host_key(name)
        key = schema.queue_key(prefix, number >> 8, level.head)
        if most == 1:
            return [(number, level.head, self._store.get(key))]
        found: list[tuple[int, int, bytes | None]] = []
        with self._store.reader() as reader:
            value = reader.read(key)
            found.append((number, level.head, value))
            for sequence in range(level.head + 1, min(level.head + most, level.tail)):
                if value is None:
                    break
                value = reader.read_next(schema.queue_key(prefix, number >> 8, sequence))
                if value is not None and len(value) > _AHEAD_BYTES:
                    break
                found.append((number, sequence, value))
        found.reverse()
        return found

    def _lease(self, host: Host, priority: int, sequence: int, entry: Entry) -> Lease:
        """Count an entry as leased, and return its lease."""
        host.queue.queued -= 1
        self.queued -= 1
        self.leased += 1
        host.queue.leased.append((priority, sequence))
        return Lease(host, priority, sequence, entry)

    def unpop(self, lease: Lease) -> None:
        """Undo the pop that returned this lease. No other pop of its host may come in between."""
        queue = lease.host.queue
        queue.levels[level_of(lease.priority, lease.sequence)].head = lease.sequence
        queue.queued += 1
        self.queued += 1
        queue.leased.remove((lease.priority, lease.sequence))
        self.leased -= 1

    def put_back(self, lease: Lease, entry: Entry, batch: Batch) -> None:
        """Replace the entry of a lease in a batch, and end the lease. The new entry goes to the end
        of its queue; with a due time of its own, to the queue for its number of tries. The caller
        records the host in the same batch."""
        batch.delete(self.key_of(lease))
        again = Candidate(lease.host.name, None, entry, lease.priority)
        self.append(lease.host, (again,), batch)
        self.end_lease(lease)

    def replace(self, lease: Lease, entry: Entry) -> None:
        """Put a leased entry back, changed, as `put_back`."""
        batch = self._store.batch()
        self.put_back(lease, entry, batch)
        self._schedule.cache.record_now(lease.host, batch)

    def promote(
        self, host: Host, seed: Candidate, key_of: Callable[[str], bytes], batch: Batch
    ) -> bool:
        """Replace the queued entry of a page by that of the same identity as a seed, in a batch.

        Return False if it is not among the first _LOOKED_AT entries. The caller records the host.
        """
        found = self._find(host, seed, key_of)
        if found is None:
            return False
        key, old = found
        entry = seed.entry
        entry.retries, entry.throttling, entry.due = old.retries, old.throttling, old.due
        entry.strikes = old.strikes
        batch.delete(key)
        self.count_removed(host, 1)
        host.queue.queued -= 1
        if host.state is SchedulingState.DEFERRED:
            self._schedule.transitions.deferred -= 1
        self.append(host, (seed,), batch)
        return True

    def _find(
        self, host: Host, seed: Candidate, key_of: Callable[[str], bytes]
    ) -> tuple[bytes, Entry] | None:
        """Return key and entry of a page with the identity of ``seed`` that is queued as a link."""
        prefix, left = schema.host_key(host.name), _LOOKED_AT
        for number in host.queue.in_order():
            level = host.queue.levels[number]
            if number >> 8 >= SEED_PRIORITY:
                continue
            for sequence in range(level.head, min(level.tail, level.head + left)):
                left -= 1
                key = schema.queue_key(prefix, number >> 8, sequence)
                if (value := self._store.get(key)) is None:
                    continue
                entry = Entry.decode(value, host.name)
                if not entry.request and key_of(entry.url) == seed.key:
                    return key, entry
        return None

    def key_of(self, lease: Lease) -> bytes:
        """Return the key of a lease's entry in the store."""
        return schema.queue_key(schema.host_key(lease.host.name), lease.priority, lease.sequence)

    def end_lease(self, lease: Lease) -> None:
        """End a lease in memory: the entry is removed from disk too."""
        lease.host.queue.end_lease(lease.priority, lease.sequence)
        self._load.take(lease.host.domain)
        self.leased -= 1

    def count_removed(self, host: Host, count: int) -> None:
        """Count entries off that were removed from the queue of a host on disk, without a pop."""
        self.queued -= count
        self._load.take(host.domain, count)
        host.queue.ahead = None

    def keep(self, host: Host, keys: Sequence[bytes]) -> None:
        """Reduce the queue of a sealed host to the entries with these keys, and start its counts
        again."""
        queue = host.queue
        self.count_removed(host, queue.queued - len(keys))
        queue.queued, queue.done, queue.dropped, queue.extras = len(keys), 0, 0, 0
        queue.levels.clear()
        for priority, sequence in map(split_queue_key, keys):
            number = level_of(priority, sequence)
            queue.levels.setdefault(number, Level(sequence, sequence)).tail = sequence + 1


# The priority of URLs that another domain's page names, once the host has _STRANGERS_IN_LINE
# entries. With fewer, one queue serves all.
_STRANGERS = -1
_STRANGERS_IN_LINE = 16
# A domain may have so many times its share, those in the overflow included.
_SHARES = 2
# The priority of URLs for which there is no place, unless theirs is lower. Those that another
# domain's page names have one less.
OVERFLOW = -1000
# Hosts counted by name, for each cap. With more, the smaller half is counted under OTHERS.
NAMES_MAX = 1000
# Stands in place of the hosts that are no longer counted by name. No host has this name.
OTHERS = ""


class CapRefusals:
    """The URLs that caps have refused since the start, by cap and then by host.

    The sum over the hosts of a cap is exact.
    """

    def __init__(self) -> None:
        self._hosts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, cap: str, host: str) -> None:
        """Count one URL of a host."""
        hosts = self._hosts[cap]
        hosts[host] += 1
        if len(hosts) > NAMES_MAX:
            largest = Counter(dict(hosts.most_common(NAMES_MAX // 2)))
            largest[OTHERS] += hosts.total() - largest.total()
            self._hosts[cap] = largest

    def hosts(self, cap: str) -> Counter[str]:
        """Return how many URLs of each host a cap has refused."""
        return self._hosts[cap]


class Admission:
    """Decides which candidates are queued, and counts the refused ones in ``counters`` and
    ``refused``.

    A URL that a cap refuses is counted as ``dropped/frontier``, ``dropped/domain_share`` or
    ``dropped/domain_budget``, one of a retired host as ``dropped/crawl_delay``.

    ``may_overflow`` returns whether the disk has room for more than ``limits.total`` URLs.
    ``of_seeds`` counts the refused ones of each seed, None where seeds are not kept.
    """

    def __init__(
        self,
        limits: FrontierLimits,
        load: DomainLoad,
        budget: DomainBudget,
        counters: Counter[str],
        may_overflow: Callable[[], bool],
        *,
        of_seeds: SeedLimits | None = None,
    ):
        self._limits = limits
        self._of_seeds = of_seeds
        self._load = load
        self._budget = budget
        self._counters = counters
        self._may_overflow = may_overflow
        # With no more URLs in the frontier, only the cap of a host can refuse any.
        self._uncapped = min(limits.total, load.limited_from)
        self._strangers = min(_STRANGERS_IN_LINE, limits.host_queue // 2)
        self.refused = CapRefusals()

    def admit(
        self,
        host: Host,
        candidates: list[Candidate],
        *,
        queued: int,
        by_stranger: bool,
        is_exempt: bool,
        is_given: bool,
    ) -> list[Candidate]:
        """Return the candidates of one host that are to be queued. ``queued`` is the number of URLs
        in the whole frontier.

        Candidates without a place are queued behind all others of the host. With ``by_stranger``,
        another domain's page names them. Then they go behind the host's own, once some entries are
        queued, and leave the host half of its places and of its domain's room. Otherwise, with
        ``is_exempt``, they need no place. With ``is_given``, a person or the spider's own code
        names them: no share of a domain and no cap of the frontier refuses them.
        """
        count = len(candidates)
        if (
            queued + count <= self._uncapped
            and host.queue.queued + count
            <= (self._strangers if by_stranger else self._limits.host_queue)
            and not self._budget.most
            and host.health is not Health.RETIRED
            and (count == 1 or len({each.key for each in candidates}) == count)
        ):
            # The short way: most hosts are far from every cap.
            return candidates
        of_host = self._places(host, count, by_stranger)
        room, cap = self._room(host, count, queued, is_given)
        if by_stranger and (most := max(self._load.room(host.domain, 1), of_host)) < room:
            room, cap = most, "domain_share"
        places: float = count
        if by_stranger or not is_exempt:
            places = min(of_host, self._limits.total - queued)
            if queued >= self._load.limited_from:
                places = min(places, self._load.room(host.domain, 1))
        met: set[bytes | None] = set()
        taken: list[Candidate] = []
        for candidate in candidates:
            key = candidate.key
            if key in met:
                self._counters["known"] += 1
            elif len(taken) >= room:
                self.refuse(cap, host.name, candidate.entry.seed)
            elif self._budget.most and not self._budget.take(host.domain):
                self.refuse("domain_budget", host.name, candidate.entry.seed)
            else:
                if len(taken) >= places:
                    candidate.priority = min(candidate.priority, OVERFLOW - by_stranger)
                elif by_stranger and host.queue.queued + len(taken) >= _STRANGERS_IN_LINE:
                    candidate.priority = min(candidate.priority, _STRANGERS)
                taken.append(candidate)
                if key is not None:
                    met.add(key)
        return taken

    def refuse(self, cap: str, host: str, seed: bytes = b"") -> None:
        """Count a URL of a host that a cap refuses; ``seed`` is the key of the one it came from."""
        self._counters[f"dropped/{cap}"] += 1
        if self._of_seeds is not None:
            self._of_seeds.add(seed, (cap,))
        self.refused.add(cap, host)

    def _places(self, host: Host, count: int, by_stranger: bool) -> int:
        """Return how many of ``count`` more entries have a place in the queue of a host, at
        least."""
        places = self._limits.host_queue // (2 if by_stranger else 1) - host.queue.queued
        return places if places >= count else max(0, places + _in_overflow(host))

    def _room(self, host: Host, count: int, queued: int, is_given: bool) -> tuple[float, str]:
        """Return how many of ``count`` more entries a host may have, with a place or without, and
        which cap it is: the name of its ``dropped/`` counter."""
        if host.health is Health.RETIRED:
            return 0, "crawl_delay"
        room, cap = float(count), ""
        if is_given:
            return room, cap
        if queued >= self._load.limited_from:
            room, cap = self._load.room(host.domain, _SHARES), "domain_share"
        of_frontier = self._limits.total - queued
        if of_frontier < min(count, room) and not self._may_overflow():
            return of_frontier, "frontier"
        return room, cap


def _in_overflow(host: Host) -> int:
    """Return how many entries of a host are in the overflow, where they take no places."""
    levels = host.queue.levels.items()
    return sum(level.tail - level.head for number, level in levels if number >> 8 <= OVERFLOW)

"""Compares the frontier with a plain model over random sequences of what a crawl can do.

No URL is lost, repeated, fetched early or miscounted.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs

from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.hosts.host_record import Tally, decode_host
from krowlspider.frontier.hosts.table import SchedulingState
from krowlspider.frontier.limits import SessionLimits
from krowlspider.frontier.moves.chunks import decode_chunk, encode_chunk
from krowlspider.frontier.outbox import Foreign
from krowlspider.frontier.schedule.ownership import ROUND, HostBusyError
from krowlspider.frontier.store.schema import (
    DUE,
    POSITION,
    TALLY,
    due_key,
    seen_prefix,
    split_due_key,
    split_queue_key,
)
from krowlspider.frontier.store.store import (
    LevelStore,
    Store,
    all_entries,
    entries,
    entry_keys,
    records,
)
from krowlspider.politeness.delay import next_try
from krowlspider.urls.canonical import domain_of, host_of
from tests.frontier.conftest import LIMITS, RULE, TINY, Clocks, KeptMemoryStore, World, counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.moves.departure import Departure

HOSTS = [f"h{number}.test" for number in range(4)] + [
    "a.shared.test",
    "b.shared.test",
    "c.shared.test",
]
ADDRESSES = ["192.0.2.1", "192.0.2.2", "198.51.100.1"]
# With so few slots, a block has as many as an address.
SLOTS = 4
FOUND = HOSTS[:3]
ADDRESS_DELAY = 0.2
PAGES = [f"http://{host}/{page}" for host in HOSTS for page in range(6)]


@dataclass
class Page:
    """A URL of the model, with its place in the queue; a retry has a count and a due time."""

    priority: int
    line: int
    leased: bool = False
    tries: int = 0
    due: float = 0.0


@dataclass
class HandOver:
    """A hand-over to the other frontier, with the chunks that are known to have arrived."""

    departure: Departure
    arrived: int = 0
    over: bool = False


# The range of all positions in a ring.
EVERYWHERE = (0, 2**64 - 1)


class FrontierModel(RuleBasedStateMachine):
    """The frontier beside a dict of pages that are not yet done on disk."""

    open_store: Callable[[], Store]

    @initialize(
        tiny=st.booleans(),
        verify=st.booleans(),
        dies=st.booleans(),
        sessions=st.booleans(),
        shares=st.sampled_from(
            [(0, 0.0), (SLOTS, 0.0), (0, ADDRESS_DELAY), (SLOTS, ADDRESS_DELAY)]
        ),
    )
    def start(
        self, tiny: bool, verify: bool, dies: bool, sessions: bool, shares: tuple[int, float]
    ) -> None:
        self.dies = dies
        limits = replace(
            TINY if tiny else LIMITS,
            domain_concurrency=2,
            address_concurrency=2,
            slots=shares[0],
            address_delay=shares[1],
            sessions=SessionLimits(3, 1.0, 2) if sessions else SessionLimits(),
        )
        self.world = World(self.open_store, limits=limits, verify=verify, most=1)
        self.pages: dict[str, Page] = {}
        self.known: set[str] = set()
        self.line = 0
        self.busy: dict[str, Host] = {}
        self.leases: dict[str, Lease] = {}
        self.over: set[str] = set()
        self.earliest: dict[str, float] = {}
        # Rests for the time of the event loop, which a death ends.
        self.rests: dict[str, float] = {}
        self.aside: set[str] = set()
        self.at: dict[str, str] = {}
        self.asked: dict[str, float] = {}
        self.moved = False
        kept = KeptMemoryStore()
        self.other = World(
            lambda: kept, limits=limits, verify=verify, clocks=Clocks(), node="there"
        )
        self.under_way: dict[str, HandOver] = {}
        self.away: set[str] = set()
        self.away_pages: dict[str, Page] = {}
        self.sent: list[tuple[str, str]] = []

    @property
    def frontier(self) -> object:
        return self.world.frontier

    @rule(urls=st.lists(st.sampled_from(PAGES), max_size=8), priority=st.sampled_from([0, 0, 5]))
    def add(self, urls: list[str], priority: int) -> None:
        ours = [url for url in urls if host_of(url) not in {*self.under_way, *self.away}]
        new = [url for url in dict.fromkeys(ours) if url not in self.known]
        foreign = [url for url in dict.fromkeys(urls) if url not in ours]
        outbox = [("there", url) for url in foreign if ("there", url) not in self.sent]
        found = [self.world.candidate(url, priority) for url in ours]
        keys = [each.key for each in found if each.key is not None]
        known = self.world.frontier.knows(keys, lambda at: found[at].host)
        assert self.world.frontier.queue(
            [each for each, is_known in zip(found, known, strict=True) if not is_known],
            [self._foreign(url) for url in urls if url in foreign],
        ) == len(new)
        for name in {host_of(url) for url in new} & {*FOUND}:
            # As if pages of one domain had linked to these.
            host = self.world.frontier.schedule.cache.get(name)
            host.shares.origin = 7
            self.world.frontier.schedule.cache.note(host)
        self.sent += outbox
        for url in new:
            self.known.add(url)
            self._queue(url, priority)

    def _foreign(self, url: str) -> Foreign:
        return Foreign("there", host_of(url), self.world.hasher.key(url), url.encode())

    def _queue(self, url: str, priority: int, tries: int = 0, due: float = 0.0) -> None:
        self.line += 1
        self.pages[url] = Page(priority, self.line, tries=tries, due=due)

    @rule(wait=st.sampled_from([0.0, 0.25, 40.0]))
    def fetch(self, wait: float) -> None:
        """Pop and release one page; another rule acknowledges it, in any order."""
        host = self._pop_host()
        if host is None:
            return
        lease = self._pop(host)
        self._release(host, wait)
        if lease is not None:
            self.leases[lease.entry.url] = lease

    def _pop_host(self) -> Host | None:
        host = self.world.frontier.schedule.pop()
        if host is None:
            return None
        assert host.name not in self.busy
        assert host.name not in self.aside
        assert host.name not in self.under_way
        assert host.name not in self.away
        assert domain_of(host.name) not in self.world.foreign
        # The heap on disk rounds due times up to microseconds.
        due = max(self.earliest.get(host.name, 0.0), self.rests.get(host.name, 0.0))
        assert self.world.frontier.now() >= due - 1e-6
        address = self._address(host.name)
        neighbours = [name for name in self.busy if self.at[name] == address]
        block = [name for name in self.busy if self._block(self.at[name]) == self._block(address)]
        slots = self.world.limits.slots
        now, asked = self.world.frontier.now(), self.asked.get(address, 0.0)
        early = now < asked + self.world.limits.address_delay
        if host.shares.address:
            # The pop reserves the last known address, even if the host has moved since.
            before = host.shares.address[1:]
            assert now >= self.asked.get(before, 0.0) + self.world.limits.address_delay
            self.asked[before] = now
            early = early and before != address
        if not self.world.frontier.schedule.reserve_address(host, address):
            assert len(neighbours) == 2 or (slots and len(block) == 2) or early
            self.world.frontier.schedule.turn_back(host, address)
            return None
        assert len(neighbours) < 2
        assert not slots or len(block) < 2
        assert not early
        self.asked[address] = now
        self.at[host.name] = address
        self.busy[host.name] = host
        crowd = [other for other in self.busy.values() if "?" in other.shares.places]
        found = [other for other in self.busy.values() if "^7" in other.shares.places]
        assert all(other in crowd for other in self.busy.values() if not other.rate.ema)
        assert not slots or len(found) <= 1
        if slots and host in crowd:
            # Other hosts have a quarter more slots than they need now; the crowd has at least one.
            assert len(crowd) <= max(1, slots - int(1.25 * (len(self.busy) - len(crowd))))
        shared = [name for name in self.busy if name.endswith("shared.test")]
        assert len(shared) <= 2
        return host

    def _address(self, name: str) -> str:
        """Return the address of a host: one of three, two of which are in one block."""
        return ADDRESSES[(HOSTS.index(name) + self.moved) % 3]

    def _block(self, address: str) -> str:
        return address.rpartition(".")[0]

    @rule()
    def move(self) -> None:
        """Hosts get new addresses; requests in flight keep theirs."""
        self.moved = not self.moved

    def _pop(self, host: Host) -> Lease | None:
        lease = self.world.frontier.queues.pop(host)
        waiting = self._waiting(host.name)
        assert (lease.entry.url if lease else None) == (waiting[0] if waiting else None)
        if lease is not None:
            self.pages[lease.entry.url].leased = True
        return lease

    def _waiting(self, host: str) -> list[str]:
        """Return the URLs that may be popped from a host now: due retries before new URLs."""
        now = self.world.frontier.now()
        found = [
            (-page.priority, -page.tries, page.line, url)
            for url, page in self.pages.items()
            if host_of(url) == host and not page.leased and page.due <= now
        ]
        return [url for *_, url in sorted(found)]

    def _queued(self, host: str) -> list[str]:
        """Return all queued URLs of a host, due or not, in the order of its keys."""
        found = [
            (-page.priority, page.tries, page.line, url)
            for url, page in self.pages.items()
            if host_of(url) == host and not page.leased
        ]
        return [url for *_, url in sorted(found)]

    def _release(self, host: Host, wait: float) -> None:
        if wait != 40.0:
            # A host that answers leaves the crowd; any other is of the crowd.
            RULE.after_answer(host.rate, wait)
        elif host.rate.ema:
            host.rate.ema = 0.0
        self.world.frontier.schedule.release(host, wait)
        self.earliest[host.name] = self.world.frontier.now() + wait
        del self.busy[host.name]

    @rule(name=st.sampled_from(HOSTS))
    def rest_longer(self, name: str) -> None:
        """A page of the host took much of the event loop."""
        host = self.world.frontier.schedule.cache.hosts.get(name)
        if host is not None and name not in self.busy and name not in self.under_way:
            self.world.frontier.schedule.rest_longer(host, 3.0)
            if host.due > self.world.frontier.now():
                self.rests[name] = max(host.due, self.rests.get(name, 0.0))

    @rule()
    def pop_and_hold(self) -> None:
        """Pop a page whose request stays in flight."""
        if len(self.busy) < 5:
            self._pop_host()

    @precondition(lambda self: self.busy)
    @rule(data=st.data(), what=st.sampled_from(["release", "give back", "unpop", "deferred"]))
    def end_request(self, data: st.DataObject, what: str) -> None:
        host = self.busy[data.draw(st.sampled_from(sorted(self.busy)))]
        if what == "release":
            self._release(host, 1.0)
            return
        if what == "unpop" and (lease := self._pop(host)) is not None:
            self.world.frontier.queues.unpop(lease)
            self.pages[lease.entry.url].leased = False
        del self.busy[host.name]
        if what == "deferred" and self._queued(host.name):
            self.world.frontier.schedule.deferral.defer(host)
            self.aside.add(host.name)
        else:
            self.world.frontier.schedule.give_back(host)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), how=st.sampled_from(["done", "done", "again", "later"]))
    def end(self, data: st.DataObject, how: str) -> None:
        """Acknowledge a page, move it to the end of its queue, or retry it later."""
        lease = self.leases.pop(data.draw(st.sampled_from(sorted(self.leases))))
        entry = lease.entry
        if how == "again":
            self.world.frontier.queues.replace(lease, structs.replace(entry, due=0.0))
            self._queue(entry.url, lease.priority)
        elif how == "later":
            tries = entry.retries + 1
            due = self.world.frontier.now() + next_try(tries, 10.0)
            self.world.frontier.queues.replace(
                lease, structs.replace(entry, retries=tries, due=due)
            )
            self._queue(entry.url, lease.priority, tries, due)
        else:
            self.world.frontier.acknowledge(lease)
            self.over.add(lease.entry.url)

    @rule(domain=st.sampled_from(sorted({domain_of(host) for host in HOSTS})))
    def change_owner(self, domain: str) -> None:
        """Another node begins or ceases to own a domain."""
        self.world.foreign ^= {domain}
        self.world.robots_fetches.ring_changed()

    @rule(data=st.data(), acknowledged=st.lists(st.booleans(), min_size=1, max_size=6))
    def send_chunks(self, data: st.DataObject, acknowledged: list[bool]) -> None:
        """Send some chunks of a host to the other frontier; acknowledgements may be lost."""
        queued = {host_of(url) for url in self.pages}
        name = data.draw(st.sampled_from(sorted(self.under_way or queued or HOSTS)))
        for each in acknowledged:
            if name not in self.away and (name in self.under_way or self._begins(name)):
                self._send(name, self.under_way[name], each)

    def _begins(self, name: str) -> bool:
        if name in self.busy or any(host_of(url) == name for url in {*self.leases, *self.over}):
            with pytest.raises(HostBusyError):
                self.world.departures.begin(name)
            return False
        self.under_way[name] = HandOver(self.world.departures.begin(name))
        return True

    def _send(self, name: str, way: HandOver, acknowledged: bool) -> None:
        if (chunk := way.departure.chunk(way.arrived)) is not None:
            arrived = self.other.arrivals.take(decode_chunk(encode_chunk(chunk)))
            way.arrived = arrived if acknowledged else way.arrived
            return
        for _ in way.departure.end():
            if not way.over:
                self._handed_over(name)
            way.over = True
            if not acknowledged:
                # A crash, a ring change or a later step completes the hand-over.
                return
        self._gone(name)

    def _handed_over(self, name: str) -> None:
        self.aside.discard(name)
        waiting = {url for url in self.pages if host_of(url) == name}
        assert set(self.other.queued(name)) == waiting
        assert self.other.frontier.schedule.cache.get(name).queue.queued == len(waiting)
        for url in waiting:
            self.away_pages[url] = self.pages.pop(url)

    def _gone(self, name: str) -> None:
        del self.under_way[name]
        self.away.add(name)
        assert list(entry_keys(self.world.store, name)) == []
        assert list(self.world.store.keys(seen_prefix(name))) == []
        keys = [self.world.hasher.key(url) for url in self.known if host_of(url) == name]
        assert self.other.frontier.seen.marked_among(name, keys) == set(keys)
        # This frontier keeps no seen mark of them.
        assert not any(self.world.frontier.seen.known(name, key) for key in keys)

    @rule()
    def the_other_dies(self) -> None:
        self.other.crash()

    @rule()
    def the_ring_changes(self) -> None:
        """Hosts being handed over stay, unless the other has all of their chunks."""
        self.world.departures.stop()
        self._end_hand_overs()

    def _end_hand_overs(self) -> None:
        for name in [name for name, way in self.under_way.items() if way.over]:
            self._gone(name)
        self.under_way.clear()

    @rule(data=st.data())
    def fetch_partly_handed_over_hosts(self, data: st.DataObject) -> None:
        self.send_chunks(data, [True])
        self.the_ring_changes()
        for _ in HOSTS:
            self.let_time_pass(60.0)
            self.fetch(0.25)
        self._end_all()
        self.commit(written=True, added=False)

    @precondition(lambda self: self.away)
    @rule(data=st.data())
    def bring_back(self, data: st.DataObject) -> None:
        """The other hands a host back, with all URLs of that host."""
        self._take_back(data.draw(st.sampled_from(sorted(self.away))))

    def _take_back(self, name: str) -> None:
        self.away.discard(name)
        waiting = self.other.queued(name)
        self.other.hand_over(name, self.world)
        assert self.world.queued(name) == waiting
        for key, value in entries(self.world.store, name):
            entry = entry_of(key, value)
            del self.away_pages[entry.url]
            self._queue(entry.url, split_queue_key(key)[0], entry.retries, entry.due)
        if self.world.frontier.schedule.cache.get(name).state is SchedulingState.DEFERRED:
            self.aside.add(name)

    @rule(name=st.sampled_from(HOSTS))
    def take_over_more(self, name: str) -> None:
        """A third frontier hands over a host, which may be known here, with its wait."""
        if name in self.under_way or name in self.away:
            return
        other = World(KeptMemoryStore, limits=self.world.limits, node=f"third {self.line}")
        other.clocks = self.world.clocks
        other.open()
        urls = [f"http://{name}/more/{self.line}/{number}" for number in range(2)]
        other.add(*urls)
        if other.fetch(wait=5.0) is None:
            # The heap rounds up to the next microsecond.
            return
        other.commit()
        due = other.frontier.schedule.cache.get(name).due
        other.hand_over(name, self.world)
        self.known.update(urls)
        self._queue(urls[1], 0)
        if name not in self.busy:
            self.earliest[name] = max(self.earliest.get(name, 0.0), due)

    @rule(seconds=st.sampled_from([0.1, 0.3, 5.0, 60.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.world.clocks.pass_(seconds)
        self.other.clocks.pass_(seconds)

    @rule(written=st.booleans(), added=st.booleans())
    def commit(self, written: bool, added: bool) -> None:
        """Commit, or crash before or after the batch is written."""
        commit = self.world.frontier.begin_commit()
        self._rounds()
        over, self.over = self.over, set()
        if added:
            self.add(PAGES[:2], 0)
        commit.write()
        for url in over:
            del self.pages[url]
        if written:
            self.world.frontier.end_commit(commit)
        else:
            self._die(self.world.crash)

    def _rounds(self) -> None:
        """Schedule deferred hosts again after an hour."""
        if self.world.frontier.has_fetchable and self.aside:
            self.aside = {
                name
                for name in self.aside
                if self.world.frontier.schedule.cache.get(name).state.value == "deferred"
            }

    @rule(seconds=st.sampled_from([0.0, 0.3, 100.0]))
    def crash(self, seconds: float) -> None:
        self.world.clocks.wall += seconds
        self._die(self.world.crash)

    @precondition(lambda self: not self.busy)
    @rule()
    def restart(self) -> None:
        self._die(self.world.restart)

    def _die(self, how: Callable[[], object]) -> None:
        how()
        self._end_hand_overs()
        self.rests.clear()
        self.busy.clear()
        self.leases.clear()
        self.over.clear()
        self.aside.clear()
        self.asked.clear()
        for page in self.pages.values():
            page.leased = False

    @invariant()
    def the_counts_agree(self) -> None:
        if not hasattr(self, "pages"):
            return
        frontier = self.world.frontier
        assert frontier.pending == len(self.pages)
        assert frontier.leased == sum(page.leased for page in self.pages.values())
        messages = [message for _, message in frontier.outbox.after("there", -1, 1000)]
        assert [url.encode() for _, url in self.sent] == messages
        assert frontier.outbox.depth == len(messages)

    @invariant()
    def the_index_of_positions_has_the_hosts_on_disk(self) -> None:
        if not hasattr(self, "pages"):
            return
        for world in (self.world, self.other):
            positions = world.frontier.schedule.cache.positions
            if not positions.is_complete:
                for _ in world.departures.moving(lambda _: None, [EVERYWHERE]):
                    pass
            found = [key[9:].decode() for key in world.store.keys(POSITION)]
            assert sorted(found) == [name for name, _ in records(world.store)]

    @invariant()
    def counts_match_the_disk_and_no_host_is_stuck(self) -> None:
        if not hasattr(self, "pages"):
            return
        frontier, store = self.world.frontier, self.world.store
        places = dict(split_due_key(key)[::-1] for key in store.keys(DUE))
        hosts = {
            name: frontier.schedule.cache.hosts.get(name) or decode_host(name, record)
            for name, record in records(store)
        }
        saved = Tally.read(store)
        assert saved == counted(store)
        assert store.get(TALLY) is not None
        assert frontier.schedule.host_count == len(places)
        assert frontier.queued == sum(host.queue.queued for host in hosts.values())
        deferred = [host for host in hosts.values() if host.state is SchedulingState.DEFERRED]
        assert frontier.deferred_queued == sum(host.queue.queued for host in deferred)
        in_memory: dict[str, list[float]] = {}
        pushed = [(due, name) for due, _, name in frontier.schedule.due._heap]
        pushed += [(due, name) for due, _, name in frontier.schedule._sessions._heap]
        # A host given back without a request keeps its session beyond the bound of two.
        assert len(frontier.schedule._sessions._heap) <= 2 + len(HOSTS)
        for due, name in pushed + frontier.schedule.due._run[frontier.schedule.due._at :]:
            in_memory.setdefault(name, []).append(due)
        for host in hosts.values():
            assert host.session < 3
            if host.state is SchedulingState.IDLE:
                assert not host.queue.queued
            if host.state is SchedulingState.WAITING:
                # The next release calls it: a share is full, or a called host has not arrived yet.
                (share,) = (
                    s for s, line in frontier.schedule.shares._lines.items() if host.name in line
                )
                on_the_way = [name for name in in_memory if share in self._shares(name)]
                clocked = share in frontier.schedule.shares._clocked
                assert not frontier.schedule.shares.has_room(share) or on_the_way or clocked
            ours = domain_of(host.name) not in self.world.foreign
            if host.state is SchedulingState.SCHEDULED and host.queue.queued and ours:
                ahead = host.name in places and (
                    due_key(places[host.name], host.name) > frontier.schedule.due._cursor
                )
                # A place from before the host is due is skipped, if it is popped that early.
                in_time = any(
                    place >= host.due or host.due <= frontier.schedule.now()
                    for place in in_memory.get(host.name, [])
                ) or any(host.name in line for line in frontier.schedule.shares._lines.values())
                changed = host.name in frontier.schedule.cache._changed
                unread = host.name in frontier.schedule.due._beyond
                assert in_time or ahead or (unread and changed)

    def _shares(self, name: str) -> tuple[str, ...]:
        host = self.world.frontier.schedule.cache.hosts.get(name)
        return () if host is None else self.world.frontier.schedule.shares.of(host)

    def _end_all(self) -> None:
        """End all requests in flight and all leases, without a crash."""
        for host in list(self.busy.values()):
            self._release(host, 0.25)
        for url, lease in self.leases.items():
            self.world.frontier.acknowledge(lease)
            self.over.add(url)
        self.leases.clear()

    def teardown(self) -> None:
        """Every page that is not done is fetched once, with and without a crash."""
        if not hasattr(self, "pages"):
            return
        if self.dies:
            self._die(self.world.crash)
        else:
            self._end_all()
            self.commit(written=True, added=False)
        self.the_ring_changes()
        if self.world.foreign:
            self.world.foreign.clear()
            # A ring change makes the heap read all places again.
            self.world.robots_fetches.ring_changed()
        for name in sorted(self.away):
            self._take_back(name)
        assert self.away_pages == {}
        left = set(self.pages)
        for _ in range(400):
            if not self.pages and not self.world.frontier.queued:
                break
            self.world.clocks.pass_(60)
            while (host := self._pop_host()) is not None:
                lease = self._pop(host)
                if lease is None:
                    del self.busy[host.name]
                    self.world.frontier.schedule.give_back(host)
                    continue
                self._release(host, 0.25)
                left.discard(lease.entry.url)
                self.world.frontier.acknowledge(lease)
                self.over.add(lease.entry.url)
            self.commit(written=True, added=False)
        assert left == set()
        assert self.world.frontier.queued == 0
        assert (
            not self.world.frontier.has_fetchable
            or self.world.frontier.schedule.deferral._round is not None
        )
        self.world.clocks.pass_(ROUND + RULE.maximum)
        assert self.world.frontier.schedule.pop() is None
        assert self.world.frontier.schedule.host_count == 0
        assert list(all_entries(self.world.store)) == []
        self.world.store.close()


class MemoryModel(FrontierModel):
    """Over the store in memory."""

    def __init__(self) -> None:
        super().__init__()
        kept = KeptMemoryStore()
        self.open_store = lambda: kept


class LevelModel(FrontierModel):
    """Over LevelDB."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="krowl-model-"))
        self.open_store = self._open

    def _open(self) -> Store:
        folder = self.folder / "db"
        return LevelStore(folder, create=not folder.exists())

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


TestMemoryModel = MemoryModel.TestCase
TestMemoryModel.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestLevelModel = LevelModel.TestCase
TestLevelModel.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

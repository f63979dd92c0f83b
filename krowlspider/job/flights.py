"""The requests in flight: from the pop until Scrapy has finished them, with how each one ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krowlspider.frontier.entry import AGAIN, HEADED, JSON
from krowlspider.frontier.entry_queues import HOOK
from krowlspider.frontier.hosts.host import Health, Host
from krowlspider.frontier.robots.gate import Verdict
from krowlspider.job.in_flight import End, InFlight
from krowlspider.job.limits import PageBudget, SeedsFirst
from krowlspider.politeness.delay import next_try
from krowlspider.politeness.loop_cost import HEAVY, NOTICED, LoopCost, own_rest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy import Request

    from krowlspider.archive.write.records import FetchNote
    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.store.store import Batch
    from krowlspider.job.codec import RequestCodec
    from krowlspider.job.intake import Intake
    from krowlspider.job.job import Job

logger = logging.getLogger(__name__)

# URLs of a retired host dropped at a time, about 10 ms of work. The rest are dropped when popped.
_DROPPED_AT_ONCE = 1000
# The reason to drop a page whose type is not wanted, by its answer to HEAD.
HEAD_TYPE = "head_type"


class Flights:
    """Keeps a record of each request in flight, and ends its flight.

    ``on_the_wire`` counts the requests that were sent and have no answer yet, robots fetches
    included. ``last_sent`` is when the last one was sent, in seconds of the job's monotonic clock.
    ``cost`` computes how long a host rests for the time of the event loop that it has taken.
    ``retry_delay`` is the wait before the first retry of a page, in seconds. ``seeds_first``
    follows the requests that are for seeds.
    """

    def __init__(
        self,
        job: Job,
        budget: PageBudget,
        intake: Intake,
        codec: RequestCodec,
        *,
        retry_delay: float,
        wake: Callable[[], None],
        others_have_seeds: Callable[[], bool] | None = None,
    ):
        self.on_the_wire = 0
        self.last_sent = 0.0
        self.cost = LoopCost()
        self._job = job
        self._frontier = job.frontier
        self._schedule = job.frontier.schedule
        self._budget = budget
        self._intake = intake
        self._codec = codec
        self.seeds_first = SeedsFirst(job.frontier, budget, wake, others_have_seeds)
        self._seed_names = job.frontier.seed_names
        # The hook for delays; None without one.
        self._delays = None if job.hooks is None else job.hooks.delays
        self.retry_delay = retry_delay
        self._requests: dict[Request, InFlight] = {}
        self.get: Callable[[Request], InFlight | None] = self._requests.get
        """Return the record of a request. Return None if the request is over or did not come from
        the scheduler."""

    def __len__(self) -> int:
        return len(self._requests)

    def time_limits(self, usual: float) -> Iterator[float]:
        """Yield the seconds that the fetch of each request may take; ``usual`` without a limit of
        its own."""
        return (request.meta.get("download_timeout", usual) for request in self._requests)

    def only_robots_fetches(self) -> list[Request]:
        """Return the requests in flight if all of them are robots fetches, else an empty list."""
        is_alone = all(each.robots_fetch is not None for each in self._requests.values())
        return list(self._requests) if is_alone else []

    # --- on the wire ---

    def begin(self, request: Request, in_flight: InFlight) -> None:
        """Record a request that is handed to the engine."""
        self._requests[request] = in_flight
        self.on_the_wire += 1
        self.last_sent = self._job.monotonic()
        if self._job.traces is not None:
            in_flight.trace = self._job.traces.begin(in_flight.url)
        if self._job.outages.is_out:
            self._job.outages.sent(in_flight.host)
        lease = in_flight.lease
        if _counts(lease):
            self._budget.take()
            if (
                self._seed_names is not None
                and self._seed_names.words is not None
                and lease is not None
            ):
                self._seed_names.words.take(lease.entry)
        if lease is not None and self._frontier.quotas is not None:
            self._frontier.quotas.begin(lease)
        if self._schedule.seed_turns.is_limited:
            self.seeds_first.begin(request, in_flight)

    def turn_back(self, in_flight: InFlight, address: str) -> None:
        """Put back a request that was not sent, as its address has no room or other sheets."""
        in_flight.end = End.TURNED_BACK
        self.on_the_wire -= 1
        robots_fetch = in_flight.robots_fetch
        if robots_fetch is not None and not (
            robots_fetch.host is in_flight.host and robots_fetch.is_fresh
        ):
            # A first try of the host's own robots.txt is not put back: the next pop makes another.
            # A queued robots fetch would keep its host in memory.
            in_flight.host.robots.fetches.insert(0, robots_fetch)
        self._unpop(in_flight)
        self._schedule.turn_back(in_flight.host, address)

    def _unpop(self, in_flight: InFlight) -> None:
        """Put a page back to its old place in the queue; its host stays in flight."""
        if (lease := in_flight.lease) is not None:
            self._frontier.queues.unpop(lease)
            in_flight.lease = None
            if self._frontier.quotas is not None:
                self._frontier.quotas.give_back(lease)
            self._give_back(lease)

    def _give_back(self, lease: Lease) -> None:
        """Count off the page of a lease that is not done; other files were not counted."""
        if lease.entry.request and lease.entry.file:
            return
        self._budget.give_back()
        if self._seed_names is not None and self._seed_names.words is not None:
            self._seed_names.words.give_back(lease.entry)

    def charge(self, in_flight: InFlight, took: float) -> None:
        """Make the host of a request rest, for ``took`` CPU seconds of the event loop."""
        if took > HEAVY:
            in_flight.must_wait(self.cost.rest(took, self._frontier.now()))
        elif took > NOTICED:
            in_flight.must_wait(own_rest(took))

    def charge_page(self, request: Request, took: float) -> None:
        """Make the host of a page rest if reading the page used much of the event loop.

        ``took`` is in CPU seconds.
        """
        if took > HEAVY and (in_flight := self._requests.get(request)) is not None:
            self._schedule.rest_longer(in_flight.host, own_rest(took))

    # --- ends ---

    def settle(self, in_flight: InFlight, again: Request | None = None) -> None:
        """Apply what was decided about a request that left the wire.

        ``again`` is the request if it is to be sent again, as its failure was excused or a retry is
        left: its page goes back to its queue. None if not. The host is due after its wait. Entry
        and host record are written in one batch.
        """
        end, host, wait = in_flight.end, in_flight.host, in_flight.wait
        if end is End.TURNED_BACK:
            return
        if in_flight.memory is not None:
            # The host was asked: the answer came neither from a cache nor from a data: URL.
            rule = self._job.rule.of(host.name)
            wait = max(wait, rule.delay(host.rate))
            if self._delays is not None:
                wait = self._delays.wait(in_flight, rule, wait)
        self.on_the_wire -= 1
        if end is End.FELL_BACK:
            self._fall_back(in_flight)
        batch = None if again is None else self._put_back(in_flight, again)
        self._set_health(host)
        if (robots_fetch := in_flight.robots_fetch) is not None:
            if self._job.robots.too_slow(host.name):
                self._retire(host)
            # While a redirect is followed to another host, the only decision is the expired one.
            if not robots_fetch.is_away:
                self._job.robots_fetches.cache.outlast(robots_fetch.authority, wait)
        is_open = host.health is not Health.RETIRED and not host.robots.awaited
        if in_flight.defers and is_open:
            self._schedule.deferral.defer(host, wait, batch)
        else:
            self._schedule.release(host, wait, batch)

    def give_up(self, in_flight: InFlight) -> None:
        """End a request that was cancelled, because no page needs its robots.txt now, and queue the
        robots fetch again."""
        in_flight.end = End.EXCUSED
        if in_flight.robots_fetch is not None:
            self._job.robots_fetches.queue(in_flight.robots_fetch)

    def _fall_back(self, in_flight: InFlight) -> None:
        """Queue the http URL of a bare seed, or of those that wait for this robots.txt."""
        if in_flight.robots_fetch is not None:
            self._intake.fall_back_at(in_flight.host)
        elif in_flight.lease is not None:
            self._intake.fall_back(in_flight.lease.entry)

    def _put_back(self, in_flight: InFlight, request: Request) -> Batch | None:
        """Put a page back into the queue of its host. Return the batch with its new entry, which
        has the present retry counts.

        Return None without a new entry: the page is excused and its old entry stays, it is an
        awaited request, which its caller repeats, or it cannot be stored and is dropped.
        """
        lease = in_flight.lease
        if in_flight.end is End.EXCUSED:
            self._unpop(in_flight)
            return None
        if lease is None or lease.entry.is_awaited:
            return None
        if in_flight.is_head:
            return self._put_back_headed(in_flight, lease)
        before = lease.entry
        try:
            entry = self._codec.entry(request, before.url)
        except ValueError as error:
            logger.error("%s cannot be queued: %s", request, error)
            in_flight.fail("unserializable", defers=in_flight.defers)
            return None
        entry.strikes, entry.via, entry.path = before.strikes, before.via, before.path
        entry.seed, entry.state = before.seed, before.state
        if before.is_again or (before.is_plain and not entry.request):
            entry.request = before.request
        tries = entry.retries + entry.throttling
        if tries > before.retries + before.throttling:
            entry.due = self._frontier.now() + next_try(tries, self.retry_delay)
        batch = self._frontier.store.batch()
        self._frontier.queues.put_back(lease, entry, batch)
        in_flight.lease = None
        if self._frontier.quotas is not None:
            self._frontier.quotas.give_back(lease)
        self._give_back(lease)
        return batch

    def _put_back_headed(self, in_flight: InFlight, lease: Lease) -> Batch | None:
        """Put a page that was asked by HEAD back to its old place, to be asked by GET. Return the
        batch that has its entry; None if the page is dropped."""
        if in_flight.failure in (HEAD_TYPE, HOOK):
            return None
        in_flight.failure = None
        lease.entry.request = HEADED
        batch = self._frontier.store.batch()
        name = lease.host.name
        batch.put(self._frontier.queues.key_of(lease), lease.entry.encode(name))
        self._unpop(in_flight)
        return batch

    def _set_health(self, host: Host) -> None:
        """Set the health of a host whose request has ended."""
        if host.health is Health.RETIRED:
            # The request was the robots fetch of another host.
            return
        if host.rate.throttling or host.rate.errors:
            host.set_health(Health.BACKING_OFF)
        elif not host.robots.awaited:
            host.set_health(Health.ACTIVE)

    def _retire(self, host: Host) -> None:
        """Retire a host in flight whose Crawl-delay is too long, and drop URLs queued for it now.

        Robots fetches of other hosts that go to this host wait as before.
        """
        self._schedule.retire(host)
        for _ in range(_DROPPED_AT_ONCE):
            if (lease := self._frontier.queues.pop(host)) is None:
                return
            self._frontier.acknowledge(lease, dropped=Verdict.TOO_SLOW.value)

    def count_as_page(self, request: Request | None) -> bool:
        """Count the request for a sitemap as one for a page, as its answer is HTML.

        Return False, with nothing changed, if the page budget is spent.
        """
        in_flight = None if request is None else self._requests.get(request)
        if in_flight is None or in_flight.lease is None or self._budget.is_spent:
            return False
        entry = in_flight.lease.entry
        entry.request = AGAIN if entry.is_again else JSON + entry.request[1:]
        self._budget.take()
        if self._seed_names is not None and self._seed_names.words is not None:
            self._seed_names.words.take(entry)
        return True

    def keep_listing(self, request: Request | None, listing: bytes) -> None:
        """Keep ``listing``, what a sitemap in flight lists, for its row: so it is fetched again."""
        in_flight = None if request is None else self._requests.get(request)
        if in_flight is not None and in_flight.lease is not None:
            in_flight.lease.listing = listing

    def not_modified(self, request: Request, in_flight: InFlight) -> None:
        """Acknowledge a page that has not changed: nothing else is done with its answer, and it
        counts as no page."""
        lease, note = in_flight.lease, in_flight.note
        if lease is None or in_flight.stays:
            return
        if note is not None:
            # Before the acknowledgement, as in `over`.
            self._hand_in(note, in_flight, request)
            in_flight.note = None
        in_flight.lease = None
        self._give_back(lease)
        self._frontier.acknowledge(lease)

    def _hand_in(self, note: FetchNote, in_flight: InFlight, request: Request) -> None:
        """Write the note of a request to the archive, with the delay of its host now, and the seed
        from which its page was found, where that is known."""
        host, lease, seed = in_flight.host, in_flight.lease, ""
        if lease is not None and self._seed_names is not None:
            entry = lease.entry
            found = entry.seed or entry.depth
            seed = self._seed_names.url_of(entry.seed) if found else entry.url
        delay = self._job.rule.of(host.name).delay(host.rate)
        self._job.notes.hand_in(note, request.meta, delay, seed)

    def keep_queued(self) -> None:
        """Leave the pages of all present requests queued for the next start: none of them is
        acknowledged."""
        for in_flight in self._requests.values():
            in_flight.stays = True

    def finish(self, request: Request) -> None:
        """End a request that Scrapy has finished, and acknowledge its page."""
        in_flight = self._requests.pop(request, None)
        if in_flight is None:
            return
        if self.seeds_first.under_way:
            self.seeds_first.finish(request)
        if in_flight.memory is not None:
            in_flight.memory.release()
        if in_flight.trace is not None and in_flight.end is not End.TURNED_BACK:
            in_flight.trace.finish(in_flight.failure)
        if in_flight.note is not None:
            # Before the acknowledgement: the next commit makes both durable.
            self._hand_in(in_flight.note, in_flight, request)
        if in_flight.lease is not None:
            if in_flight.stays:
                return
            lease = in_flight.lease
            if in_flight.failure is not None or lease.is_redirect:
                self._give_back(lease)
            self._frontier.acknowledge(in_flight.lease, dropped=in_flight.failure)


def _counts(lease: Lease | None) -> bool:
    """Return whether a lease counts as a page. Requisites, sitemaps and opt-out files do not, nor
    does a robots fetch, which has no lease."""
    return lease is not None and not (lease.entry.request and lease.entry.file)

"""Bring pages forward of which their site says that they have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from krowlspider.frontier.pages.planner import estimate_of
from krowlspider.frontier.pages.row import TICK, read_row
from krowlspider.frontier.store.schema import KEY_SIZE, host_of_page
from krowlspider.recrawl.hints import PUSHED, HintSource, brought_forward
from krowlspider.recrawl.value import USUAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.pages.planner import Planner, Planning
    from krowlspider.frontier.pages.row import PageRow
    from krowlspider.frontier.store.store import Store

# A bucket is up to this part of the wait late: so much later may the last fetch seem to be.
_LATE = 1 / 16


class Hint(NamedTuple):
    """What a source says of the page of a row.

    ``date`` is when it has changed, in epoch seconds. For CHANGEFREQ it is the seconds between two
    changes. Without a source, the site itself has named the page by IndexNow: it changed now.
    """

    key: bytes
    source: HintSource | None = None
    date: float = 0.0


class HintedRows:
    """The rows of pages of which hints speak. ``host`` returns a host by its name, ``wall`` the
    time of rows in epoch seconds."""

    def __init__(
        self,
        store: Store,
        planner: Planner,
        host: Callable[[str], Host],
        wall: Callable[[], float],
    ):
        self._store = store
        self._planner = planner
        self._host = host
        self._wall = wall

    def step(self, hints: Iterable[Hint]) -> int:
        """Bring those pages forward that are worth it, and return how many.

        A page that is queued, that has no row, or that is missing stays as it is. No commit may be
        under way: it writes rows too.

        :raises StoreError: the store cannot be written
        """
        by_key: dict[bytes, list[Hint]] = {}
        for hint in hints:
            by_key.setdefault(hint.key, []).append(hint)
        keys = sorted(by_key)
        brought, has_changed = 0, False
        batch = self._store.batch()
        planning = self._planner.begin(batch)
        for key, value in zip(keys, self._store.read(keys), strict=True):
            if value is None:
                continue
            name = host_of_page(key)
            row = read_row(value, name, key)
            if row is None or not (row.due and row.planned) or row.absence.wait is not None:
                continue
            before = row.due, row.named, row.tried
            for hint in by_key[key]:
                self._take(planning, self._host(name), row, hint)
            if before != (row.due, row.named, row.tried):
                has_changed = True
                brought += row.due != before[0]
                batch.put(key, row.encode(name))
        if has_changed:
            # Its end counts the demands of hosts anew, which must be written then.
            planning.end()
            batch.write()
        self._planner.counts["hinted"] += brought
        return brought

    def _take(self, planning: Planning, host: Host, row: PageRow, hint: Hint) -> None:
        """Note who names a page, and bring it forward if that is worth a request."""
        identity, last = hint.key[-KEY_SIZE:], self._last(planning, row)
        terms_of = self._planner.terms_of
        terms = USUAL if terms_of is None else terms_of(row.url)
        if hint.source is None:
            row.named |= PUSHED
            if (at := last + terms.least) < row.due - TICK:
                row.tried |= PUSHED
                planning.bring_forward(host, identity, row, at, last)
            return
        is_period = hint.source is HintSource.CHANGEFREQ
        claimed = last + hint.date if is_period else planning.now - (self._wall() - hint.date)
        if claimed <= last or max(claimed, last + terms.least) >= row.due - TICK:
            return
        bit = 1 << hint.source
        row.named |= bit
        precision, trials = planning.hints.of(host.name)[hint.source], planning.hints.trials
        has_room = row.tried & bit or trials.has_room(host.name, hint.source, precision.hits)
        if not (precision.probability and has_room):
            return
        at = brought_forward(
            estimate_of(row),
            terms.weight,
            planning.threshold(host),
            last_fetch=last,
            due=row.due,
            claimed=claimed,
            precision=precision.probability,
            least=terms.least,
        )
        if at < row.due - TICK:
            if not row.tried & bit:
                trials.begin(host.name, hint.source)
            row.tried |= bit
            planning.bring_forward(host, identity, row, at, last)

    def _last(self, planning: Planning, row: PageRow) -> float:
        """Return the time of a page's last fetch on the job clock.

        The row has it by the clock of the machine. Where that does not agree with the time of its
        bucket, which is somewhat late, it was set since.
        """
        latest = row.due - row.planned
        earliest = latest - row.planned * _LATE - 2 * TICK
        last = planning.now - (self._wall() - row.last)
        return last if earliest <= last <= latest else latest

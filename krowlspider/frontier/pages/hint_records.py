"""What hints about the pages of a host are worth, by what came of those that were followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.store.schema import hints_key
from krowlspider.recrawl.hints import PUSHED, HintSource, Precisions

if TYPE_CHECKING:
    from krowlspider.frontier.store.store import Batch, Store

# Pages that a source without a record may have brought forward at a time, and as many more for each
# of its hits: so many requests does a source cost that is always wrong.
TRIALS = 10
# Pairs of host and source whose trials are counted; the oldest one is forgotten first.
_COUNTED_MAX = 65_536


def sources_in(bits: int) -> list[HintSource]:
    """Return the sources of a row's bits."""
    return [source for source in HintSource if bits >> source & 1]


class Trials:
    """How many pages of a host each source has brought forward that were not fetched since.

    They are counted in memory: a start may try as many again.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, HintSource], int] = {}

    def has_room(self, name: str, source: HintSource, hits: int) -> bool:
        """Return whether a source with so many hits may bring another page forward."""
        return self._counts.get((name, source), 0) < TRIALS * (1 + hits)

    def begin(self, name: str, source: HintSource) -> None:
        """Count a page that is brought forward."""
        self._counts[name, source] = self._counts.get((name, source), 0) + 1
        if len(self._counts) > _COUNTED_MAX:
            del self._counts[next(iter(self._counts))]

    def end(self, name: str, tried: int) -> None:
        """Count a page off that was fetched or is planned anew, by the bits of its row."""
        for source in sources_in(tried):
            if left := max(self._counts.pop((name, source), 0) - 1, 0):
                self._counts[name, source] = left


class HintRecords:
    """The precisions of hosts' sources, as the planning of one batch reads and changes them."""

    def __init__(self, store: Store, trials: Trials):
        self.trials = trials
        self._store = store
        self._found: dict[str, Precisions] = {}
        self._scored: set[str] = set()

    def of(self, name: str) -> Precisions:
        """Return the precisions of the sources of a host."""
        if (found := self._found.get(name)) is None:
            found = Precisions.read(self._store.get(hints_key(name)) or b"")
            self._found[name] = found
        return found

    def probability(self, name: str, tried: int) -> float:
        """Return the probability that a page has changed, by the sources that brought it forward.

        Its site itself, by IndexNow, is believed.
        """
        if tried & PUSHED:
            return 1.0
        found = self.of(name)
        return max((found[source].probability for source in sources_in(tried)), default=0.0)

    def score(self, name: str, named: int, tried: int, *, changed: bool | None) -> None:
        """Score all sources that named a page, after its fetch. None: it says nothing."""
        self.trials.end(name, tried)
        if changed is None:
            return
        for source in sources_in(named):
            self._found[name] = self.of(name).scored(source, changed=changed)
            self._scored.add(name)

    def put(self, batch: Batch) -> None:
        """Put what was scored into a batch."""
        for name in self._scored:
            batch.put(hints_key(name), bytes(self._found[name]))

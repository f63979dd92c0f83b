"""When a crawl of several nodes is over: every frontier, inbox and outbox is empty, all at one moment. Pure.

A URL that one node has sent is in its outbox until it is in the other's inbox, and there until it is in the other's
frontier: so it is over when all nodes are quiet at one moment. Nobody sees them at one moment. But a node that says
twice that it is quiet, and has done nothing between, was quiet all the time between; and if the second word of each
came after the first word of all, there was such a moment: that at which the first words were read.

In a static ring those that have left are not waited for: what is theirs waits for them. In a ring whose members come and
go, a node has work only while it is of the *crew*, which it is before anybody can send to it, and until it has nothing
left (`pending_nodes`). So the nodes that count are the crew of that moment, and words and crew are read at once:

- Who joins after it brings work of its own; but the crew is another then, and all begins anew.
- Who joins before it is of the crew. Until its word is heard, the crawl is not over.
- Who died stays in the crew, and its words end, the quiet ones too: a word counts with two later ones. It is waited for,
  before and after the others see that it is gone. Started anew, it has another ``start``.
- Who is cut off is for the others as one that died. It hears nothing new itself, its own word least of all.
- Who hands over all it has, and leaves, was not quiet before; those who have got it since have done something since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krowlspider.cluster.ring.record import Counters

# Beats after which a word was surely begun after another's was read: the next may have been on its way then.
_LATER = 2
# Counters are JSON numbers: whole ones only up to 2^53.
_MASK = (1 << 52) - 1


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a node says of itself: ``start``, a number of its process's own; ``beat`` counts its words; ``quiet`` that
    frontier, outbox and inbox are empty and nothing is in flight; ``activity`` counts what it has ever done; ``over``
    is the `run_number` for which it has found the crawl to be over, 0 for none; ``left``, in a static ring, that this is its
    last word."""

    start: int
    beat: int
    quiet: bool
    activity: int
    over: int = 0
    left: bool = False

    def counters(self) -> dict[str, int]:
        return {
            "start": self.start,
            "beat": self.beat,
            "quiet": int(self.quiet),
            "activity": self.activity,
            "over": self.over,
            "left": int(self.left),
        }

    @classmethod
    def of(cls, counters: Counters) -> Heartbeat | None:
        """None for a node that has not said anything yet."""
        if "beat" not in counters:
            return None
        start, beat, activity, over = (
            int(counters.get(name, 0)) for name in ("start", "beat", "activity", "over")
        )
        quiet, left = bool(counters.get("quiet", 0)), bool(counters.get("left", 0))
        return cls(start, beat, quiet, activity, over, left)


def run_number(heartbeats: Mapping[str, Heartbeat]) -> int:
    """A number for these processes of these nodes, so that what one says of them counts for no other run."""
    text = ",".join(f"{node}={heartbeats[node].start}" for node in sorted(heartbeats)).encode()
    return (xxhash.xxh3_64_intdigest(text) & _MASK) or 1


class TerminationDetector:
    """What one node makes of the words of all. `hear` them, the own one among them, after each beat.

    ``waiting_for`` has those of the crew that are away while the others have nothing left to do.
    """

    def __init__(self) -> None:
        # The words of a moment at which all were quiet, and the crew of that moment.
        self._first: dict[str, Heartbeat] | None = None
        self._pending_nodes: frozenset[str] = frozenset()
        self.waiting_for: tuple[str, ...] = ()

    def hear(
        self,
        heartbeats: Mapping[str, Heartbeat | None],
        pending_nodes: frozenset[str] = frozenset(),
    ) -> int:
        """The run for which the crawl is over, or 0. It stays over for a run only as long as nobody does anything. ``pending_nodes``
        has the ids of all with work that may be on their disks."""
        if pending_nodes != self._pending_nodes:
            self._first, self._pending_nodes = None, pending_nodes
        found = self._heard(heartbeats)
        self.waiting_for = tuple(sorted(pending_nodes - heartbeats.keys())) if found else ()
        return 0 if self.waiting_for else found

    def _heard(self, heartbeats: Mapping[str, Heartbeat | None]) -> int:
        said = {node: heartbeat for node, heartbeat in heartbeats.items() if heartbeat is not None}
        if len(said) < len(heartbeats) or not said:
            self._first = None
            return 0
        run = run_number(said)
        if any(heartbeat.over == run for heartbeat in said.values()):
            return run
        first = self._first
        if first is None or not self._still(first, said):
            self._first = (
                said if all(_does_nothing(heartbeat) for heartbeat in said.values()) else None
            )
            return 0
        later = all(
            said[node].left or said[node].beat >= heartbeat.beat + _LATER
            for node, heartbeat in first.items()
        )
        return run if later else 0

    @staticmethod
    def _still(first: Mapping[str, Heartbeat], said: Mapping[str, Heartbeat]) -> bool:
        """Whether all are quiet and have done nothing since."""
        return first.keys() == said.keys() and all(
            _does_nothing(heartbeat)
            and (heartbeat.start, heartbeat.activity) == (first[node].start, first[node].activity)
            for node, heartbeat in said.items()
        )


def _does_nothing(heartbeat: Heartbeat) -> bool:
    # One that has left is not waited for: what is its own waits for it.
    return heartbeat.quiet or heartbeat.left

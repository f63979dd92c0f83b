"""How much work is done in one turn of the event loop."""

from __future__ import annotations

# Most answers, or requests, in one turn of the event loop.
AT_MOST = 16
# Seconds of a turn, by the clock, and its least number of answers: fewer would cost more CPU.
UNWATCHED = (0.025, 8)
# The same while somebody watches the crawl.
WATCHED = (0.012, 4)
# Answers in a turn while a client of the live page waits. Its call takes four turns.
FOR_CLIENTS = 1
# Turns after the last answer for which a client counts as watching.
WATCHED_TURNS = 100
# Turns over which their length is averaged.
_RECENT = 8


class Turns:
    """The number of answers, or of requests, in one turn of the event loop: ``at_once``.

    A turn has fewer when the machine is busy or pages are costly, and fewer still while somebody
    watches.
    """

    def __init__(self) -> None:
        self.at_once = AT_MOST
        # Whether a client of the live page waits for an answer.
        self.is_awaited = False
        # How many more turns a client counts as watching.
        self._watched = 0
        # Sums of the last turns; older ones count ever less.
        self._seconds = WATCHED[0] * _RECENT
        self._answers = float(AT_MOST * _RECENT)

    def took(self, seconds: float, answers: int) -> None:
        """Learn from a turn with ``answers`` answers that took ``seconds``.

        While a client waits, pages are read in other turns than their answers pass in: such a turn
        says nothing.
        """
        if self.is_awaited:
            return
        self._seconds += seconds - self._seconds / _RECENT
        self._answers += answers - self._answers / _RECENT
        if self._watched:
            self._watched -= 1
        self.at_once = self._fitting()

    def serve(self, clients: int) -> None:
        """Let turns be short while so many clients wait for an answer, and a while after."""
        self.is_awaited = clients > 0
        self._watched = WATCHED_TURNS
        self.at_once = FOR_CLIENTS if clients else self._fitting()

    def _fitting(self) -> int:
        limit, at_least = WATCHED if self._watched else UNWATCHED
        fitting = limit * self._answers / max(self._seconds, 1e-9)
        return int(max(at_least, min(AT_MOST, fitting)))

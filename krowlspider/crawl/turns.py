"""How much work is done in one turn of the event loop."""

from __future__ import annotations

# Most answers, or requests, in one turn of the event loop. While somebody watches the crawl, a turn
# has as many as fit into TURN seconds, but at least AT_LEAST.
AT_MOST = 16
TURN = 0.012
AT_LEAST = 4
# The same while a client of the live page waits. Its call takes four turns.
FOR_CLIENTS = 1
# Turns after the last answer for which a client counts as watching.
WATCHED = 100
# Turns over which their length is averaged.
_RECENT = 8


class Turns:
    """The number of answers, or of requests, in one turn of the event loop: ``at_once``.

    A turn has fewer while somebody watches, and the machine is busy or pages are costly.
    """

    def __init__(self) -> None:
        self.at_once = AT_MOST
        self._is_awaited = False
        # How many more turns a client counts as watching.
        self._watched = 0
        # Sums of the last turns; older ones count ever less.
        self._seconds = TURN * _RECENT
        self._answers = float(AT_MOST * _RECENT)

    def took(self, seconds: float, answers: int) -> None:
        """Record that a turn with ``answers`` answers took ``seconds``."""
        self._seconds += seconds - self._seconds / _RECENT
        self._answers += answers - self._answers / _RECENT
        if self._watched and not self._is_awaited:
            self._watched -= 1
            self.at_once = self._fitting()

    def serve(self, clients: int) -> None:
        """Let turns be short while so many clients wait for an answer, and a while after."""
        self._is_awaited = clients > 0
        self._watched = WATCHED
        self.at_once = FOR_CLIENTS if clients else self._fitting()

    def _fitting(self) -> int:
        if not self._watched:
            return AT_MOST
        fitting = TURN * self._answers / max(self._seconds, 1e-9)
        return int(max(AT_LEAST, min(AT_MOST, fitting)))

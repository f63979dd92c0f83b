"""How much work is done in one turn of the event loop."""

from __future__ import annotations

# Answers, or requests, in one turn of the event loop: so many as take TURN seconds, but at least
# AT_LEAST. The loop spends a fiftieth of a page's time on a turn itself.
TURN = 0.03
AT_MOST = 16
AT_LEAST = 4
# The same while a client waits for an answer of the live page, which takes three turns.
FOR_CLIENTS = 1
# Turns over which their length is averaged.
_RECENT = 8


class Turns:
    """The number of answers, or of requests, in one turn of the event loop: ``at_once``.

    On a busy machine, or with costly pages, a turn has fewer.
    """

    def __init__(self) -> None:
        self.at_once = AT_MOST
        self._fitting = AT_MOST
        self._is_awaited = False
        # Sums of the last turns; older ones count ever less.
        self._seconds = 0.0
        self._answers = 0.0

    def took(self, seconds: float, answers: int) -> None:
        """Learn how long a turn with so many answers was."""
        self._seconds += seconds - self._seconds / _RECENT
        self._answers += answers - self._answers / _RECENT
        fitting = TURN * self._answers / max(self._seconds, 1e-9)
        self._fitting = int(max(AT_LEAST, min(AT_MOST, fitting)))
        if not self._is_awaited:
            self.at_once = self._fitting

    def serve(self, clients: int) -> None:
        """Let turns be short while so many clients wait for an answer."""
        self._is_awaited = clients > 0
        self.at_once = FOR_CLIENTS if clients else self._fitting

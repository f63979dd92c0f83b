"""How much work is done in one turn of the event loop."""

from __future__ import annotations

# Answers, or requests, in one turn of the event loop: about 12 ms of work.
AT_ONCE = 16
# The same while a client waits for an answer of the live page, which takes three turns.
FOR_CLIENTS = 4


class Turns:
    """The number of answers, or of requests, in one turn of the event loop: ``at_once``."""

    def __init__(self) -> None:
        self.at_once = AT_ONCE

    def serve(self, clients: int) -> None:
        """Let turns be short while so many clients wait for an answer."""
        self.at_once = FOR_CLIENTS if clients else AT_ONCE

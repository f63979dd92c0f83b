"""What all nodes of a cluster are told to do."""

from __future__ import annotations

from enum import StrEnum


class Signal(StrEnum):
    RUNNING = "RUNNING"
    # Nothing is popped; what is in flight ends.
    PAUSED = "PAUSED"
    # Every node ends as by SIGTERM.
    STOP = "STOP"

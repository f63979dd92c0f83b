"""The job clock: the time in which a frontier keeps its due times, across restarts."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from krowlspider.frontier.store.schema import CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Batch, Store

# Job clock and monotonic clock of a commit, in seconds. The id of the machine's run follows them.
_CLOCKS = Struct(">dd")
_JOB_CLOCK = Struct(">d")


class JobClock:
    """Wall time when the job begins, and monotonic from there on, in seconds.

    It runs on across restarts of the process. After a restart of the machine it is wall time again,
    or the time of the last commit where that is later. So it never goes back, even if somebody sets
    the machine's clock, and times on disk stay valid.

    ``monotonic`` and ``wall`` are clocks in seconds. ``boot`` identifies the run of the machine;
    empty where it is not known. ``is_new`` is true if the store has no clock yet.
    """

    def __init__(
        self,
        store: Store,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        boot: bytes = b"",
    ):
        self._monotonic = monotonic
        self._boot = boot
        saved = store.get(CLOCK)
        self.is_new = saved is None
        self._ahead = (wall() if saved is None else self._continued(saved, wall)) - monotonic()

    def _continued(self, saved: bytes, wall: Callable[[], float]) -> float:
        """Return the job clock, in seconds, as it continues from the last commit."""
        job: float = _JOB_CLOCK.unpack_from(saved)[0]
        if self._boot and saved[_CLOCKS.size :] == self._boot:
            then: float = _CLOCKS.unpack_from(saved)[1]
            return job + max(0.0, self._monotonic() - then)
        return max(wall(), job)

    def now(self) -> float:
        """Return the job clock, in seconds."""
        return self._monotonic() + self._ahead

    def put(self, batch: Batch) -> None:
        """Put the clocks into the batch, for the next start."""
        batch.put(CLOCK, _CLOCKS.pack(self.now(), self._monotonic()) + self._boot)

"""The figures of a crawl over all its starts, in ever coarser steps, for the charts of its
report."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Seconds between two samples at first, and samples kept. Twice as many seconds, once there are as
# many.
INTERVAL = 10.0
KEPT = 400
# What a sample has: epoch seconds, then figures over all starts.
FIELDS = ("time", "done", "dropped", "queued")


class Course:
    """Samples of a crawl's figures. ``path`` is the file that keeps them.

    A file that cannot be read or written costs the charts their past, and nothing else.
    """

    def __init__(self, path: Path):
        self._path = path
        self._interval = INTERVAL
        self.samples: list[list[float]] = []
        with suppress(OSError, ValueError, TypeError, KeyError):
            saved = json.loads(path.read_bytes())
            samples = [[float(value) for value in sample] for sample in saved["samples"]]
            if all(len(sample) == len(FIELDS) for sample in samples):
                self.samples = samples[:KEPT]
                self._interval = max(INTERVAL, float(saved["interval"]))

    def add(self, now: float, figures: Mapping[str, float], *, always: bool = False) -> None:
        """Add the figures at ``now``, in epoch seconds, unless the last sample is too recent."""
        # A timer may end a little early.
        is_recent = self.samples and now - self.samples[-1][0] < 0.9 * self._interval
        if is_recent and not always:
            return
        self.samples.append([round(now, 1), *(figures[name] for name in FIELDS[1:])])
        if len(self.samples) >= KEPT:
            self.samples = self.samples[::2]
            self._interval *= 2

    def write(self) -> None:
        """Write the samples to the file; make its folder if need be."""
        draft = self._path.with_name(f"{self._path.name}.new")
        saved = {"interval": self._interval, "fields": FIELDS, "samples": self.samples}
        with suppress(OSError):
            self._path.parent.mkdir(exist_ok=True)
            draft.write_text(json.dumps(saved))
            draft.replace(self._path)

"""Extension: run Python's garbage collector less often, and not on objects that stay."""

from __future__ import annotations

import gc
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from scrapy import signals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from scrapy.crawler import Crawler

# Surviving new objects before a collection of the youngest generation. Python's default of 700 is
# reached by each page, and so many collections slow a crawl down. More hold the event loop longer.
_YOUNG = 5_000
# After more than so many young collections there is a middle one, after more than so many middle
# ones there may be a full one: as rarely as with 50,000 and Python's 10 and 10.
_MIDDLE, _OLD = 2, 400


@contextmanager
def collecting_less() -> Iterator[None]:
    """Exclude existing objects from garbage collection, and collect new ones less often.

    The former state is restored at the end.
    """
    before = gc.get_threshold()
    # Modules, settings and components live until the end. The little garbage among them is kept
    # too: to collect it costs a twentieth of the CPU time of a start.
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


class GcTuning:
    """Reduces garbage collection while the engine runs."""

    def __init__(self, crawler: Crawler):
        self._while_running = ExitStack()
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        self._while_running.enter_context(collecting_less())

    def _stop(self) -> None:
        self._while_running.close()

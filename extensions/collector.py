"""Extension: has Python look for cyclic garbage less often, and not among what stays."""

from __future__ import annotations

import gc
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from scrapy import signals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from scrapy.crawler import Crawler

# New objects that survive before the youngest are looked at. The default of 700 is a page's worth, and takes a tenth of
# a crawl's time.
_YOUNG = 50_000
# Young collections before one of the middle generation, and those before a full one: as Python has it.
_MIDDLE, _OLD = 10, 10


@contextmanager
def collecting_less() -> Iterator[None]:
    """Have what is there left alone, and new objects be looked at less often."""
    before = gc.get_threshold()
    gc.collect()
    # Modules, settings and components are there to the end.
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


class Collector:
    """Collects less while the engine runs."""

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

"""The modules through which a link passes until it is acknowledged, and a 429 until the next fetch.

``python -m tests.support.walks`` prints both, with the calls into each module. The crawls are
simulated: all code is the real one, but for clocks and network.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.engine.handler import DownloadHandler
from krowlspider.frontier.frontier import Frontier
from krowlspider.job.commits import Commits
from krowlspider.spiders.broad import BroadSpider
from tests.support.crawls import crawl_of, page
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

_ROOT = Path(__file__).parents[2]
# The slow page keeps the crawl from ending within the walk.
_LINK = [
    page("/robots.txt", ""),
    page("/", "<a href=/a>a</a><a href=/b>b</a>"),
    page("/a", "leaf"),
    page("/b", "leaf", latency=9.0),
]
_THROTTLED = [
    page("/robots.txt", ""),
    page("/", "<a href=/a>a</a>"),
    {"path": "/a", "status": 429, "first": 1},
    page("/a", "leaf"),
]


class Walk:
    """Counts the calls into each module, in all threads, between two calls.

    ``begins`` and ``ends`` say whether a call is the first one, and the last one.
    """

    def __init__(
        self, begins: Callable[[FrameType], bool], ends: Callable[[FrameType], bool]
    ) -> None:
        self.calls: Counter[str] = Counter()
        self._is_on = self._is_over = False
        self._begins, self._ends = begins, ends
        self._modules: dict[CodeType, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or self._is_over:
            return
        code = frame.f_code
        module = self._modules.get(code, "")
        if module == "":
            module = self._modules[code] = _module_of(code.co_filename)
        if module is None:
            return
        if not self._is_on:
            self._is_on = self._begins(frame)
        if self._is_on:
            self.calls[module] += 1
            self._is_over = self._ends(frame)

    def lines(self) -> list[str]:
        """Return what was counted, as a table."""
        packages = {name.rpartition(".")[0] for name in self.calls}
        head = (
            f"{len(self.calls)} modules in {len(packages)} packages, {self.calls.total():,} calls"
        )
        return [head, *(f"{count:6,}  {name}" for name, count in self.calls.most_common())]


def _module_of(filename: str) -> str | None:
    """Return the name of a module of the product; None for any other."""
    try:
        path = Path(filename).relative_to(_ROOT)
    except ValueError:
        return None
    if path.parts[0] != "krowlspider":
        return None
    return ".".join(path.with_suffix("").parts)


def link_walk(folder: Path) -> Walk:
    """Trace a link from the page that has it until its own page is acknowledged and committed."""
    acknowledged = False

    def begins(frame: FrameType) -> bool:
        return frame.f_code is BroadSpider.parse.__code__

    def ends(frame: FrameType) -> bool:
        nonlocal acknowledged
        code = frame.f_code
        if code is Frontier.acknowledge.__code__:
            acknowledged |= frame.f_locals["lease"].entry.url.endswith("/a")
        return acknowledged and code is Commits.commit.__code__

    return _walk(folder, _LINK, Walk(begins, ends))


def throttled_walk(folder: Path) -> Walk:
    """Trace an answer with status 429 from its arrival until the page is fetched again."""
    fetches = 0

    def begins(frame: FrameType) -> bool:
        nonlocal fetches
        if frame.f_code is not DownloadHandler._decode.__code__:
            return False
        return frame.f_locals["exchange"].status == 429

    def ends(frame: FrameType) -> bool:
        if frame.f_code is not DownloadHandler.download_request.__code__:
            return False
        return bool(frame.f_locals["request"].url.endswith("/a"))

    return _walk(folder, _THROTTLED, Walk(begins, ends))


def _walk(folder: Path, spec: list[dict[str, object]], walk: Walk) -> Walk:
    with SimulatedWeb(spec=spec) as web:
        crawl = crawl_of(web, folder, [web.url("a.test")])
        threading.setprofile(walk)
        sys.setprofile(walk)
        try:
            crawl.run()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return walk


if __name__ == "__main__":
    for title, trace in (("link", link_walk), ("429", throttled_walk)):
        with tempfile.TemporaryDirectory() as name:
            print(title, *trace(Path(name)).lines(), sep="\n")

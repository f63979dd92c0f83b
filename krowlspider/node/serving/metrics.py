"""The metrics of a crawl of several processes, at one address."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from krowlspider.crawl.monitoring.access import METRICS, noted_url
from krowlspider.crawl.monitoring.endpoint import health
from krowlspider.errors import error_text
from krowlspider.node.serving.asking import asked
from krowlspider.node.serving.sums import Sums, read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krowlspider.crawl.monitoring.endpoint import Route
    from krowlspider.node.serving.sums import Answer
    from krowlspider.node.tree import Tree

logger = logging.getLogger(__name__)

# Seconds in which a process answers, and for which the answer to a client is served again.
_TIMEOUT = 3.0
_FRESH = 1.0
# Name, type, label and meaning of the metrics of the processes together.
OWN = (
    ("krowl_node_process_up", "gauge", "process", "1 if a process answers with its metrics."),
    (
        "krowl_node_restarts_total",
        "counter",
        "",
        "Times that a process died and was started again.",
    ),
)


class Metrics:
    """Asks the processes of a tree for their metrics.

    ``restarts`` returns how many processes were started again.
    """

    def __init__(
        self, tree: Tree, path: str, processes: Sequence[str], restarts: Callable[[], int]
    ):
        self._tree = tree
        self._path = path
        self._processes = processes
        self._restarts = restarts
        self._sums = Sums()
        # Processes whose last answer could not be used.
        self._unusable: set[str] = set()
        self._lock = asyncio.Lock()
        self._text = ""
        self._end = float("-inf")

    def routes(self) -> dict[str, Route]:
        """Return what answers at each path."""
        return {"/healthz": health, "/readyz": self._ready, self._path: self._answer}

    async def _ready(self, _: web.BaseRequest) -> web.Response:
        """Answer as the process that is not ready, if one is not."""
        every = await asyncio.gather(*map(self._why_not, self._processes))
        why_not = next(filter(None, every), "")
        return web.Response(text=f"{why_not or 'ready'}\n", status=503 if why_not else 200)

    async def _why_not(self, process: str) -> str:
        if (url := noted_url(self._tree.path / process, METRICS)) is None:
            return f"{process}: it does not run"
        try:
            reply = await asked(url.removesuffix(self._path) + "/readyz", seconds=_TIMEOUT)
            return "" if reply.is_good else f"{process}: {reply.text.decode().strip()}"
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return f"{process}: {error_text(error) or 'no answer'}"

    async def _answer(self, _: web.BaseRequest) -> web.Response:
        kind = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        return web.Response(body=(await self.text()).encode(), headers=kind)

    async def text(self) -> str:
        """Return the metrics of all, asked for at most a second ago."""
        async with self._lock:
            if time.monotonic() >= self._end:
                self._text = await self._ask_all()
                self._end = time.monotonic() + _FRESH
            return self._text

    async def _ask_all(self) -> str:
        names = list(self._processes)
        found = await asyncio.gather(*map(self._ask, names))
        answers = dict(zip(names, found, strict=True))
        used = {process: answer for process, answer in answers.items() if answer is not None}
        up = {f'{{process="{name}"}}': int(name in used) for name in names}
        lines = []
        for (name, kind, _, text), values in zip(OWN, (up, {"": self._restarts()}), strict=True):
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{labels} {value}" for labels, value in values.items()]
        return "".join(f"{line}\n" for line in lines) + self._sums.of(used)

    async def _ask(self, process: str) -> Answer | None:
        """Return the metrics of a process; None if it does not answer, or with something else."""
        if (url := noted_url(self._tree.path / process, METRICS)) is None:
            return None
        try:
            reply = await asked(url, seconds=_TIMEOUT)
            if not reply.is_good:
                return None
            answer = read(reply.text.decode())
        except (aiohttp.ClientError, TimeoutError):
            return None
        except ValueError as error:
            if process not in self._unusable:
                self._unusable.add(process)
                logger.warning(
                    "Metrics of process %s left out until they are valid again: %s (asked at %s)",
                    *(process, error, url),
                )
            return None
        self._unusable.discard(process)
        return answer

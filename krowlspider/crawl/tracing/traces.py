"""Follow the requests of a crawl, and send the spans of some of them."""

from __future__ import annotations

import logging
import random
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from krowlspider import __version__
from krowlspider.crawl.tracing.trace import Trace, attribute
from krowlspider.crawl.webhook import NotSentError, Webhook
from krowlspider.frontier.admin.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable


logger = logging.getLogger(__name__)

# The part of the requests whose spans are sent; those that failed are all sent.
SHARE = 0.01
# Traces of one commit, and commits that wait to be sent; more are counted as lost.
TRACES_MAX = 2000
WAITING_MAX = 20
# Seconds for one POST, and for the last ones at the end of the crawl.
_TIME_LIMIT = 10.0
_LAST = 5.0
# Seconds between two warnings.
_QUIET = 60.0
# Where a collector takes traces (OTLP 1.0, "OTLP/HTTP Request").
_PATH = "/v1/traces"


class Traces:
    """Sends the spans of requests to the collector at ``endpoint``, after their commits.

    ``instance`` is the node, "" for a crawl of one process.
    """

    def __init__(self, endpoint: str, spider: str, instance: str, wall: Callable[[], float]):
        parts = urlsplit(endpoint)
        url = parts._replace(path=_PATH).geturl() if parts.path in {"", "/"} else endpoint
        self._webhook = Webhook(url, _TIME_LIMIT)
        self._wall = wall
        about = {"service.name": "krowlspider", "service.version": __version__}
        about |= {"krowl.spider": spider}
        if instance:
            about["service.instance.id"] = instance
        self._resource = {"attributes": [attribute(key, value) for key, value in about.items()]}
        self._over: list[Trace] = []
        self._lost = 0
        self._warned_at = float("-inf")
        self._queue: SimpleQueue[tuple[list[Trace], float] | None] = SimpleQueue()
        # A daemon: the end of the process does not wait for it.
        self._thread = Thread(target=self._work, name="traces", daemon=True)
        self._thread.start()

    def begin(self, url: str) -> Trace:
        """Follow a request that was popped just now."""
        is_sampled = random.random() < SHARE
        return Trace(url, self._wall, self._keep, sampled=is_sampled)

    def _keep(self, trace: Trace) -> None:
        if len(self._over) < TRACES_MAX:
            self._over.append(trace)
        else:
            self._lost += 1

    def take(self) -> list[Trace]:
        """Return the traces of requests that are over, for the commit that begins now."""
        taken, self._over = self._over, []
        return taken

    def committed(self, taken: list[Trace]) -> None:
        """Send the traces of a commit that has ended; return immediately."""
        if self._queue.qsize() >= WAITING_MAX:
            self._lost += len(taken)
        elif taken:
            self._queue.put((taken, self._wall()))

    def close(self) -> None:
        """Send what is left, within some seconds. This blocks: call it in a thread."""
        self._queue.put(None)
        self._thread.join(_LAST)
        if self._thread.is_alive():
            logger.warning("KROWL_TRACES: the collector did not take the last traces in time")
        elif self._lost:
            # Of the last minute, in which no second warning was written.
            logger.warning("KROWL_TRACES: lost the traces of %s", counted(self._lost, "request"))

    def _work(self) -> None:
        while (batch := self._queue.get()) is not None:
            traces, committed = batch
            spans = [span for trace in traces for span in trace.spans(committed)]
            scope = {"scope": {"name": "krowlspider"}, "spans": spans}
            body = {"resourceSpans": [{"resource": self._resource, "scopeSpans": [scope]}]}
            try:
                # json holds Python's lock ten times as long, and the event loop waits.
                self._webhook.send(msgspec.json.encode(body))
            except NotSentError as error:
                self._lost += len(traces)
                self._warn(str(error))
            else:
                if self._lost:
                    self._warn("too many requests failed at a time")

    def _warn(self, why: str) -> None:
        now = self._wall()
        if now - self._warned_at >= _QUIET:
            lost, self._lost, self._warned_at = self._lost, 0, now
            logger.warning("KROWL_TRACES: lost the traces of %s: %s", counted(lost, "request"), why)

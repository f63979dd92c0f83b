"""Traces of single pages: spans in the format of OpenTelemetry, in files or sent to a collector."""

from __future__ import annotations

import logging
import random
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from krowlspider import __version__
from krowlspider.errors import counted
from krowlspider.job.webhook import NotSentError, Webhook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krowlspider.fetch.errors import Exchange, Times

    # Name, start and end, in epoch seconds.
    Part = tuple[str, float, float]

_CLIENT, _INTERNAL, _ERROR = 3, 1, 2

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


class Trace:
    """The times of a request, in epoch seconds of ``wall``, from its pop on.

    `over` calls ``on_over`` with the trace if it is ``sampled``, or if the request has failed.
    """

    __slots__ = (
        *("_archived", "_handed", "_on_over", "_over", "_popped", "_wall"),
        *("error", "sampled", "status", "times", "url"),
    )

    def __init__(
        self,
        url: str,
        wall: Callable[[], float],
        on_over: Callable[[Trace], None],
        *,
        sampled: bool,
    ):
        self.url = url
        self.sampled = sampled
        self.status = 0
        self.error = ""
        self.times: Times | None = None
        self._wall = wall
        self._on_over = on_over
        self._popped = wall()
        # When the fetch and the writing of its records ended, and when the request was over.
        self._handed = self._archived = self._over = 0.0

    def answered(self, exchange: Exchange | None, error: str = "") -> None:
        """Keep how the fetch has ended."""
        self._handed = self._wall()
        self.error = error
        if exchange is not None:
            self.times, self.status = exchange.times, exchange.status

    def archived(self, _: object) -> None:
        """Keep when the records were written. It may be called in any thread."""
        self._archived = self._wall()

    def finish(self, failure: str | None) -> None:
        """End the request; ``failure`` is the reason for which its page is dropped."""
        self._over = self._wall()
        self.error = self.error or failure or ""
        if self.sampled or self.error:
            self._on_over(self)

    def spans(self, committed: float) -> list[dict[str, Any]]:
        """Return the spans of the request, whose page was committed at a time."""
        trace, root = _id(128), _id(64)
        request = _span(trace, root, ("request", self._popped, committed), _CLIENT)
        request["attributes"] = [attribute("url.full", self.url)]
        if self.status:
            request["attributes"].append(
                {"key": "http.response.status_code", "value": {"intValue": str(self.status)}}
            )
        if self.error:
            request["attributes"].append(attribute("error.type", self.error))
            request["status"] = {"code": _ERROR, "message": self.error}
        children = [_span(trace, _id(64), part, _INTERNAL) for part in self._parts(committed)]
        for child in children:
            child["parentSpanId"] = root
        return [request, *children]

    def _parts(self, committed: float) -> Iterator[Part]:
        if (times := self.times) is None:
            if self._handed:
                yield "fetch", self._popped, self._handed
        else:
            yield from self._of_exchange(times)
        if self._handed:
            yield "parse", self._handed, self._over
        yield "commit", self._over, committed

    def _of_exchange(self, times: Times) -> Iterator[Part]:
        begun = at = times.started
        if (dialled := times.dialled) is not None:
            begun = at = times.started - dialled.name - dialled.connect - dialled.tls
            for name, seconds in zip(("dns", "connect", "tls"), dialled, strict=True):
                if seconds or name != "tls":
                    yield name, at, at + seconds
                at += seconds
        yield "pop", self._popped, begun
        first = times.started + times.latency
        yield "first byte", times.started, first
        end = begun + times.duration
        yield "body", first, end
        if self._archived:
            yield "archive", end, self._archived


def _id(bits: int) -> str:
    # Never 0, which is no id.
    return f"{random.getrandbits(bits) or 1:0{bits // 4}x}"


def _span(trace: str, own: str, part: Part, kind: int) -> dict[str, Any]:
    name, start, end = part
    return {
        "traceId": trace,
        "spanId": own,
        "name": name,
        "kind": kind,
        "startTimeUnixNano": _nanoseconds(start),
        # Clocks are read in different places: a short part may seem to end before it began.
        "endTimeUnixNano": _nanoseconds(max(start, end)),
    }


def _nanoseconds(seconds: float) -> str:
    return str(int(seconds * 1e9))


def attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


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

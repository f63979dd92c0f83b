"""The times of one request, and its spans in the JSON of OTLP."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krowlspider.fetch.exchange import Exchange, Times

    # Name, start and end, in epoch seconds.
    Part = tuple[str, float, float]

_CLIENT, _INTERNAL, _ERROR = 3, 1, 2


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

    def over(self, failure: str | None) -> None:
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

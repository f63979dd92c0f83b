"""Which records a capture becomes: a response, or a revisit of one that is there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from krowlspider.archive.digests import label, raw_digest
from krowlspider.archive.payloadindex import Original
from krowlspider.archive.records import record_id, warc_date

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.archive.capture import Capture
    from krowlspider.archive.payloadindex import PayloadIndex
    from krowlspider.archive.records import RecordMaker

_NOT_MODIFIED = 304


@dataclass(slots=True, eq=False)
class Composed:
    """The gzip members of a capture: the ``first`` of its response, or of the revisit, then that of its request.

    ``payload`` is the labelled digest of its payload. ``new`` is its digest when it is to be known from now on.
    """

    first: bytes
    request: bytes
    revisit: bool
    payload: str
    new: bytes | None


class Composer:
    """Makes records, with digests of ``algorithm``, compressed by ``compress``; ``payloads`` knows those that are there
    already, None when every capture is to be kept whole."""

    def __init__(
        self, algorithm: str, compress: Callable[[bytes], bytes], payloads: PayloadIndex | None
    ):
        self._algorithm = algorithm
        self._compress = compress
        self._payloads = payloads

    def compose(self, capture: Capture, maker: RecordMaker) -> Composed:
        """:raises ValueError: it cannot be a record"""
        raw = raw_digest(capture.payload, self._algorithm)
        payload = label(raw, self._algorithm)
        new = None
        original = self._original(capture, raw)
        if original is not None:
            first = maker.revisit(capture, payload, original)
        elif capture.status == _NOT_MODIFIED:
            first = maker.not_modified(capture)
        else:
            first = maker.response(capture, payload)
            # What is cut off stands for nothing but itself, and of nothing there is nothing to save.
            new = raw if capture.payload and not capture.truncated else None
        request = maker.request(capture, record_id(os.urandom(16)))
        revisit = original is not None or capture.status == _NOT_MODIFIED
        return Composed(self._compress(first), self._compress(request), revisit, payload, new)

    def _original(self, capture: Capture, raw: bytes) -> Original | None:
        if self._payloads is None or capture.truncated or not capture.payload:
            return None
        return self._payloads.find(raw)

    def written(self, capture: Capture, composed: Composed) -> None:
        """Its records stand in a file, and may be referred to."""
        if self._payloads is not None and composed.new is not None:
            original = Original(capture.url, warc_date(capture.started))
            self._payloads.add(composed.new, original)

    def synced(self) -> None:
        """What is written is durable."""
        if self._payloads is not None:
            self._payloads.sync()

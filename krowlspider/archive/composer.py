"""Which records a capture becomes: a response, or a revisit of one that is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

from krowlspider.archive.digests import label, raw_digest
from krowlspider.archive.payloadindex import Original
from krowlspider.archive.randomness import RandomIds
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

    ``payload`` is the labelled digest of its payload. ``new`` is what it is to be known by from now on, None when it is
    not.
    """

    first: bytes
    request: bytes
    revisit: bool
    payload: str
    new: bytes | None


class Composer:
    """Makes records, with digests of ``algorithm``, compressed by ``compress``; ``payloads`` knows those that are there
    already, None when every capture is to be kept whole. ``seed`` is a secret, by which it knows them."""

    def __init__(
        self,
        algorithm: str,
        compress: Callable[[bytes], bytes],
        payloads: PayloadIndex | None,
        seed: int,
    ):
        self._algorithm = algorithm
        self._compress = compress
        self._payloads = payloads
        self._seed = seed
        self._ids = RandomIds()

    def compose(self, capture: Capture, maker: RecordMaker) -> Composed:
        """:raises ValueError: it cannot be a record"""
        raw = raw_digest(capture.payload, self._algorithm)
        payload = label(raw, self._algorithm)
        key = new = None
        if self._payloads is not None and capture.payload and not capture.truncated:
            # What is cut off stands for nothing but itself, and of nothing there is nothing to save.
            key = self._key(capture, raw)
        unchanged = self._payloads is not None and capture.status == _NOT_MODIFIED
        original = self._payloads.find(key) if self._payloads is not None and key else None
        if original is not None:
            first = maker.revisit(capture, payload, original)
        elif unchanged:
            first = maker.not_modified(capture)
        else:
            first = maker.response(capture, payload)
            new = key
        request = maker.request(capture, record_id(self._ids.take()))
        revisit = original is not None or unchanged
        return Composed(self._compress(first), self._compress(request), revisit, payload, new)

    def _key(self, capture: Capture, raw: bytes) -> bytes:
        """What a payload is known by. Two of one SHA-1 can be made, but not two of a hash with a secret seed besides. One
        in chunks and one that is not are two: readers put the head of a revisit before the body that it refers to, as
        it stands there."""
        in_chunks = len(capture.response_bytes) != capture.head + len(capture.payload)
        return raw + xxhash.xxh3_64_digest(capture.payload, self._seed) + b"c" * in_chunks

    def written(self, capture: Capture, composed: Composed) -> None:
        """Its records stand in a file, and may be referred to."""
        if self._payloads is not None and composed.new is not None:
            original = Original(capture.url, warc_date(capture.started))
            self._payloads.add(composed.new, original)

    def synced(self) -> None:
        """What is written is durable."""
        if self._payloads is not None:
            self._payloads.sync()

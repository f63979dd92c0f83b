"""Decide which records a capture becomes: a response, or a revisit of a stored response."""

from __future__ import annotations

from typing import TYPE_CHECKING

import xxhash
from msgspec import Struct

from krowlspider.archive.index.request_query import is_plain_request
from krowlspider.archive.payloads.digests import Original, label, raw_digest
from krowlspider.archive.payloads.payload import header
from krowlspider.archive.write.records import RecordIds, epoch_of, warc_date

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krowlspider.archive.payloads.payload_index import PayloadIndex
    from krowlspider.archive.write.capture import Capture, Receipt
    from krowlspider.archive.write.records import RecordMaker

_NOT_MODIFIED = 304


class Composed(Struct, eq=False):
    """The gzip members of a capture: ``first``, a response or revisit record, and ``request``.

    The record of a mapped response is in pieces, not compressed yet. ``payload`` is its labelled
    digest, ``raw`` that of the payload itself. ``new`` is the key to add to the payload index, or
    None. ``original`` is the record to which a revisit refers.
    """

    first: bytes | Iterator[bytes | memoryview]
    request: bytes
    revisit: bool
    payload: str
    raw: bytes
    new: bytes | None
    original: Original | None


class Composer:
    """Makes the records of captures, with digests of ``algorithm``, compressed by ``compress``.

    ``payloads`` is the index of the payloads already stored, and knows those of other crawls; with
    None every capture is stored whole. ``seed`` is a secret that goes into the keys of that index.
    """

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
        self._others = None if payloads is None else payloads.others
        self._seed = seed
        self._ids = RecordIds()

    def compose(self, capture: Capture, maker: RecordMaker) -> Composed:
        """Return the compressed records of a capture. Raises ValueError if it cannot be one."""
        raw = raw_digest(capture.payload, self._algorithm)
        payload = label(raw, self._algorithm)
        key = original = None
        unchanged = False
        if self._payloads is not None:
            unchanged = capture.status == _NOT_MODIFIED and _is_conditional(capture)
            # No key for a truncated payload, which no other equals, nor for an empty one. None for
            # the answer to a POST: a revisit names only the URL, which does not find it in replay.
            if (
                capture.payload
                and not capture.truncated
                and is_plain_request(capture.request_bytes)
            ):
                key = self._key(capture, raw)
                original = self._payloads.find(key) or self._in_other_crawl(capture, raw)
        first: bytes | Iterator[bytes | memoryview]
        if original is not None:
            # pywb finds the original by the text of its digest.
            payload = original.digest or payload
            first = self._compress(maker.revisit(capture, payload, original))
        elif unchanged:
            original = capture.original or self._unmodified(capture)
            if original is not None:
                payload = original.digest or payload
            first = self._compress(maker.not_modified(capture, original))
        elif isinstance(capture.response_bytes, memoryview):
            first = maker.response_pieces(capture, payload)
        else:
            first = self._compress(maker.response(capture, payload))
        revisit = unchanged or original is not None
        request = maker.request(capture, self._ids.new())
        new = None if revisit else key
        return Composed(first, self._compress(request), revisit, payload, raw, new, original)

    def _key(self, capture: Capture, raw: bytes) -> bytes:
        """Return the key of a payload in the index.

        The key adds a hash with a secret seed, because payloads with equal SHA-1 can be made on
        purpose. A chunked payload and a plain one have different keys. Readers put the head of a
        revisit before the original's body as stored, so both must have the same transfer coding.
        SHA-256 was spelt otherwise once: pywb finds no original whose digest is spelt otherwise.
        """
        kind = b"h" * (len(raw) == 32) + b"c" * _in_chunks(capture)
        return raw + xxhash.xxh3_64_digest(capture.payload, self._seed) + kind

    def _in_other_crawl(self, capture: Capture, raw: bytes) -> Original | None:
        if self._others is None:
            return None
        return self._others.find(raw, capture.url, capture.started, chunked=_in_chunks(capture))

    def _unmodified(self, capture: Capture) -> Original | None:
        """Return the response that the conditions of a request named; None if it is not known."""
        if self._others is None:
            return None
        tags = header(capture.request_bytes, "If-None-Match")
        # Of several tags, the answer says which one holds.
        head = bytes(capture.response_bytes[: capture.head])
        validator = header(head, "ETag") if "," in tags else tags
        validator = validator or header(capture.request_bytes, "If-Modified-Since")
        if not validator:
            return None
        return self._others.find_unchanged(capture.url, validator, capture.started)

    def written(self, capture: Capture, composed: Composed) -> None:
        """Add a capture whose records were written to the payload index."""
        if capture.receipt is not None:
            _fill(capture.receipt, capture, composed)
        if self._payloads is not None and composed.new is not None:
            original = Original(capture.url, warc_date(capture.started))
            self._payloads.add(composed.new, original)

    def synced(self) -> None:
        """Write the payload index, after all written records have become durable."""
        if self._payloads is not None:
            self._payloads.sync()


def _fill(receipt: Receipt, capture: Capture, composed: Composed) -> None:
    original = composed.original
    receipt.payload = composed.raw
    if original is None:
        receipt.url, receipt.date = capture.url, capture.started
    else:
        receipt.url, receipt.date = original.url, epoch_of(original.date)


def _is_conditional(capture: Capture) -> bool:
    """Return whether a 304 is the answer to what was asked."""
    request = capture.request_bytes
    return not capture.says_nothing and bool(
        header(request, "If-None-Match") or header(request, "If-Modified-Since")
    )


def _in_chunks(capture: Capture) -> bool:
    return len(capture.response_bytes) != capture.head + len(capture.payload)

"""The JSON by which a finder learns which of its forwarded messages are durable at their owner.

A finder numbers the batches that it pushes to an owner's list, from 0 on: they are a stream. Behind
the messages of each batch, in the same push, is a mark. When all that came before a mark is durable
in its frontier, the owner publishes an acknowledgement for the finder.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from krowlspider.cluster.transport.meta import BadMessage

# Numbers are below this: readers of JSON keep them exactly.
LIMIT = 2**53
# Bytes with which each mark begins. No message does.
_BEGIN = b'{"mark":'

_Node = Annotated[str, Meta(min_length=1, max_length=255)]
_Number = Annotated[int, Meta(ge=0, lt=LIMIT)]


class Mark(Struct, tag_field="mark", tag=1, forbid_unknown_fields=True, frozen=True):
    """The end of batch ``number`` of a ``stream`` from ``finder`` to ``owner``.

    The finder's outbox has nothing for the owner up to the sequence ``last`` that is neither in
    this batch, nor in an earlier one of the stream, nor acknowledged.
    """

    finder: _Node
    owner: _Node
    stream: _Number
    number: _Number
    last: _Number


class Acknowledgement(Struct, array_like=True, frozen=True):
    """Messages of a ``stream`` up to the sequence ``last`` are durable; -1: none.

    ``has_gap``: a batch behind them did not arrive, so later ones of the stream do not count.
    """

    stream: _Number
    last: Annotated[int, Meta(ge=-1, lt=LIMIT)]
    has_gap: bool = False


_encode = msgspec.json.Encoder().encode
_decode_mark = msgspec.json.Decoder(Mark).decode
_decode_acknowledgement = msgspec.json.Decoder(Acknowledgement).decode


def acknowledged_key(spider: str) -> str:
    """Return the key of the acknowledgements, a hash by finder, beside an owner's list."""
    return f"{spider}:acknowledged"


def encode(value: Mark | Acknowledgement) -> bytes:
    return _encode(value)


def is_mark(data: bytes) -> bool:
    return data.startswith(_BEGIN)


def decode_mark(data: bytes) -> Mark:
    """:raises BadMessage: it is no mark of this version"""
    try:
        return _decode_mark(data)
    except (ValueError, RecursionError) as error:
        raise BadMessage(str(error)[:200]) from error


def decode_acknowledgement(data: bytes | None) -> Acknowledgement | None:
    """Return an acknowledgement, None if there is none. Anybody may have written it."""
    try:
        return None if data is None else _decode_acknowledgement(data)
    except (ValueError, RecursionError):
        return None

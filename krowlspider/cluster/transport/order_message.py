"""The JSON of a person's order for a host of another node, and of its reply."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from krowlspider.cluster.transport.meta import BadMessage

# Version of these messages. Those of other versions are refused.
VERSION = 1
# Bytes of a message: the longest URL, in an answer that repeats it some times, fits in.
MAX_ORDER_MESSAGE = 1 << 17

_Number = Annotated[int, Meta(ge=0, lt=2**52)]
# A field of an order, or of its outcome.
Value = str | int | float | bool | None
_Name = Annotated[str, Meta(min_length=1, max_length=255)]


class OrderAsk(Struct, tag="order", forbid_unknown_fields=True):
    """``who`` gives node ``node`` the order ``name`` for a host of the receiver.

    ``number`` is what the node calls it.
    """

    version: int
    node: _Name
    number: _Number
    who: _Name
    name: _Name
    fields: dict[str, Value]


class OrderReply(Struct, tag="reply", forbid_unknown_fields=True, omit_defaults=True):
    """The reply to the order ``number``: its outcome, or the ``error`` for which nothing changed.

    ``status`` is the one of HTTP for the error.
    """

    version: int
    number: _Number
    outcome: dict[str, Value] = {}
    error: str = ""
    status: Annotated[int, Meta(ge=400, le=599)] = 400


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(OrderAsk | OrderReply).decode


def encode_order(message: OrderAsk | OrderReply) -> bytes:
    return _encode(message)


def decode_order(data: bytes) -> OrderAsk | OrderReply:
    """Return the message.

    :raises BadMessage: it is none, of another version, or exceeds a bound
    """
    if len(data) > MAX_ORDER_MESSAGE:
        raise BadMessage(f"longer than {MAX_ORDER_MESSAGE} bytes")
    try:
        message: OrderAsk | OrderReply = _decode(data)
    except (ValueError, RecursionError) as error:
        raise BadMessage(str(error)[:200]) from error
    if message.version != VERSION:
        raise BadMessage(f"of version {message.version}, not {VERSION}")
    # Both get into the log.
    if isinstance(message, OrderAsk) and not (message.node + message.who).isprintable():
        raise BadMessage("a name that cannot be printed")
    return message

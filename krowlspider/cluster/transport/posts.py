"""Messages that wait in memory to be sent to other nodes: people's orders, and asks for
robots.txt.

The JSON of an ask for the robots.txt of another node's host, and of its answer. A record's times go
as seconds from the sending, as the clocks of the nodes may differ.

The messages about robots.txt that wait to be sent. One that is lost with the process is asked for
again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import replace
from itertools import count, islice
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from krowlspider.cluster.transport.message import BadMessage, check_url
from krowlspider.errors import KrowlError
from krowlspider.politeness.robots import RobotsRecord, Ruling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Most messages that wait, and their bytes. Further ones are left out.
MESSAGES_MAX = 10_000
BYTES_MAX = 16 << 20


class MemoryOutbox:
    """A `forwarder.Source` that forgets what is sent. ``reaches`` returns whether a node takes
    messages."""

    def __init__(self, reaches: Callable[[str], bool]) -> None:
        self._reaches = reaches
        # By node, then by key.
        self._waiting: dict[str, dict[bytes, bytes]] = {}
        self.count = self.size = 0

    def put(self, node: str, key: bytes, message: bytes) -> bool:
        """Send a message, unless one with the same key waits. Return whether the node takes it."""
        if not self._reaches(node):
            self.remove(node, list(self._waiting.get(node, ())))
            return False
        waiting = self._waiting.setdefault(node, {})
        is_full = self.count >= MESSAGES_MAX or self.size + len(message) > BYTES_MAX
        if key not in waiting and not is_full:
            waiting[key] = message
            self.count += 1
            self.size += len(message)
        return True

    def owners(self) -> list[str]:
        return list(self._waiting)

    def next(self, owner: str, most: int) -> tuple[Sequence[bytes], list[bytes]]:
        waiting = self._waiting.get(owner, {})
        return list(islice(waiting, most)), list(islice(waiting.values(), most))

    def mark(self, *_: object) -> None:
        """Return None: nobody acknowledges these messages."""

    def pushed(self, owner: str, keys: Sequence[bytes]) -> None:
        self.remove(owner, keys)

    def question(self) -> tuple[str, ...]:
        return ()

    async def hear(self, *_: object) -> None:
        """Do nothing: nobody is asked."""

    def remove(self, owner: str, keys: Sequence[bytes]) -> int:
        """Remove messages; return how many were there."""
        waiting = self._waiting.get(owner, {})
        before = len(waiting)
        for key in keys:
            if (message := waiting.pop(key, None)) is not None:
                self.count -= 1
                self.size -= len(message)
        removed = before - len(waiting)
        if not waiting:
            self._waiting.pop(owner, None)
        return removed


# Version of these messages. Those of other versions are refused.
VERSION = 1
# Bytes of a message: the longest URL, in an answer that repeats it some times, fits in.
MAX_ORDER_MESSAGE = 1 << 17

_Number = Annotated[int, Meta(ge=0, lt=2**52)]
# A field of an order, or of its outcome, which may have lists of text too.
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
    outcome: dict[str, Value | list[str]] = {}
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


if TYPE_CHECKING:
    Plain = Mapping[str, Value]
    OrderFields = Mapping[str, Value | list[str]]

# Seconds that a reply may take. A client of the API is answered within five.
WAIT = 4.0
# Messages in the list of another node from which on nothing is sent to it.
ORDERS_INBOX_MAX = 200


class OwnerError(KrowlError):
    """An order was not carried out by the owner of its host, or nobody knows; ``status`` as of
    HTTP."""

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.status = status


class OrderPost(MemoryOutbox):
    """The orders from node ``own`` to others, and its replies to theirs."""

    def __init__(self, own: str, reaches: Callable[[str], bool]) -> None:
        super().__init__(reaches)
        self._own = own
        # A process before this one may have asked too.
        self._numbers = count(secrets.randbits(51))
        self._asked: dict[int, asyncio.Future[OrderReply]] = {}

    async def ask(self, node: str, who: str, name: str, fields: Plain) -> OrderFields:
        """Have a node carry an order out; return its outcome, which is durable there.

        :raises OwnerError: the node cannot carry it out, or does not answer
        """
        number = next(self._numbers)
        key = b"order %d" % number
        order = OrderAsk(VERSION, self._own, number, who, name, dict(fields))
        if not self.put(node, key, encode_order(order)):
            raise OwnerError(f"node {node} owns its host, and takes no orders now: start it", 503)
        replied: asyncio.Future[OrderReply] = asyncio.get_running_loop().create_future()
        self._asked[number] = replied
        try:
            async with asyncio.timeout(WAIT):
                reply = await replied
        except TimeoutError:
            is_sent = not self.remove(node, [key])
            raise OwnerError(_unanswered(node, is_sent=is_sent), 504) from None
        finally:
            del self._asked[number]
            self.remove(node, [key])
        if reply.error:
            raise OwnerError(f"node {node}: {reply.error}", reply.status)
        return reply.outcome

    def send(self, node: str, who: str, name: str, fields: Plain) -> bool:
        """Send an order whose reply nobody waits for. Return whether the node takes it."""
        number = next(self._numbers)
        order = OrderAsk(VERSION, self._own, number, who, name, dict(fields))
        return self.put(node, b"order %d" % number, encode_order(order))

    def reply(self, node: str, reply: OrderReply) -> None:
        """Send a reply. The node does not wait for it if it is not there any more."""
        self.put(node, b"reply %d" % reply.number, encode_order(reply))

    def take_reply(self, reply: OrderReply) -> None:
        """Take a reply; one that nobody waits for is late, and says nothing new."""
        asked = self._asked.get(reply.number)
        if asked is not None and not asked.done():
            asked.set_result(reply)


def reply_to(order: OrderAsk, carry_out: Callable[[OrderAsk], OrderFields]) -> OrderReply:
    """Carry an order of another node out, and return the reply, which is to be sent.

    ``carry_out`` returns the outcome. It raises `OwnerError` if the order cannot be carried out.

    :raises BadMessage: raised by ``carry_out`` for a message that is no order
    """
    try:
        return OrderReply(VERSION, order.number, dict(carry_out(order)))
    except OwnerError as error:
        return OrderReply(VERSION, order.number, error=str(error), status=error.status)


def _unanswered(node: str, *, is_sent: bool) -> str:
    what = (
        "it may still be carried out: ask again, which does no harm"
        if is_sent
        else "it was not sent, and nothing is changed: ask again"
    )
    return f"node {node} owns its host, and has not answered for {WAIT:g} s: {what}"


# Bytes of a message: a robots.txt of 500 KiB that cannot be compressed fits in.
MAX_ROBOTS_MESSAGE = 1 << 20
# Characters of a URL, as of a redirect of robots.txt that is followed.
_URL_MAX = 2048
# Seconds for which a record may have held, or may hold.
_SECONDS_MAX = 366 * 86_400.0

_Url = Annotated[str, Meta(max_length=_URL_MAX)]
_DECIDING = {Ruling.RULES.value, Ruling.ALLOW_ALL.value, Ruling.RETRY.value}


class RobotsAsk(Struct, tag="ask", forbid_unknown_fields=True):
    """``node`` asks for the robots.txt at ``url``, and calls this ask ``number``."""

    version: int
    node: Annotated[str, Meta(min_length=1, max_length=255)]
    number: _Number
    url: _Url


class RobotsAnswer(Struct, tag="answer", forbid_unknown_fields=True, omit_defaults=True):
    """The answer to the ask ``number``: a record, or a redirect to ``location``.

    Without either, the robots.txt is to be fetched.
    """

    version: int
    number: _Number
    location: _Url | None = None
    record: bytes | None = None

    def record_at(self, wall: float) -> RobotsRecord | None:
        """Return the record, if any; ``wall`` is this node's clock in epoch seconds."""
        return None if self.record is None else _shifted(RobotsRecord.decode(self.record), wall)


_decode_robots = msgspec.json.Decoder(RobotsAsk | RobotsAnswer).decode


def encode_ask(node: str, number: int, url: str) -> bytes:
    return _encode(RobotsAsk(VERSION, node, number, url))


def encode_answer(
    number: int, record: RobotsRecord | None, location: str | None, wall: float
) -> bytes:
    """Return the message; ``wall`` is this node's clock in epoch seconds."""
    coded = None if record is None else _shifted(record, -wall).encode()
    return _encode(RobotsAnswer(VERSION, number, location, coded))


def decode_robots(data: bytes) -> RobotsAsk | RobotsAnswer:
    """Return the message.

    :raises BadMessage: it is none, of another version, or exceeds a bound
    """
    if len(data) > MAX_ROBOTS_MESSAGE:
        raise BadMessage(f"longer than {MAX_ROBOTS_MESSAGE} bytes")
    try:
        message: RobotsAsk | RobotsAnswer = _decode_robots(data)
        if isinstance(message, RobotsAnswer) and (record := message.record_at(0.0)) is not None:
            _check(record)
    except (ValueError, RecursionError) as error:
        raise BadMessage(str(error)[:200]) from error
    if message.version != VERSION:
        raise BadMessage(f"of version {message.version}, not {VERSION}")
    url = message.url if isinstance(message, RobotsAsk) else message.location
    if url is not None and check_url(url) != url:
        raise BadMessage("a URL that is not in its normal form")
    return message


def _check(record: RobotsRecord) -> None:
    """:raises ValueError: the record decides nothing, or its times are out of bounds"""
    if record.ruling not in _DECIDING:
        raise ValueError(f"a record that means {record.ruling}")
    if not (-_SECONDS_MAX <= record.fetched <= 0.0 < record.expires <= _SECONDS_MAX):
        raise ValueError("a record whose times are out of bounds")


def _shifted(record: RobotsRecord, seconds: float) -> RobotsRecord:
    return replace(record, fetched=record.fetched + seconds, expires=record.expires + seconds)


# Messages about robots.txt in the list of another node from which on nothing is sent to it.
ROBOTS_INBOX_MAX = 200


class RobotsPost(MemoryOutbox):
    """Node ``own``'s messages to other nodes about robots.txt.

    ``owner`` returns the other node that owns a host, None for a host of this node. ``wall``
    returns epoch seconds.
    """

    def __init__(
        self,
        own: str,
        owner: Callable[[str], str | None],
        reaches: Callable[[str], bool],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(reaches)
        self.owner = owner
        self._own = own
        self._wall = wall

    def ask(self, node: str, number: int, url: str) -> bool:
        """Send an ask, unless the same one waits already. Return whether the node takes it."""
        return self.put(node, b"ask %d" % number, encode_ask(self._own, number, url))

    def answer(
        self,
        node: str,
        number: int,
        *,
        record: RobotsRecord | None = None,
        location: str | None = None,
    ) -> None:
        """Send an answer, as in `RobotsAnswer`."""
        kind = b"answer" if record or location else b"wait"
        message = encode_answer(number, record, location, self._wall())
        self.put(node, b"%b %d" % (kind, number), message)

"""Orders of people for hosts that other nodes own: sent there, and waited for."""

from __future__ import annotations

import asyncio
import secrets
from itertools import count
from typing import TYPE_CHECKING

from krowlspider.cluster.transport.memory_outbox import MemoryOutbox
from krowlspider.cluster.transport.order_message import VERSION, OrderAsk, OrderReply, encode_order
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from krowlspider.cluster.transport.order_message import Value

    # The fields of an order, or of its outcome.
    Plain = Mapping[str, Value]

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

    async def ask(self, node: str, who: str, name: str, fields: Plain) -> Plain:
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


def reply_to(order: OrderAsk, carry_out: Callable[[OrderAsk], Plain]) -> OrderReply:
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

"""Orders that people have given at other nodes of the cluster, for hosts that this node owns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.python.failure import Failure

from krowlspider.cluster.transport.meta import BadMessage
from krowlspider.cluster.transport.order_post import OwnerError

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from krowlspider.cluster.transport.order_message import OrderAsk
    from krowlspider.cluster.transport.order_post import Plain

# The signal of each order. Its listener takes the crawler and ``order``, an `OrderAsk`, carries it
# out, and returns the outcome. It raises as `carry_out`.
order_received = object()


def carry_out(crawler: Crawler, order: OrderAsk) -> Plain:
    """Have the listener of `order_received` carry an order out, and return the outcome.

    :raises BadMessage: it is no order
    :raises OwnerError: it cannot be carried out, or nobody listens
    """
    answers = crawler.signals.send_catch_log(
        order_received, order=order, dont_log=(BadMessage, OwnerError)
    )
    if not answers:
        raise OwnerError(
            "it takes no orders of other nodes: its extension ClusterOrders is off", 409
        )
    outcome: Plain | Failure = answers[0][1]
    if isinstance(outcome, Failure):
        outcome.raiseException()
    return outcome

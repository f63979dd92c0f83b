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

# Signal: another node sent an order. Its one listener is called with ``order``, an `OrderAsk`. It
# returns the outcome, or raises `BadMessage` or `OwnerError`.
order_received = object()


def send_order(crawler: Crawler, order: OrderAsk) -> Plain:
    """Send `order_received`, and return the outcome of its listener.

    :raises BadMessage: raised by the listener for a message that is no order
    :raises OwnerError: it cannot be carried out, or nobody listens
    """
    answers = crawler.signals.send_catch_log(
        order_received, order=order, dont_log=(BadMessage, OwnerError)
    )
    if not answers:
        raise OwnerError(
            "it takes no orders of other nodes: its extension"
            " extensions.cluster_orders.ClusterOrders is off; give the order at that node",
            409,
        )
    outcome: Plain | Failure = answers[0][1]
    if isinstance(outcome, Failure):
        outcome.raiseException()
    return outcome

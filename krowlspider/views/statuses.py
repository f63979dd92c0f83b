"""The status of HTTP for each error of an order or a question."""

from __future__ import annotations

from krowlspider.cluster.transport.order_post import OwnerError
from krowlspider.engine.steering import ForeignHostError
from krowlspider.errors import KrowlError
from krowlspider.frontier.admin.edit import UnknownHostError
from krowlspider.frontier.schedule.standing import OrderError
from krowlspider.views.line_reader import TooLongError

# The first class that an error is of decides.
_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (UnknownHostError, 404),
    (ForeignHostError, 409),
    (OrderError, 409),
    (TooLongError, 413),
    (KrowlError, 400),
    (ValueError, 400),
    (OSError, 500),
)
ERRORS = tuple(kind for kind, _ in _STATUSES)


def status_of(error: Exception) -> int:
    """Return the status of an error of ERRORS."""
    if isinstance(error, OwnerError):
        return error.status
    return next(status for kind, status in _STATUSES if isinstance(error, kind))

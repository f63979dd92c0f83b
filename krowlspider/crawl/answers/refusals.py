"""Log the hosts of fetches that the crawler has given up, a few a minute."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krowlspider.fetch import errors

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

# Failures by which the crawler limits the cost of a host. The TLS limit is logged by the
# connection, a robots.txt at a forbidden address by its middleware.
REFUSALS = (
    errors.AddressForbidden,
    errors.ConnectTimeout,
    errors.DecodeFailed,
    errors.FirstByteTimeout,
    errors.ProtocolBroken,
    errors.ProxyFailed,
    errors.TargetUnreached,
    errors.TooLarge,
    errors.TotalTimeout,
)
# Most hosts named for each kind of failure in PERIOD seconds: there may be thousands.
HOSTS = 5
PERIOD = 60.0
# Most characters of a URL and of a cause in a line: a stranger wrote them.
_URL, _CAUSE = 300, 200


class Refusals:
    """Logs each fetch that was given up, its host and the reason. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._ends = clock() + PERIOD
        self._named: dict[str, set[str]] = {}

    def log(self, host: str, url: str, error: errors.FetchError) -> None:
        """Log a host once in PERIOD seconds for each kind of failure, at most HOSTS of them."""
        now = self._clock()
        if now >= self._ends:
            self._named.clear()
            self._ends = now + PERIOD
        named = self._named.setdefault(error.kind, set())
        if host in named or len(named) == HOSTS:
            return
        named.add(host)
        last = len(named) == HOSTS
        logger.log(
            logging.WARNING if isinstance(error, errors.ProxyFailed) else logging.INFO,
            "Fetch given up: %s (host %s), %s: %s%s",
            url[:_URL],
            host,
            error.kind,
            str(error)[:_CAUSE],
            "; for a minute the next such hosts are only counted" if last else "",
        )

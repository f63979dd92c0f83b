"""Failed fetches: Scrapy's exception for each, its class, and log lines for those given up."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    ResponseDataLossError,
    StopDownload,
)

from krowlspider.fetch import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.fetch.exchange import Exchange

# Scrapy's exceptions, which retry middlewares and errbacks know. The first match counts.
_SCRAPYS: tuple[tuple[type[errors.FetchError], type[Exception]], ...] = (
    (errors.NameFailed, CannotResolveHostError),
    (errors.AddressForbidden, IgnoreRequest),
    (errors.ConnectRefused, DownloadConnectionRefusedError),
    (errors.ConnectTimeout, DownloadTimeoutError),
    (errors.FirstByteTimeout, DownloadTimeoutError),
    (errors.TotalTimeout, DownloadTimeoutError),
    (errors.TooLarge, DownloadCancelledError),
    (errors.ConnectionLost, ResponseDataLossError),
    (errors.FetchError, DownloadFailedError),
)


_NO_HTTPS = (
    errors.ConnectRefused,
    errors.ConnectTimeout,
    errors.ConnectFailed,
    errors.TLSFailed,
    errors.ConnectionLost,
    errors.ProtocolBroken,
    errors.TargetUnreached,
)

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


def as_scrapy(error: errors.FetchError) -> Exception:
    """Return Scrapy's exception for a fetch error, to be raised from it."""
    return next(made(str(error)) for kind, made in _SCRAPYS if isinstance(error, kind))


def failure_kind(error: BaseException) -> str:
    """Return one word for the reason of a failed download, for counters."""
    if isinstance(error, StopDownload):
        return "stopped"
    cause = error.__cause__
    return cause.kind if isinstance(cause, errors.FetchError) else "error"


def is_final(error: BaseException) -> bool:
    """Return whether the same fetch would fail again.

    That is so for a name that does not exist, a forbidden address, an answer of no use, and a proxy
    with a bad URL or bad credentials.
    """
    cause = error.__cause__
    if isinstance(cause, errors.ProxyFailed):
        return cause.is_final
    return is_answer(error) or isinstance(
        cause, errors.NameNotFound | errors.NameMalformed | errors.AddressForbidden
    )


def is_answer(error: BaseException) -> bool:
    """Return whether the host answered and the crawler refused the answer.

    That is so for a body over the limit, a broken content coding and a stopped download.
    """
    return isinstance(error, StopDownload) or isinstance(
        error.__cause__, errors.TooLarge | errors.DecodeFailed
    )


def shows_no_https(error: BaseException) -> bool:
    """Return whether a failed fetch over https shows that the host has none: no connection, no TLS,
    or something else than HTTP at its port."""
    return isinstance(error.__cause__, _NO_HTTPS) and answer_to(error) is None


def answer_to(error: BaseException) -> Exchange | None:
    """Return the answer that came before a download failed; None if no head had come."""
    cause = error.__cause__
    return cause.exchange if isinstance(cause, errors.FetchError) else None


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

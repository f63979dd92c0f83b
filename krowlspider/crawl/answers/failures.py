"""Failed fetches: Scrapy's exception for each, and its class."""

from __future__ import annotations

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

"""Failed fetches: their classes, which pages are fetched again, and the answers of robots
fetches.

Which failed pages are fetched again, and how often; and what is accepted after the last try.
`next_try` of the delays says when.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

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
from scrapy.utils.misc import load_object

from krowlspider.fetch import errors
from krowlspider.fetch.errors import (
    AddressForbidden,
    Exchange,
    FetchError,
    NameNotFound,
    NoCloseNotify,
)
from krowlspider.frontier.entry_queues import FELL_BACK
from krowlspider.job.in_flight import EXCUSED, End, InFlight
from krowlspider.politeness.delay import THROTTLING, THROTTLING_TIMES
from krowlspider.politeness.gemini import TEMPORARY
from krowlspider.urls.page.headers import escape_octets

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.http import Response
    from scrapy.settings import BaseSettings

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.host import RobotsFetch
    from krowlspider.frontier.robots.fetches import RobotsFetches
    from krowlspider.frontier.work_mark import WorkMark

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
    errors.CertificateRefused,
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
# Hosts whose certificate is refused that are named in one crawl.
CERTIFICATES = 1_000
# These lines are warnings: a person may have to do something.
_WARNED = (errors.CertificateRefused, errors.ProxyFailed)
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

    That is so for a name that does not exist, a forbidden address, a refused certificate, an answer
    of no use, and a proxy with a bad URL or bad credentials.
    """
    cause = error.__cause__
    if isinstance(cause, errors.ProxyFailed):
        return cause.is_final
    return is_answer(error) or isinstance(
        cause,
        errors.NameNotFound
        | errors.NameMalformed
        | errors.AddressForbidden
        | errors.CertificateRefused,
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
        self._certificates: set[str] = set()

    def log(self, host: str, url: str, error: errors.FetchError) -> None:
        """Log a host once in PERIOD seconds for each kind of failure, at most HOSTS of them.

        A host whose certificate is refused is logged once.
        """
        is_certificate = isinstance(error, errors.CertificateRefused)
        if is_certificate and (
            host in self._certificates or len(self._certificates) == CERTIFICATES
        ):
            return
        now = self._clock()
        if now >= self._ends:
            self._named.clear()
            self._ends = now + PERIOD
        named = self._named.setdefault(error.kind, set())
        if host in named or len(named) == HOSTS:
            return
        named.add(host)
        if is_certificate:
            self._certificates.add(host)
        last = len(named) == HOSTS
        logger.log(
            logging.WARNING if isinstance(error, _WARNED) else logging.INFO,
            "Fetch given up: %s (host %s), %s: %s%s",
            url[:_URL],
            host,
            error.kind,
            str(error)[:_CAUSE],
            "; for a minute the next such hosts are only counted" if last else "",
        )


# The flag of a response that may be cut, and the stat that counts them.
TRUNCATED = "truncated"
TRUNCATED_COUNT = "krowl/fetch/truncated_count"
# The flag of a response as it is in the browser.
RENDERED = "playwright"


class Retries:
    """Counts the retries of each page in the meta of its request.

    429 and 503 have a limit of their own, THROTTLING_TIMES, because the page is not their
    cause; and so has a connection that was not made in time, to a host that has answered before.
    ``dont_retry`` in the meta is honoured as in Scrapy. So is ``max_retry_times``, except
    for 429 and 503. Without RETRY_ENABLED no page is retried. ``count`` is called with the name of
    each stat to increment.
    """

    def __init__(self, settings: BaseSettings, count: Callable[[str], None]):
        is_on = settings.getbool("RETRY_ENABLED")
        self._times = settings.getint("RETRY_TIMES") if is_on else 0
        self._throttling_times = THROTTLING_TIMES if is_on else 0
        self._codes = {*map(int, settings.getlist("RETRY_HTTP_CODES")), *TEMPORARY}
        self._errors = tuple(map(load_object, settings.getlist("RETRY_EXCEPTIONS")))
        self._count = count

    def after_answer(self, status: int, in_flight: InFlight | None, meta: dict[str, Any]) -> bool:
        """Return whether to fetch a page again because of its status, and count the retry. A page
        that is throttled for the last time is dropped."""
        if in_flight is not None and in_flight.is_challenged:
            # Its host is signed for from now on, so that this happens once.
            return not meta.get("dont_retry", False)
        if status in THROTTLING:
            again = self._throttled(status, meta)
            if not again and in_flight is not None:
                in_flight.fail("throttled")
            return again
        return status in self._codes and self._again(
            meta, "retry_times", meta.get("max_retry_times", self._times), str(status)
        )

    def after_failure(
        self, error: Exception, in_flight: InFlight | None, meta: dict[str, Any]
    ) -> bool:
        """Return whether to give a failed page back to its queue; count the retry, if it is one."""
        if in_flight is None:
            return self._after_error(error, meta)
        if in_flight.end in EXCUSED:
            return True
        if in_flight.end is End.FELL_BACK:
            return False
        if self._after_error(error, meta, has_answered=in_flight.host.rate.ema > 0.0):
            return True
        lease = in_flight.lease
        if lease is not None and lease.entry.may_fall_back and self._may_lack_https(error):
            in_flight.fail(FELL_BACK, End.FELL_BACK)
        return False

    def _throttled(self, reason: int | str, meta: dict[str, Any]) -> bool:
        return self._again(meta, "throttling_times", self._throttling_times, str(reason))

    def _after_error(
        self, error: Exception, meta: dict[str, Any], *, has_answered: bool = False
    ) -> bool:
        if (status := _throttling_of(error)) is not None:
            return self._throttled(status, meta)
        # A name that does not exist parks its host, so the page is retried later.
        final = is_final(error) and not isinstance(error.__cause__, NameNotFound)
        if final or not isinstance(error, self._errors):
            return False
        limit, kind = meta.get("max_retry_times", self._times), failure_kind(error)
        if has_answered and limit and isinstance(error.__cause__, errors.ConnectTimeout):
            return self._throttled(kind, meta)
        return self._again(meta, "retry_times", limit, kind)

    def is_last(self, error: Exception, meta: dict[str, Any]) -> bool:
        """Return whether `after_failure` will not fetch a page again, without counting anything."""
        limit = meta.get("max_retry_times", self._times)
        is_over = meta.get("retry_times", 0) >= limit or meta.get("dont_retry", False)
        return is_over or not isinstance(error, self._errors)

    def _may_lack_https(self, error: Exception) -> bool:
        """Return whether a failure after the last retry may mean that a host has no https."""
        is_transport = isinstance(error, self._errors) and not is_answer(error)
        return is_transport and _throttling_of(error) is None

    def _again(self, meta: dict[str, Any], counter: str, limit: int, reason: str) -> bool:
        times = meta.get(counter, 0) + 1
        if times > limit or meta.get("dont_retry", False):
            self._count("retry/max_reached")
            return False
        meta[counter] = times
        self._count("retry/count")
        self._count(f"retry/reason_count/{reason}")
        return True


def _throttling_of(error: Exception) -> int | None:
    """Return the status of a throttling answer whose body could not be read, else None."""
    answer = answer_to(error)
    return answer.status if answer is not None and answer.status in THROTTLING else None


class LastTries:
    """Accepts an answer over TLS without length and without close_notify at the last try, as curl
    and Scrapy do: a cut answer is seldom cut at each try. ``count`` is as in `Retries`."""

    def __init__(self, settings: BaseSettings, count: Callable[[str], None]):
        self._retries = Retries(settings, count)
        self._robots_retries = settings.getint("RETRY_TIMES")
        self._count = count
        self._is_logged = False

    def accepted(
        self, error: FetchError, in_flight: InFlight, meta: dict[str, Any]
    ) -> Exchange | None:
        """Return the answer of a failed fetch if it is to be accepted, and count it."""
        answer = error.exchange
        if answer is None or not isinstance(error, NoCloseNotify):
            return None
        # What matters of a throttling answer is its head.
        if answer.status not in THROTTLING and not self._is_last(error, in_flight, meta):
            return None
        self._count(TRUNCATED_COUNT)
        if not self._is_logged:
            self._is_logged = True
            logger.info(
                "%s: accepted after the last try, and marked as truncated: its server ends TLS"
                " without close_notify and names no length, so it may be cut. Further ones are"
                " counted as %s",
                in_flight.url,
                TRUNCATED_COUNT,
            )
        return answer

    def _is_last(self, error: FetchError, in_flight: InFlight, meta: dict[str, Any]) -> bool:
        if (fetch := in_flight.robots_fetch) is not None:
            return fetch.retries >= self._robots_retries
        return self._retries.is_last(as_scrapy(error), meta)


# Robots fetches to a forbidden address that are logged; further ones are only counted.
_WARNINGS = 5


class RobotsAnswers:
    """Hands the ends of robots fetches on, under the mark of their host.

    ``charge`` is called with the request in flight and the seconds that reading its answer took,
    ``count`` with the name of each stat to count.
    """

    def __init__(
        self,
        fetches: RobotsFetches,
        frontier: Frontier,
        mark: WorkMark,
        charge: Callable[[InFlight, float], None],
        count: Callable[[str], None],
    ):
        self._fetches = fetches
        self._frontier = frontier
        self._mark = mark
        self._charge = charge
        self._count = count
        self._warned = 0

    def answered(self, in_flight: InFlight, robots_fetch: RobotsFetch, response: Response) -> None:
        """Record an answer; have one that asks for a signature fetched again."""
        self._count("robotstxt/response_count")
        self._frontier.counters["done/robots"] += 1
        self._count(f"robotstxt/response_status_count/{response.status}")
        if in_flight.is_challenged:
            self._fetches.queue(robots_fetch)
            return
        location = response.headers.get(b"Location")
        target = None if location is None else escape_octets(location)
        begun = self._frontier.now()
        mark = in_flight.mark(self._frontier.queues)
        args = robots_fetch, response.status, response.body, target
        self._mark.during(mark, self._fetches.answered, *args)
        self._charge(in_flight, self._frontier.now() - begun)

    def failed(self, in_flight: InFlight, robots_fetch: RobotsFetch, error: Exception) -> None:
        """Record a failure."""
        if in_flight.end is End.FELL_BACK:
            # It is over: what waited for it goes on without https.
            return
        cause = error.__cause__
        self._count("robotstxt/exception_count")
        if isinstance(cause, AddressForbidden):
            self._warn(robots_fetch, cause)
        if in_flight.end in EXCUSED:
            self._fetches.queue(robots_fetch)
        else:
            final = in_flight.defers or is_final(error)
            self._fetches.failed(robots_fetch, final=final)

    def _warn(self, robots_fetch: RobotsFetch, cause: AddressForbidden) -> None:
        self._warned += 1
        if self._warned <= _WARNINGS:
            logger.warning(
                "%s stays queued and is not fetched: %s. %s",
                robots_fetch.host.name,
                cause,
                cause.remedy,
            )

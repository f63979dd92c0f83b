"""Every way a fetch can fail, the record of one fetch, and the clock by which hosts are charged."""

from __future__ import annotations

import asyncio
import errno
import time
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from krowlspider.fetch.memory import StoredResponse

Headers = list[tuple[bytes, bytes]]


class Peer(NamedTuple):
    """The other end of a connection; with TLS also version and cipher, and certificate in DER.

    ``address`` is empty behind a proxy, which does not tell it.
    """

    address: str
    tls: tuple[str, str] | None = None
    certificate: bytes | None = None


class Dialled(NamedTuple):
    """Seconds that opening a connection took: name look-up, TCP, and TLS (0 without it)."""

    name: float
    connect: float
    tls: float = 0.0


class Times(NamedTuple):
    """When an exchange began, and how long its parts took in seconds of a `LoopClock`.

    ``started`` is the epoch time at which the request began to be sent. ``latency`` is from there
    to the first byte of any answer, ``duration`` from the call of ``fetch()`` to the end.
    ``dialled`` is None if the connection had served an earlier exchange.
    """

    started: float
    latency: float
    duration: float
    dialled: Dialled | None


class Exchange(Struct, eq=False):
    """One request and its final response, verbatim for the archive and parsed for the crawler.

    ``response_bytes`` are without interim (1xx) responses and bytes after the end. The first
    ``head_length`` of them are status line, headers and the blank line. ``version`` is ``1.0`` or
    ``1.1``. ``headers`` have the server's own case. ``body`` has its content coding, and no
    transfer coding: the payload of WARC 1.1, section 6.3.2.

    ``truncated`` is empty, or why only a part was received, as a value of WARC-Truncated:
    ``length``, ``time`` or ``disconnect``.

    A large response is ``stored`` in a file; then ``response_bytes`` and ``body`` are empty.
    """

    url: str
    request_bytes: bytes
    response_bytes: bytes
    head_length: int
    status: int
    version: str
    headers: Headers
    body: bytes
    truncated: str
    peer: Peer
    times: Times
    stored: StoredResponse | None = None

    @property
    def response_size(self) -> int:
        """The bytes of the response, wherever they are."""
        return len(self.response_bytes) if self.stored is None else self.stored.size


class StopFetch(Exception):
    """Raised by an observer to end the fetch; what was received is kept."""


class Observer(Protocol):
    """Takes a response's head and the pieces of its body, without transfer coding.

    Called on the event loop between reads; must not block, and may raise StopFetch.
    """

    def headers(self, status: int, headers: Headers) -> None: ...
    def data(self, chunk: bytes) -> None: ...


# Errors of a process or machine that lacks descriptors, buffers or memory for a socket.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class FetchError(Exception):
    """A fetch failed. ``exchange`` is the partial exchange, if a head had been parsed."""

    kind: ClassVar[str] = "fetch"
    exchange: Exchange | None = None

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind


class LocalExhausted(FetchError, kind="local"):
    """This machine lacks a descriptor, buffer or memory: nothing is known of the host."""


class NetworkDown(FetchError, kind="network_down"):
    """This machine has no network: no route at all, no interface, no address to send from."""


class NameFailed(FetchError, kind="dns_error"):
    """A name has no address; each subclass names the cause.

    The class itself is raised when the resolver was closed meanwhile, or for another error of
    c-ares.
    """


class NameNotFound(NameFailed, kind="dns_nxdomain"):
    """The DNS answered that the name does not exist (NXDOMAIN). No other class means this."""


class NameWithoutAddress(NameFailed, kind="dns_no_address"):
    """The name exists, but has neither an IPv4 nor an IPv6 address (NODATA)."""


class NameMalformed(NameFailed, kind="dns_bad_name"):
    """A label is empty or over 63 bytes, or the name over 255: RFC 1035, section 2.3.4."""


class NameServerFailed(NameFailed, kind="dns_servfail"):
    """Name servers answered with SERVFAIL, REFUSED or NOTIMP, or with an invalid answer.

    It is raised too if they cannot be reached for this name, but answer another question: they
    refuse TCP after a truncated answer, for instance.
    """


class NameTimeout(NameFailed, kind="dns_timeout"):
    """No name server answered in time."""


class NameServersDown(NameFailed, kind="dns_down"):
    """No name server can be reached: their hosts refuse, or there is no route to them.

    A question about another name has confirmed it.
    """


# The kinds of failure by which there is no such host.
UNKNOWN_NAMES = (NameNotFound.kind, NameWithoutAddress.kind, NameMalformed.kind)


class AddressBusy(Exception):
    """A request was not sent: too many are in flight to ``address``. No fetch has failed."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} has as many requests as it may")
        self.address = address


class AddressForbidden(FetchError, kind="address_forbidden"):
    """The address is neither of the public internet nor allowed by configuration."""

    remedy: ClassVar[str] = "KROWL_ALLOW_ADDRESSES opens networks that are not public."


class PortForbidden(AddressForbidden, kind="port"):
    """The port belongs to another protocol, or links led to too many ports of the address."""

    remedy = "See KROWL_PORTS."


class ConnectRefused(FetchError, kind="connect_refused"):
    """Nothing listens at the port."""


class ConnectTimeout(FetchError, kind="connect_timeout"):
    """No connection, TLS included, was made within the connect timeout."""


class ConnectFailed(FetchError, kind="connect_failed"):
    """The network refused the connection: host unreachable, filtered, or an invalid address.

    Host unreachable is not NetworkDown: a router near the host reports it with the same error as
    our own machine without its gateway. So is no route for IPv6, which many machines never have.
    """


class TLSFailed(FetchError, kind="tls"):
    """The TLS handshake failed, was cut short or reset, or TLS caused too much work at any time."""


class ProxyFailed(FetchError, kind="proxy"):
    """A proxy could not be reached, or broke its protocol: nothing is known of the host."""

    is_final: ClassVar[bool] = False
    """Whether the next try would fail in the same way."""


class ProxyInvalid(ProxyFailed, kind="proxy_url"):
    """The URL of a proxy cannot be used."""

    is_final = True


class ProxyDenied(ProxyFailed, kind="proxy_auth"):
    """A proxy refused the credentials, or demands some: status 407 of HTTP."""

    is_final = True


class ProxyClosed(ProxyFailed, kind="proxy_closed"):
    """A proxy was reached, and ended the connection in place of an answer. It may do so because it
    does not reach the host."""


class ProxyRefused(ProxyFailed, kind="proxy_refused"):
    """A proxy does not connect to the target, by its own rules."""


class TargetUnreached(FetchError, kind="proxy_target"):
    """A proxy tried to connect to the target, and could not."""


class FirstByteTimeout(FetchError, kind="first_byte_timeout"):
    """The request was sent, and no byte came back in time."""


class TotalTimeout(FetchError, kind="total_timeout"):
    """The whole fetch took longer than allowed."""


class TooSlow(TotalTimeout, kind="too_slow"):
    """The answer had begun, but came at less than the minimum rate."""


class ConnectionLost(FetchError, kind="disconnect"):
    """The connection ended before the response did, or before the request was sent."""


class NoCloseNotify(ConnectionLost, kind="no_close_notify"):
    """An answer over TLS that names no length ended with TCP, without close_notify.

    Many servers end so. The answer may be whole or cut (RFC 9112, section 9.8).
    """


class ConnectionReset(ConnectionLost, kind="reset"):
    """The connection was reset (RST), while connecting or within an exchange."""


class ProtocolBroken(FetchError, kind="protocol"):
    """The data from the server is not HTTP/1, or cannot be framed without guessing."""


class CertificateRefused(FetchError, kind="tls_certificate"):
    """The server shows another certificate than before, and its host does not accept that."""


class TooLarge(FetchError, kind="too_large"):
    """The body is larger than the cap, as received or once decoded."""


class DecodeFailed(FetchError, kind="decode"):
    """The body is not in its Content-Encoding, or decoding costs more than its bounds."""


# Seconds between two beats. A late beat shows that the loop is held.
INTERVAL = 0.05
# Seconds by which a beat may be late in ordinary work. Only time beyond it is not counted.
LATE = 0.1
# Seconds of a hold after which servers may have closed idle connections unnoticed.
LONG = 1.0
# An event loop may fire a timer early by its clock's resolution; uvloop's is 1 ms.
_EARLY = 0.002


class LoopClock:
    """Counts the seconds in which ``loop`` serves its sockets.

    While one callback holds the loop, answers stay unread, so that time is not counted. Without
    `start` all time is counted. ``clock`` returns monotonic seconds. It must not be the loop's own
    clock: that of uvloop stands still during each callback.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.loop = loop
        self._clock = clock
        # The seconds not counted so far.
        self._held = 0.0
        self._due = inf
        self._beat: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due = self._clock() + INTERVAL
        self._beat = self.loop.call_later(INTERVAL, self._met)

    def stop(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
        self._due = inf

    def time(self) -> float:
        """Return seconds that never go back; only differences have a meaning."""
        now = self._clock()
        late = now - self._due - LATE
        return now - self._held - late if late > 0.0 else now - self._held

    @property
    def held_long(self) -> bool:
        """Return whether the loop is held for longer than idle connections surely last."""
        return self._clock() - self._due > LONG

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback`` at ``when`` of this clock, after data that came during a hold."""
        return Timer(self, when, callback)

    @asynccontextmanager
    async def timeout_at(self, when: float) -> AsyncIterator[None]:
        """Limit a block like `asyncio.timeout_at`, by this clock.

        :raises TimeoutError: the block ran past ``when``
        """
        async with asyncio.timeout(None) as limit:
            timer = self.call_at(when, partial(limit.reschedule, 0.0))
            try:
                yield
            finally:
                timer.cancel()

    def _met(self) -> None:
        now = self._clock()
        self._held += max(0.0, now - self._due - LATE)
        self._due = now + INTERVAL
        self._beat = self.loop.call_later(INTERVAL, self._met)


class Timer:
    """A pending callback, made by `LoopClock.call_at`."""

    __slots__ = ("_callback", "_clock", "_handle", "_when")

    def __init__(self, clock: LoopClock, when: float, callback: Callable[[], object]) -> None:
        self._clock = clock
        self._when = when
        self._callback = callback
        self._handle = clock.loop.call_later(when - clock.time(), self._met)

    def cancel(self) -> None:
        self._handle.cancel()

    def _met(self) -> None:
        left = self._when - self._clock.time()
        if left > _EARLY:
            self._handle = self._clock.loop.call_later(left, self._met)
        else:
            self._callback()

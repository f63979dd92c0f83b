"""A server of gRPC on the running event loop, with its limits: each service is added to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from hmac import compare_digest
from typing import TYPE_CHECKING, Any
from weakref import finalize

from krowlspider.errors import SettingsError, need

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from krowlspider.rpc.options import Options

    Handler: TypeAlias = Any

# Bytes of a message, in each direction.
MESSAGE_MAX = 4 * 1024 * 1024
# Calls of a kind that run at a time: streams that the client too keeps open, other streams, and
# calls that are none. So clients that keep streams open do not keep others out. A few more may be
# read.
CALLS_MAX = 16
_READ_MAX = 64
# Connections, and calls at a time on one of them.
_CONNECTIONS_MAX = 64
_CALLS_OF_ONE = 32
# Seconds of a call that is no stream; a client may give less.
DEADLINE = 30.0
# Seconds for calls to end when the server stops.
_GRACE = 1.0
# Milliseconds after which a silent client is asked whether it is there, and has to answer.
_PING, _PONG = 60_000, 20_000
# Milliseconds for a connection to begin, and for which one may be without a call: those that are
# only held keep others out.
_HANDSHAKE, _IDLE = 5_000, 60_000
# The service that everybody may ask: whoever balances load has no token.
_HEALTH = "/grpc.health.v1.Health/"
_STREAMS = ("unary_stream", "stream_unary", "stream_stream")
_NO_TOKEN = "give the token of the crawl in the metadata: authorization: Bearer TOKEN"  # noqa: S105

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_MAX),
    ("grpc.max_send_message_length", MESSAGE_MAX),
    ("grpc.max_concurrent_streams", _CALLS_OF_ONE),
    ("grpc.max_allowed_incoming_connections", _CONNECTIONS_MAX),
    ("grpc.max_metadata_size", 8192),
    ("grpc.server_handshake_timeout_ms", _HANDSHAKE),
    ("grpc.max_connection_idle_ms", _IDLE),
    ("grpc.keepalive_time_ms", _PING),
    ("grpc.keepalive_timeout_ms", _PONG),
    ("grpc.http2.max_ping_strikes", 2),
    # Otherwise a second server would share the port, and get half of the calls.
    ("grpc.so_reuseport", 0),
)


class GrpcServer:
    """A server with health service and reflection. Before `start`, add services to ``aio``, the
    server of grpc itself, and name each with `offer`.

    ``counts`` has the calls that were begun by ``call``, and those refused by ``token``, ``limit``
    (too many at a time), ``deadline`` (over DEADLINE) and ``unread`` (the message was too large, or
    the client gone before it was read). Services add their own reasons.

    :raises KrowlError: the extra grpc is not installed
    """

    def __init__(self, options: Options):
        self._options = options
        self._grpc = need("grpc", "grpc")
        need("grpc.aio", "grpc")
        self.counts: Counter[str] = Counter()
        self._names: list[str] = []
        guard = _guard(self._grpc, options.token.encode(), self.counts)
        self.aio = self._grpc.aio.server(
            interceptors=(guard,), options=_CHANNEL_OPTIONS, maximum_concurrent_rpcs=_READ_MAX
        )
        self._health = need("grpc_health.v1.health", "grpc").aio.HealthServicer()

    def offer(self, name: str) -> None:
        """Have reflection and the health service name a service: its full name in the proto."""
        self._names.append(name)

    async def start(self) -> int:
        """Listen; return the port. The services do not serve yet for the health service.

        :raises SettingsError: the port is taken, or the files of TLS cannot be read
        """
        grpc, health = self._grpc, need("grpc_health.v1.health_pb2_grpc", "grpc")
        health.add_HealthServicer_to_server(self._health, self.aio)
        reflection = need("grpc_reflection.v1alpha.reflection", "grpc")
        names = (*self._names, "grpc.health.v1.Health", reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self.aio)
        await self.set_ready(is_ready=False)
        options = self._options
        try:
            if options.cert:
                key, cert, client_ca = options.files()
                credentials = grpc.ssl_server_credentials(
                    [(key, cert)], client_ca, require_client_auth=client_ca is not None
                )
                port: int = self.aio.add_secure_port(options.address, credentials)
            else:
                port = self.aio.add_insecure_port(options.address)
        except (OSError, RuntimeError) as error:
            raise SettingsError(
                f"KROWL_GRPC={options.address} cannot be listened at: {error}"
            ) from error
        await self.aio.start()
        return port

    async def set_ready(self, *, is_ready: bool) -> None:
        """Have the health service say whether the services serve."""
        status = need("grpc_health.v1.health_pb2", "grpc").HealthCheckResponse
        for name in ("", *self._names):
            await self._health.set(name, status.SERVING if is_ready else status.NOT_SERVING)

    async def stop(self) -> None:
        """Take no more calls, and end those that run after a second."""
        await self._health.enter_graceful_shutdown()
        await self.aio.stop(_GRACE)


def _guard(grpc: Any, token: bytes, counts: Counter[str]) -> Any:
    """Return the interceptor of all calls. Its class needs gRPC, which is not loaded before."""

    class Guard(grpc.aio.ServerInterceptor):
        def __init__(self) -> None:
            self._running: Counter[tuple[bool, bool]] = Counter()

        async def intercept_service(
            self, continuation: Callable[[Any], Awaitable[Handler]], call: Any
        ) -> Handler:
            counts["call"] += 1
            if token and not call.method.startswith(_HEALTH) and not self._has_token(call):
                counts["token"] += 1
                return _refusal(grpc, grpc.StatusCode.UNAUTHENTICATED, _NO_TOKEN)
            handler = await continuation(call)
            if handler is None:
                return None
            kind = handler.request_streaming, handler.response_streaming
            if self._running[kind] >= CALLS_MAX:
                counts["limit"] += 1
                why = f"{CALLS_MAX} calls of this kind run already: try again later"
                return _refusal(grpc, grpc.StatusCode.RESOURCE_EXHAUSTED, why)
            self._running[kind] += 1
            return _bounded(grpc, handler, counts, partial(self._end, kind))

        def _has_token(self, call: Any) -> bool:
            given = dict(call.invocation_metadata or ()).get("authorization", "")
            kind, _, text = str(given).partition(" ")
            return kind.lower() == "bearer" and compare_digest(text.strip().encode(), token)

        def _end(self, kind: tuple[bool, bool]) -> None:
            self._running[kind] -= 1

    return Guard()


def _refusal(grpc: Any, code: Any, why: str) -> Handler:
    """Return the handler of a call that is refused. As that of a stream it reads no message."""

    async def refuse(_: Any, context: Any) -> None:
        await context.abort(code, why)

    return grpc.stream_stream_rpc_method_handler(refuse)


def _bounded(grpc: Any, handler: Handler, counts: Counter[str], end: Callable[[], None]) -> Handler:
    """Return the handler of one call, which ends in time if it is no stream. ``end`` is called when
    the call has ended, though its message may never have been read."""
    if (given := handler.unary_unary) is None:
        field = next(each for each in _STREAMS if getattr(handler, each) is not None)
        # A generator stays one within a partial.
        stream = partial(getattr(handler, field))
        finalize(stream, end).atexit = False
        return handler._replace(**{field: stream})
    begun = [False]

    async def answer(request: Any, context: Any) -> Any:
        begun[0] = True
        try:
            async with asyncio.timeout(DEADLINE):
                return await given(request, context)
        except TimeoutError:
            counts["deadline"] += 1
            why = f"not answered within {DEADLINE:g} s: it may be carried out all the same"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, why)

    def ended() -> None:
        counts["unread"] += not begun[0]
        end()

    finalize(answer, ended).atexit = False
    return handler._replace(unary_unary=answer)

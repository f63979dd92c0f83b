"""A client of the control service, for programs in Python: docs/grpc.md has examples."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from krowlspider.errors import KrowlError, need

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Seconds between two tries of a stream that has broken off.
_AGAIN = 1.0


@contextmanager
def connect(
    address: str, token: str, *, ca: str = "", cert: str = "", key: str = ""
) -> Iterator[Any]:
    """Give the stub of CrawlService at HOST:PORT, whose calls have the token, until the block ends.

    ``ca`` is a file in PEM that has signed the server's certificate; "" connects without TLS.
    ``cert`` and ``key`` are those of this client, if the server asks for them.

    :raises KrowlError: the extra grpc is not installed, or one of these files needs another
    """
    if bool(cert) != bool(key) or (cert and not ca):
        raise KrowlError("cert and key need each other and ca: give all three, or ca alone")
    grpc = need("grpc", "grpc")
    stubs = need("krowlspider.rpc.generated.krowl_pb2_grpc", "grpc")
    if ca:
        own = [Path(file).read_bytes() if file else None for file in (key, cert)]
        credentials = grpc.ssl_channel_credentials(Path(ca).read_bytes(), *own)
        channel = grpc.secure_channel(address, credentials)
    else:
        channel = grpc.insecure_channel(address)
    with channel:
        yield stubs.CrawlServiceStub(grpc.intercept_channel(channel, _with_token(grpc, token)))


def results(
    crawl: Any, *, hosts: Sequence[str] = (), resume_token: str = "", from_start: bool = False
) -> Iterator[Any]:
    """Yield the messages of StreamResults. After a break, go on behind the last one, however long
    the server is away.

    Keep the ``resume_token`` of the last message for which everything is done: a later call goes on
    behind it.

    :raises grpc.RpcError: the call is refused, or does not begin at the first try
    """
    grpc = need("grpc", "grpc")
    request = need("krowlspider.rpc.generated.krowl_pb2", "grpc").StreamResultsRequest
    broken = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
    has_begun = False
    while True:
        asked = request(hosts=hosts, resume_token=resume_token, from_start=from_start)
        try:
            for message in crawl.StreamResults(asked):
                has_begun = True
                yield message
                resume_token = message.resume_token
        except grpc.RpcError as error:
            # A wrong address or certificate would be tried for ever, without a word.
            if not has_begun or error.code() not in broken:
                raise
        time.sleep(_AGAIN)


def _with_token(grpc: Any, token: str) -> Any:
    class WithToken(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
        def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
            return go_on(_Details(details, token), request)

        def intercept_unary_stream(self, go_on: Any, details: Any, request: Any) -> Any:
            return go_on(_Details(details, token), request)

    return WithToken()


class _Details:
    """What a call has, with a token in its metadata."""

    def __init__(self, details: Any, token: str):
        self.method = details.method
        self.timeout = details.timeout
        self.metadata = [*(details.metadata or ()), ("authorization", f"Bearer {token}")]
        self.credentials = details.credentials
        self.wait_for_ready = details.wait_for_ready
        self.compression = details.compression

"""HTTP servers that are programs of their own, until a signal."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import TYPE_CHECKING

from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from krowlspider.job.monitoring.endpoint import Route

# Seconds in which a client takes a piece of an answer.
TIME_LIMIT = 30.0
# Connections at a time: a browser has six to a server, and several may read.
CLIENTS_MAX = 64


def serve(
    host: str,
    port: int,
    make: Callable[[str], Mapping[str, Route]],
    *,
    listens: Callable[[str], object],
    way: str,
) -> None:
    """Serve the routes that ``make`` returns for the server's URL, until SIGINT, SIGTERM or SIGHUP.

    ``listens`` is called with the URL. ``way`` says how to give another address.

    :raises KrowlError: the address cannot be listened at
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        raise KrowlError(
            f"nothing can listen at port {port} of {host}: {reason}; give another {way}"
        ) from None
    asyncio.run(_serve(host, listening, make, listens))


async def _serve(
    host: str,
    listening: socket.socket,
    make: Callable[[str], Mapping[str, Route]],
    listens: Callable[[str], object],
) -> None:
    # aiohttp is slow to import.
    from krowlspider.job.monitoring.access import HostNames  # noqa: PLC0415
    from krowlspider.job.monitoring.endpoint import Endpoint  # noqa: PLC0415

    address, port = listening.getsockname()[:2]
    url = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
    endpoint = Endpoint(make(url), TIME_LIMIT, lambda _: None, HostNames.of(host), CLIENTS_MAX)
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    listening.setblocking(False)
    await endpoint.listen(listening)
    listens(url)
    await ended.wait()
    endpoint.close()

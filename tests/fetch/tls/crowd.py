"""A real TLS server that gives its many clients work for more than one turn of their loop."""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from tests.fetch.tls.records import Records
from tests.fetch.web import serve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from krowlspider.fetch.errors import Exchange
    from tests.fetch.web import Peer

# Their handshakes take longer than `krowlspider.fetch.tls.TURN`.
CLIENTS = 200
BODY = random.Random(1).randbytes(200_000)
_SECONDS = 15


class Crowd:
    """A server in a thread. It waits until the clients' loop stands still, which goes on when one
    half has the end of the handshake and an answer in its socket, the other half the start."""

    def __init__(self) -> None:
        self.port = 0
        self.is_listening = threading.Event()
        self._all_wait = threading.Event()
        self._is_held = threading.Event()
        self._all_sent = threading.Event()
        self.stop: Callable[[], object] = lambda: None

    async def serve(self, context: ssl.SSLContext, answer: bytes) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        waiting, numbers = asyncio.Barrier(CLIENTS), count()

        async def send_together(peer: Peer, data: bytes) -> None:
            if await waiting.wait() == 0:
                self._all_wait.set()
                self._is_held.wait(_SECONDS)
            await waiting.wait()
            # The socket takes what it can before this returns, and the rest as it is read.
            sending = loop.create_task(peer.send(data))
            await asyncio.sleep(0)
            if await waiting.wait() == 0:
                self._all_sent.set()
            await sending

        async def script(peer: Peer) -> None:
            records = Records(peer, context)
            is_behind = next(numbers) % 2 == 1
            if is_behind:
                await send_together(peer, await records.first_flight())
            data = await records.shake_hands() + records.say(answer) + records.close_notify()
            await (peer.send(data) if is_behind else send_together(peer, data))
            await peer.gone()

        async with serve(script) as web:
            self.port = web.port
            self.stop = lambda: loop.call_soon_threadsafe(stopped.set)
            self.is_listening.set()
            await stopped.wait()

    async def visit(self, fetch: Callable[[int], Awaitable[Exchange]]) -> set[bytes]:
        """Return the answers that ``fetch`` receives, given the number of each client."""

        async def hold_the_loop() -> None:
            assert await asyncio.to_thread(self._all_wait.wait, _SECONDS)
            self._is_held.set()
            assert self._all_sent.wait(_SECONDS)

        async with asyncio.TaskGroup() as group:
            group.create_task(hold_the_loop())
            tasks = [group.create_task(fetch_one(fetch, n)) for n in range(CLIENTS)]
        return {task.result() for task in tasks}


async def fetch_one(fetch: Callable[[int], Awaitable[Exchange]], number: int) -> bytes:
    return (await fetch(number)).response_bytes


@contextmanager
def crowd(context: ssl.SSLContext, answer: bytes) -> Iterator[Crowd]:
    """Serve ``answer`` behind the server's last flight, before any request.

    With TLS 1.2, where the last flight of a handshake is the server's.
    """
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    made = Crowd()
    thread = threading.Thread(target=lambda: asyncio.run(made.serve(context, answer)))
    thread.start()
    try:
        assert made.is_listening.wait(_SECONDS)
        yield made
    finally:
        made.stop()
        thread.join(_SECONDS)

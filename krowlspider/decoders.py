"""Content codings of pages undone: at once what takes little, the rest in a thread, while the event
loop goes on."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from krowlspider.fetch.decode import Decoding

if TYPE_CHECKING:
    from krowlspider.fetch.memory import Held
    from krowlspider.frontier.poison import WorkMark

# CPU seconds for which a body is decoded on the event loop, and then to the end of a step: 10 ms
# with the costliest of codings. An ordinary page takes 0.02 ms, one of 1 MB 1 ms.
_ON_LOOP = 0.002


class Decoders:
    """One thread, so that hostile bodies wait for one another, and for no page that is decoded at
    once.

    ``mark`` names the page whose body is decoded on the loop, ``thread_mark`` the one in the
    thread.
    """

    def __init__(self, mark: WorkMark, thread_mark: WorkMark):
        self._mark = mark
        self._thread_mark = thread_mark
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decoder")

    async def decode(
        self, page: bytes, body: bytes, encodings: bytes, cap: int, held: Held
    ) -> bytes:
        """The body of the page that ``page`` marks (`page_mark`) without its codings, which is what
        is ``held`` from now on. Raises as `Decoding` does."""
        decoding = Decoding(body, encodings, cap)
        if not self._mark.during(page, decoding.run, _ON_LOOP):
            loop = asyncio.get_running_loop()
            if held.must_wait(cap):
                room = loop.create_future()
                held.wait(cap, partial(_grant, room))
                await room
            held.become(held.size + cap)
            await loop.run_in_executor(self._thread, self._thread_mark.during, page, decoding.run)
        held.become(len(decoding.body))
        return decoding.body

    def close(self) -> None:
        """Begin nothing more. What is being decoded ends within its CPU bound."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._thread_mark.close()


def _grant(room: asyncio.Future[None]) -> None:
    # Whoever awaited it may have been cancelled meanwhile.
    if not room.done():
        room.set_result(None)

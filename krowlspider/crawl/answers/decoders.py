"""Decode the content codings of pages, and read their text.

A cheap body is decoded immediately. Others go to a thread, so that the event loop goes on.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from krowlspider.fetch.http.decode import Decoding

if TYPE_CHECKING:
    from krowlspider.fetch.memory import FetchMemory
    from krowlspider.frontier.work_mark import WorkMark

# CPU seconds for which a body is decoded on the event loop. The step under way is finished, so the
# costliest codings may take 10 ms.
_ON_LOOP = 0.002


class Decoders:
    """Decodes bodies on the event loop, and costly ones in one thread.

    With one thread, hostile bodies wait for one another and delay no page that is decoded
    immediately. ``mark`` marks the page whose body is decoded on the event loop, ``thread_mark``
    the one in the thread.
    """

    def __init__(self, mark: WorkMark, thread_mark: WorkMark):
        self._mark = mark
        self._thread_mark = thread_mark
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decoder")

    async def decode(
        self,
        page: bytes,
        body: bytes,
        encodings: bytes,
        cap: int,
        memory: FetchMemory,
        *,
        cuts: bool = False,
    ) -> bytes:
        """Return the body of a page without its content codings.

        ``page`` is the page's mark (`InFlight.mark`). From now on ``memory`` counts the decoded
        body. ``cap`` is the most bytes that a coding may yield; with ``cuts``, the rest is left
        out.

        :raises TooLarge: as of `Decoding`
        :raises DecodeFailed: as of `Decoding`
        """
        decoding = Decoding(body, encodings, cap, cuts=cuts)
        if not self._mark.during(page, decoding.run, _ON_LOOP):
            loop = asyncio.get_running_loop()
            if memory.must_wait(cap):
                room = loop.create_future()
                memory.wait(cap, partial(_grant, room))
                await room
            memory.resize(memory.size + cap)
            await loop.run_in_executor(self._thread, self._thread_mark.during, page, decoding.run)
        memory.resize(len(decoding.body))
        return decoding.body

    async def digest(self, page: bytes, body: bytes, media_type: str) -> bytes:
        """Return what `text_digest` returns for the decoded body of a page, in the thread."""
        # Crawls that fetch no page again do not load it.
        from krowlspider.recrawl.text import text_digest  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        during = self._thread_mark.during
        return await loop.run_in_executor(self._thread, during, page, text_digest, body, media_type)

    def close(self) -> None:
        """Begin nothing more. A body that is being decoded ends within its CPU limit."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._thread_mark.close()


def _grant(room: asyncio.Future[None]) -> None:
    # The task that awaited it may have been cancelled meanwhile.
    if not room.done():
        room.set_result(None)

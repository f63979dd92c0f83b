"""A copy of a running crawl's frontier, for ``scrapy sql``, which opens it in a process of its own.

Tables of LevelDB are linked, so the copy takes milliseconds of the crawl, however long the queue.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from aiohttp import web

from krowlspider.job.snapshots import COPY, copy_frontier
from krowlspider.views.live_page import answer_of, body_of, failed, in_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import LevelStore
    from krowlspider.job.monitoring.endpoint import Route

# Seconds after which a copy is removed by the next one: its reader was killed.
_OLD = 3600.0
# Seconds that a client waits for the copy of another one.
_TURN = 2.0


def copy_routes(
    jobdir: Callable[[], Path], store: Callable[[], LevelStore], token: str
) -> dict[str, Route]:
    """Return what answers a POST: ``{"folder": ...}``, in which the copy is. The client removes
    it."""
    copies = FrontierCopies(jobdir, store, token.encode())
    return {"POST /api/v1/frontier-copy": copies.answer}


class FrontierCopies:
    """Makes one copy at a time."""

    def __init__(self, jobdir: Callable[[], Path], store: Callable[[], LevelStore], token: bytes):
        self._jobdir = jobdir
        self._store = store
        self._token = token
        self._turn = asyncio.Lock()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await body_of(request, self._token)
        if isinstance(body, web.Response):
            return body
        try:
            await asyncio.wait_for(self._turn.acquire(), _TURN)
        except TimeoutError:
            return failed(503, "the frontier is being copied for another scrapy sql: try again")
        made = asyncio.ensure_future(asyncio.to_thread(self._copy))
        made.add_done_callback(lambda _: self._turn.release())
        return await answer_of(partial(in_time, asyncio.shield(made), request))

    def _copy(self) -> dict[str, str]:
        """:raises OSError: the disk failed or has no room
        :raises StoreError: the frontier has failed
        """
        jobdir = self._jobdir()
        for path in jobdir.glob(f"{COPY}*"):
            if time.time() - path.stat().st_mtime > _OLD:
                shutil.rmtree(path, ignore_errors=True)
        folder = Path(mkdtemp(prefix=COPY, dir=jobdir)).resolve()
        try:
            copy_frontier(self._store(), folder / "frontier")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return {"folder": str(folder)}

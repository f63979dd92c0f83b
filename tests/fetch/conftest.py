from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.fetch.web import Run

# Far above what any test takes, below the timeout of pytest, which uvloop does not let through.
BOUND = 20


async def bounded(main: Coroutine[Any, Any, Any]) -> Any:
    async with asyncio.timeout(BOUND):
        return await main


# A crawl runs on uvloop, unless ASYNCIO_EVENT_LOOP says otherwise.
@pytest.fixture(params=[pytest.param("asyncio", marks=pytest.mark.slow), "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a coroutine, for a bounded time, on each supported event loop."""
    runner = {"asyncio": asyncio.run, "uvloop": uvloop.run}[request.param]
    return lambda main: runner(bounded(main))

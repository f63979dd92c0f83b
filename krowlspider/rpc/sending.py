"""How streams send: a client that reads nothing does not hold its place for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from collections import Counter

# Seconds for a client to take a message. gRPC says that messages were taken only once they are some
# megabytes, so a client that takes 10 KB a second seems to take none for seven minutes.
_PATIENCE = 600.0


async def send(message: Any, context: Any, counts: Counter[str], way_out: str) -> None:
    """Send a message of a stream, once the client has room for it. A call whose client takes none
    for ten minutes is counted as ``silent``, and ends with an error that says the ``way_out``."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await context.write(message)
    except TimeoutError:
        counts["silent"] += 1
        why = f"no message was taken for {_PATIENCE:g} s: {way_out}"
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)

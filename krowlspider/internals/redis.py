"""redis-py: a connection that is cut immediately."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection


def cut(connection: AbstractConnection) -> None:
    """Cut a connection without a farewell, as TLS has one, which a frozen server would not take."""
    if (writer := connection._writer) is not None:
        writer.transport.abort()

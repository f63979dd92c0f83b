"""Reading the keys of queue and poison entries back: the inverse of ``schema.queue_key``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.schema import POISON, PRIORITY_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A zero byte, 4 bytes of priority and 8 of sequence follow the host.
_TAIL = 13


def host_in(key: bytes) -> str:
    """The host of a queue or poison key."""
    return key[1:-_TAIL].decode()


def split_queue_key(key: bytes) -> tuple[str, int, int]:
    """Host, priority and sequence of a queue or poison key."""
    priority = PRIORITY_LIMIT - int.from_bytes(key[-12:-8], "big")
    return host_in(key), priority, int.from_bytes(key[-8:], "big")


def poison_prefix(host: str) -> bytes:
    return b"%b%b\0" % (POISON, host.encode())


def in_chunks(keys: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Keys in lists of at most ``size``."""
    chunk: list[bytes] = []
    for key in keys:
        chunk.append(key)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk

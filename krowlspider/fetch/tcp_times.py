"""Latency as the kernel saw it. Data may wait in a socket until the event loop comes to read it."""

from __future__ import annotations

import socket
import struct
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

# Offset of tcpi_last_data_sent in struct tcp_info of linux/tcp.h. tcpi_last_data_recv is two
# fields further. Both are milliseconds before now, in steps of 1 to 10 ms.
_OFFSET = 44
_AGES = struct.Struct("=I4xI")
_SIZE = _OFFSET + _AGES.size
# Linux alone has these fields.
_TCP_INFO = getattr(socket, "TCP_INFO", None)


def kernel_latency(transport: asyncio.BaseTransport | None) -> float:
    """Return the seconds between the last data that a TCP connection sent and the last data that it
    received; inf where the kernel does not tell."""
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None or _TCP_INFO is None:
        return inf
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _SIZE)
        sent, received = _AGES.unpack_from(info, _OFFSET)
    except (OSError, struct.error):
        return inf
    return float(max(0, sent - received)) / 1000

"""Two machines on this one: network namespaces that a cable joins, and nothing else."""

from __future__ import annotations

import ctypes
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

from tests.support.debian import program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_T = TypeVar("_T")

# For tests between networks (RFC 2544, appendix C.2.2).
FIRST, SECOND = "198.18.0.1", "198.18.0.2"
FIRST_V6, SECOND_V6 = "2001:db8::1", "2001:db8::2"
# sched.h
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Machine:
    """A network namespace with loopback. A ``with`` block moves this thread into it, and with it
    the processes that the thread starts.

    :raises OSError: this kernel, or this user, makes no namespaces
    """

    def __init__(self) -> None:
        self._outside: list[int] = []
        self._own = -1
        with self:
            _checked(_libc.unshare(_CLONE_NEWNET))
            self._own = _here()

    def __enter__(self) -> Self:
        self._outside.append(_here())
        if self._own >= 0:
            _checked(_libc.setns(self._own, _CLONE_NEWNET))
        return self

    def __exit__(self, *_: object) -> None:
        outside = self._outside.pop()
        _checked(_libc.setns(outside, _CLONE_NEWNET))
        os.close(outside)

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._own}"

    def ip(self, *words: str) -> None:
        with self:
            subprocess.run([program("ip"), *words], check=True, capture_output=True)

    def close(self) -> None:
        os.close(self._own)

    @contextmanager
    def has(self, resource: AbstractContextManager[_T]) -> Iterator[_T]:
        """Enter and leave a resource on this machine."""
        with self:
            made = resource.__enter__()
        try:
            yield made
        finally:
            with self:
                resource.__exit__(None, None, None)


def _here() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Two machines that reach each other at `FIRST` and `SECOND`, and over IPv6.

    :raises OSError: as of `Machine`
    """
    first = Machine()
    second = Machine()
    try:
        peer = ("peer", "name", "cable", "netns", second.path)
        first.ip("link", "add", "cable", "type", "veth", *peer)
        own = ((first, FIRST, FIRST_V6), (second, SECOND, SECOND_V6))
        for machine, address, address_v6 in own:
            machine.ip("address", "add", f"{address}/30", "dev", "cable")
            # An address that is not looked for elsewhere is there at once.
            machine.ip("address", "add", f"{address_v6}/64", "dev", "cable", "nodad")
            machine.ip("link", "set", "cable", "up")
            machine.ip("link", "set", "lo", "up")
        yield first, second
    finally:
        first.close()
        second.close()

"""Serve the system calls by which a process changes files, before the kernel makes them.

Each call may pass, fail, write only half, or be the point at which the process is killed. So a disk
fails or is full, or a process dies, at any named point, whatever code makes the call. Linux offers
this as seccomp's user notification, since 5.9, which needs neither rights nor a compiler. The
process asks for it by `be_watched`, and its parent serves the calls by `Watch.serve`."""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import select
import signal
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# linux/asm/unistd.h. What has no number of its own on a machine is made of the others there.
# fmt: off
_NUMBERS = {
    "x86_64": {
        "write": 1, "close": 3, "lseek": 8, "pwrite64": 18, "writev": 20, "fsync": 74,
        "fdatasync": 75, "truncate": 76, "ftruncate": 77, "rename": 82, "mkdir": 83, "link": 86,
        "unlink": 87, "openat": 257, "mkdirat": 258, "unlinkat": 263, "renameat": 264,
        "linkat": 265, "fallocate": 285, "renameat2": 316, "seccomp": 317,
    },
    "aarch64": {
        "mkdirat": 34, "unlinkat": 35, "linkat": 37, "renameat": 38, "truncate": 45,
        "ftruncate": 46, "fallocate": 47, "openat": 56, "close": 57, "lseek": 62, "write": 64,
        "writev": 66, "pwrite64": 68, "fsync": 82, "fdatasync": 83, "renameat2": 276,
        "seccomp": 277,
    },
}[platform.machine()]
# fmt: on
# The same on both.
_PIDFD_GETFD = 438
_NAMES = {number: name for name, number in _NUMBERS.items()}
# Those whose first argument is a path, and whose first two are a folder's descriptor and a path.
_OF_PATH = {"truncate", "rename", "mkdir", "link", "unlink"}
_OF_FOLDER = {"openat", "mkdirat", "unlinkat", "renameat", "linkat", "renameat2"}
_WRITES = {"write", "pwrite64"}
_TAKE_ROOM = {
    *("write", "pwrite64", "writev", "fallocate", "mkdir", "mkdirat"),
    *("rename", "renameat", "renameat2", "link", "linkat"),
}
# Of the calls that open a file, those that may change something, and those of folders, which are
# opened to sync them.
_OPENED_TO_CHANGE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_DIRECTORY
_CREATES = os.O_CREAT

# linux/seccomp.h, linux/prctl.h and linux/filter.h
_NO_NEW_PRIVILEGES = 38
_SET_FILTER, _NEW_LISTENER = 1, 8
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_FLAGS_OF_OPENAT = 16 + 2 * 8
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")

_libc = ctypes.CDLL(None, use_errno=True)


def _filter() -> bytes:
    """Return a BPF program that notifies the calls of the table, and those calls of openat that may
    change something."""
    plain = [number for name, number in _NUMBERS.items() if name not in {"openat", "seccomp"}]
    code = [(_LOAD, 0, 0, 0)]
    # Behind each comparison come the others, the four instructions of openat, and "allow".
    code += [(_IF_EQUAL, len(plain) - place + 3, 0, number) for place, number in enumerate(plain)]
    code += [
        (_IF_EQUAL, 0, 2, _NUMBERS["openat"]),
        (_LOAD, 0, 0, _FLAGS_OF_OPENAT),
        (_IF_ANY_BIT, 1, 0, _OPENED_TO_CHANGE),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NOTIFY),
    ]
    return b"".join(struct.pack("=HBBI", *each) for each in code)


def be_watched(address: str) -> None:
    """Let the `Watch` at ``address`` serve the system calls of this thread and of all that it
    starts.

    :raises OSError: the kernel cannot do that"""
    program = _filter()
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    if _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"\0{address}")
        listener = _libc.syscall(
            _NUMBERS["seccomp"], _SET_FILTER, _NEW_LISTENER, ctypes.create_string_buffer(head)
        )
        if listener < 0:
            raise OSError(ctypes.get_errno(), "no user notification by seccomp")
        socket.send_fds(connection, [b"x"], [listener])
    os.close(listener)


class Act(Enum):
    """The effect on a call."""

    PASS = auto()
    HALF = auto()  # a write does half, and says so
    KILL = auto()  # it is not made
    KILL_HALF = auto()  # half of a write is made


@dataclass(frozen=True, slots=True)
class Call:
    """A system call before it is made: its name, the file or folder, whether it creates the file,
    and the number of bytes it writes."""

    name: str
    path: Path
    creates: bool
    size: int


class Watch:
    """Serves the calls of one process at a time, which needs the ``address``."""

    def __init__(self) -> None:
        self.address = f"watch-{os.getpid()}-{os.urandom(4).hex()}"
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(f"\0{self.address}")
        self._door.listen()

    def close(self) -> None:
        self._door.close()

    def serve(self, decide: Callable[[Call], Act | int]) -> None:
        """Serve a process until it ends. ``decide`` is called while the process waits; an int that
        it returns is the error number with which the call fails."""
        connection, _ = self._door.accept()
        with connection:
            _, listeners, _, _ = socket.recv_fds(connection, 1, 1)
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            process = struct.unpack("=iII", credentials)[0]
        if not listeners:
            raise RuntimeError("seccomp has no user notification here: it needs Linux 5.9")
        listener = listeners[0]
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        try:
            while poll.poll()[0][1] & select.POLLIN:
                # A process that dies takes its call along.
                with suppress(FileNotFoundError, ProcessLookupError):
                    self._serve_one(listener, process, decide)
        finally:
            os.close(listener)

    def _serve_one(self, listener: int, process: int, decide: Callable[[Call], Act | int]) -> None:
        notification = bytearray(_NOTIFICATION.size)
        fcntl.ioctl(listener, _RECEIVE, notification, True)
        identity, thread, _, number, _, _, *arguments = _NOTIFICATION.unpack(notification)
        call = _call(_NAMES[number], thread, arguments)
        act = decide(call)
        done = 0
        if act in {Act.HALF, Act.KILL_HALF}:
            done = _write_half(call, process, arguments)
        if act in {Act.KILL, Act.KILL_HALF}:
            os.kill(process, signal.SIGKILL)
            return
        error = -act if isinstance(act, int) else 0
        flags = _CONTINUE if act is Act.PASS else 0
        response = _RESPONSE.pack(identity, done, error, flags)
        fcntl.ioctl(listener, _SEND, bytearray(response), True)


def _call(name: str, thread: int, arguments: list[int]) -> Call:
    proc = Path(f"/proc/{thread}")
    if name in _OF_PATH:
        path = (proc / "cwd").readlink() / _text(proc, arguments[0])
    elif name in _OF_FOLDER:
        here = ctypes.c_int(arguments[0]).value < 0
        folder = (proc / "cwd" if here else proc / "fd" / str(arguments[0])).readlink()
        path = folder / _text(proc, arguments[1])
    else:
        # A call for a descriptor that is none is let fail by itself.
        path = Path("/")
        with suppress(FileNotFoundError):
            path = (proc / "fd" / str(ctypes.c_int(arguments[0]).value)).readlink()
    creates = name == "openat" and bool(arguments[2] & _CREATES) and not path.exists()
    return Call(name, path, creates, arguments[2] if name in _WRITES else 0)


def _text(proc: Path, address: int) -> str:
    with (proc / "mem").open("rb", buffering=0) as memory:
        return os.fsdecode(
            os.pread(memory.fileno(), os.pathconf("/", "PC_PATH_MAX"), address).partition(b"\0")[0]
        )


def _write_half(call: Call, process: int, arguments: list[int]) -> int:
    """Write the first half instead of the process; return the number of bytes."""
    with Path(f"/proc/{process}/mem").open("rb", buffering=0) as memory:
        half = os.pread(memory.fileno(), call.size // 2, arguments[1])
    handle = os.pidfd_open(process)
    # The same open file, so that the process goes on behind the half.
    descriptor = _libc.syscall(_PIDFD_GETFD, handle, ctypes.c_int(arguments[0]), 0)
    os.close(handle)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    try:
        if call.name == "pwrite64":
            return os.pwrite(descriptor, half, arguments[3])
        return os.write(descriptor, half)
    finally:
        os.close(descriptor)


def takes_room(call: Call) -> bool:
    """Return whether a full disk may refuse the call."""
    return call.creates or call.name in _TAKE_ROOM

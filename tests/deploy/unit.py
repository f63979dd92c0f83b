"""Read systemd units, and run a command under the limits of one."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.crawling import ROOT
from tests.support.debian import program

if TYPE_CHECKING:
    from pathlib import Path

SYSTEMD = ROOT / "deploy" / "systemd"
CRAWL = SYSTEMD / "krowlspider@.service"
# seccomp.h: what a rule does, and the comparison of an argument.
_KILL_PROCESS, _ALLOW, _EQUAL = 0x80000000, 0x7FFF0000, 4


class _Compared(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


def read_unit(path: Path) -> dict[str, list[str]]:
    """Return the values of each key of a unit, whatever its section."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


def confined(writable: Path, command: list[str]) -> list[str]:
    """Return the command as the unit has it run: only ``writable`` can be written to, and only the
    system calls and sockets that the unit lists can be used."""
    mounts = 'mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec "$@"'
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounts, writable]
    return [*map(str, namespace), sys.executable, "-m", __name__, *command]


def system_calls(group: str) -> set[str]:
    """Return the names that a group of SystemCallFilter stands for."""
    listed = subprocess.run(
        [program("systemd-analyze"), "syscall-filter", group],
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.strip() for line in listed.stdout.splitlines() if line.startswith("    ")}
    groups = {name for name in names if name.startswith("@")}
    direct = {name for name in names - groups if not name.startswith("#")}
    return direct.union(*map(system_calls, groups))


def _filter(unit: dict[str, list[str]]) -> None:
    """Kill this process, and all that it starts, at a system call that the unit does not list."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(_KILL_PROCESS))

    def allow(name: str, *compared: _Compared) -> None:
        number = library.seccomp_syscall_resolve_name(name.encode())
        # The kernel of this machine may not have it.
        if number >= 0:
            rules = (_Compared * len(compared))(*compared)
            done = library.seccomp_rule_add_array(context, _ALLOW, number, len(compared), rules)
            assert done == 0, name

    (groups,) = unit["SystemCallFilter"]
    (families,) = unit["RestrictAddressFamilies"]
    for name in set().union(*map(system_calls, groups.split())) - {"socket"}:
        allow(name)
    for family in families.split():
        allow("socket", _Compared(0, _EQUAL, int(getattr(socket, family)), 0))
    assert library.seccomp_load(context) == 0


if __name__ == "__main__":
    _filter(read_unit(CRAWL))
    os.execvp(sys.argv[1], sys.argv[1:])

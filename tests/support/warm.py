"""Warm processes: ``python -m scrapy ...`` without the second of CPU for its imports.

A server imports what the modules of `SERVED` need, and forks for each order; this module is its
main module. In all else, a warm process is like one of `subprocess`: it has its own id,
environment, files, signals and exit code.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
SERVED = ("scrapy", "tests.mockweb", "tests.mockweb.audit", "tests.powerloss.child")

# Imported with all their modules. None may install a reactor.
_PACKAGES = (
    "krowlspider",
    *("scrapy.commands", "scrapy.downloadermiddlewares", "scrapy.spidermiddlewares"),
)
# They need packages of an extra.
_OF_EXTRAS = {"krowlspider.programs.top_app"}
_MODULES = (
    *("scrapy.cmdline", "scrapy.core.scraper", "scrapy.extensions.feedexport", "scrapy.squeues"),
    *("scrapy.extensions.closespider", "scrapy.extensions.memusage", "scrapy.extensions.telnet"),
    *("tests.mockweb.render", "tests.mockweb.server", "tests.mockweb.spec", "uvloop"),
    *("argparse", "tests.support.in_process", "tests.support.statsdump"),
)
# Variables that the interpreter or the dynamic linker reads at its start.
_OF_THE_START = ("PYTHON", "LC_", "LANG", "LD_")
_ORDER_MAX = 2**17
_INT = 4

_File = int | IO[bytes]


class _Order(NamedTuple):
    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    cwd: str


class WarmProcess:
    """Has the interface of `subprocess.Popen` for a process without pipes.

    The file ``status`` yields its id, and its exit code when it ends.
    """

    def __init__(self, status: int):
        self._status = status
        self.pid = self._read()
        self.returncode: int | None = None

    def _read(self) -> int:
        found = os.read(self._status, _INT)
        assert found, "the server of warm processes has ended"
        return int.from_bytes(found, "big", signed=True)

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = self._read()
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # It may end just now.
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[bytes] | WarmProcess


class _Server:
    """The server process. When this process ends, it ends with all its children."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.warm", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )
        self.environment = _of_the_start(os.environ)
        atexit.register(self._end)

    def start(self, order: _Order, files: Sequence[int]) -> WarmProcess:
        ours, theirs = os.pipe()
        try:
            socket.send_fds(self._orders, [json.dumps(order).encode()], [*files, theirs])
        finally:
            os.close(theirs)
        return WarmProcess(ours)

    def _end(self) -> None:
        self._orders.close()
        self._process.wait()


def _of_the_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(_OF_THE_START)}


def _paths(environment: Mapping[str, str]) -> list[str]:
    return environment.get("PYTHONPATH", "").split(os.pathsep)


# Set by conftest.py. Outside tests, each process is started cold.
enabled = False


@cache
def _server() -> _Server:
    return _Server()


def start(
    command: Sequence[str | Path],
    *,
    cold: bool = False,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    stdin: _File | None = None,
    stdout: _File | None = None,
    stderr: _File | None = None,
) -> Process:
    """Start a command: warm if it is ``python -m`` and one of `SERVED`, else by
    `subprocess.Popen`. In another folder it is warm if PYTHONPATH begins with this checkout."""
    words = [str(word) for word in command]
    given = dict(os.environ if environment is None else environment)
    at_start = _of_the_start(given)
    is_here = cwd == ROOT
    if not is_here and _paths(given)[0] == str(ROOT):
        # Its modules are imported already; the server sets the rest of the path.
        is_here = True
        del at_start["PYTHONPATH"]
    warm = (
        enabled
        and not cold
        and words[:2] == [sys.executable, "-m"]
        and words[2] in SERVED
        and is_here
    )
    if not warm or at_start != _server().environment:
        return subprocess.Popen(
            words, cwd=cwd, env=given, stdin=stdin, stdout=stdout, stderr=stderr
        )
    files = [
        number if file is None else file if isinstance(file, int) else file.fileno()
        for number, file in enumerate(
            (stdin, stdout, stdout if stderr == subprocess.STDOUT else stderr)
        )
    ]
    return _server().start(_Order(words[2], words[3:], given, str(cwd)), files)


def run(
    command: Sequence[str | Path],
    *,
    given: bytes = b"",
    cold: bool = False,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, with ``given`` as its input. Return its exit code, output and
    errors."""
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(given)
        files[0].seek(0)
        process = start(
            command,
            cold=cold,
            cwd=cwd,
            environment=environment,
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
        )
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
            process.wait()
        for file in files[1:]:
            file.seek(0)
        return subprocess.CompletedProcess(list(command), code, files[1].read(), files[2].read())


# --- the server ---


def _serve(orders: socket.socket) -> _Order | None:
    """Fork for each order. Return the order in the child, and None here when orders end."""
    running: dict[int, tuple[int, int]] = {}
    while True:
        ready, _, _ = select.select([orders, *running], [], [])
        for each in ready:
            if each is not orders:
                pid, status = running.pop(each)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                _report(status, code)
                os.close(each)
                os.close(status)
                continue
            text, files, _, _ = socket.recv_fds(orders, _ORDER_MAX, 4)
            if not text:
                for pid, _ in running.values():
                    os.kill(pid, signal.SIGKILL)
                return None
            pid = os.fork()
            if not pid:
                for number, file in enumerate(files[:3]):
                    os.dup2(file, number)
                orders.detach()
                os.closerange(3, max(os.sysconf("SC_OPEN_MAX"), 4))
                return _Order(*json.loads(text))
            running[os.pidfd_open(pid)] = pid, files.pop()
            _report(running[next(reversed(running))][1], pid)
            for file in files:
                os.close(file)


def _report(status: int, number: int) -> None:
    # The process that started it may have closed the file.
    with suppress(BrokenPipeError):
        os.write(status, number.to_bytes(_INT, "big", signed=True))


def _main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    for name in _PACKAGES:
        for found in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            if found.name not in _OF_EXTRAS:
                importlib.import_module(found.name)
    for name in _MODULES:
        importlib.import_module(name)
    # Each command asks which packages are installed.
    importlib.import_module("scrapy.cmdline").entry_points(group="scrapy.commands")
    importlib.import_module("scrapy.utils.versions").get_versions()
    assert "twisted.internet.reactor" not in sys.modules
    # Keeps the memory pages shared with the children.
    gc.freeze()
    order = _serve(orders)
    if order is None:
        return
    os.environ.clear()
    os.environ.update(order.environment)
    os.chdir(order.cwd)
    if order.cwd != str(ROOT):
        sys.path[:1] = [order.cwd, *_paths(order.environment)]
        # `tests.support.in_process` keeps the packages that this checkout has.
        importlib.import_module("scrapy.cmdline").entry_points.cache_clear()
    # It prepares the process of a command.
    sys.modules.pop("krowlspider.project")
    sys.argv[1:] = order.arguments
    try:
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        _exit(end)
    _exit(SystemExit())


def _exit(end: SystemExit) -> NoReturn:
    """End as the interpreter does, but keep its modules.

    Taking them apart copies the memory that is shared with the server.
    """
    if end.code is not None and not isinstance(end.code, int):
        print(end.code, file=sys.stderr)
    code = end.code if isinstance(end.code, int) else int(end.code is not None)
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = 120
    os._exit(code & 0xFF)


if __name__ == "__main__":
    _main()

"""Replay WARC files with pywb, a program of its own: its pins do not go with those of a crawl."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_HOST = "127.0.0.1"
_PORT = 8080
# The name of the collection, the first segment of the path of each replayed page.
_COLLECTION = "crawl"
# Seconds for pywb to start, and to end before it is killed.
_START = 60.0
_END = 5.0
_LOG = "wayback.log"
# What the script ``wayback`` does.
_MAIN = "from pywb.apps.cli import wayback; wayback()"


def find_wayback(folders: Iterable[Path]) -> Path | None:
    """Return pywb's program: of a venv ``replay`` in a folder, beside this Python, or in PATH."""
    places = [*(folder / "replay" / "bin" for folder in folders), Path(sys.executable).parent]
    path = os.pathsep.join([*map(str, places), os.environ.get("PATH", os.defpath)])
    found = shutil.which("wayback", path=path)
    return None if found is None else Path(found)


@contextmanager
def replayed(
    wayback: Path, index: Path, folders: Sequence[Path], scratch: Path
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Serve the WARC files in ``folders`` by their merged ``index``; yield URL and process.

    pywb listens on the loopback device only, at port 8080 or, if that is taken, at a free one. On
    exit, it and its children are ended. ``scratch`` gets its configuration and its log.

    :raises KrowlError: pywb does not start
    """
    places = [f"{folder.resolve()}/" for folder in folders]
    collection = {"index_paths": str(index.resolve()), "archive_paths": places}
    # JSON is YAML.
    config = json.dumps({"collections": {_COLLECTION: collection}})
    (scratch / "config.yaml").write_text(config)
    port = free_port(_PORT)
    command = [*_program(wayback), "-b", _HOST, "-p", str(port), "-d", str(scratch)]
    with (scratch / _LOG).open("wb") as log:
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Its own process group, so that all of it can be ended.
            start_new_session=True,
        )
    try:
        _wait_for(process, port, scratch / _LOG)
        yield f"http://{_HOST}:{port}/{_COLLECTION}/", process
    finally:
        _end(process)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Leave the block at Ctrl-C, SIGTERM or a closed terminal, without an error."""

    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    names = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(name, leave) for name in names]
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        for name, handler in zip(names, before, strict=True):
            signal.signal(name, handler)


def _program(wayback: Path) -> list[str]:
    """Return the command that runs pywb.

    A script of a venv names the folder in which the venv was made; its Python works anywhere.
    """
    real = wayback.resolve()
    if (real.parent.parent / "pyvenv.cfg").exists():
        return [str(real.with_name("python")), "-c", _MAIN]
    return [str(real)]


def free_port(wanted: int) -> int:
    """Return a port of the loopback device that is free, ``wanted`` if it is."""
    for port in (wanted, 0):
        with socket.socket() as server, suppress(OSError):
            # As pywb's server does: connections that have ended do not take a port.
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((_HOST, port))
            free: int = server.getsockname()[1]
            return free
    raise KrowlError(f"no port of {_HOST} is free")


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _START
    while process.poll() is None and time.monotonic() < end:
        with suppress(OSError), socket.create_connection((_HOST, port), timeout=1):
            return
        time.sleep(0.1)
    lines = log.read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")
    raise KrowlError(f"pywb does not start: {last}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

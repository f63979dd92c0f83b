"""jetforce, a Gemini server of others, over folders of files."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.gemini.certificates import Identity, pem_of
from tests.gemini.visits import Visit, read_visits
from tests.support.venvs import Venv

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.gemini.tree import Tree

_START = 30.0


class _Process:
    """A process of jetforce at a port of its own. ``command`` starts it; its output is a file."""

    def __init__(self, command: Sequence[str | Path], port: int, log: Path) -> None:
        self.port = port
        self._log, self._errors = log, log.with_suffix(".errors")
        with self._log.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=out, stderr=errors)

    def __enter__(self) -> Self:
        end = time.monotonic() + _START
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self._process.poll() is None, self._errors.read_text()
                # Its imports take a second.
                time.sleep(0.05)
            else:
                return self
        raise AssertionError(self._errors.read_text())

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(10)


class Jetforce(_Process):
    """Its command: serves the files in ``root`` as the host ``name``."""

    def __init__(self, root: Path, scratch: Path, name: str = "jetforce.test") -> None:
        port, pem = _free_port(), _pem(scratch, name)
        command = [Venv("gemini").tool("jetforce"), "--dir", root, "--host", "127.0.0.1"]
        command += ["--port", str(port), "--hostname", name]
        command += ["--tls-certfile", pem, "--tls-keyfile", pem]
        self.name = name
        super().__init__(command, port, scratch / "jetforce.log")

    def url(self, path: str = "/") -> str:
        return f"gemini://{self.name}:{self.port}{path}"


class JetforceTree(_Process):
    """Serves the hosts of a tree, whose pages are files in ``scratch``."""

    def __init__(self, tree: Tree, scratch: Path) -> None:
        port, root = _free_port(), scratch / "capsules"
        self.tree = tree.at(port)
        self.tree.write(root)
        program = Path(__file__).with_name("jetforce_hosts.py")
        pem = _pem(scratch, "jetforce.test")
        # -I: the folder of the program has a module of the same name.
        command = [Venv("gemini").tool("python"), "-I", "-u", program, root, str(port), pem]
        super().__init__(command, port, scratch / "visits.log")

    def stop(self) -> list[Visit]:
        """End the server; return all visits that asked for something."""
        self.end()
        return read_visits(self._log)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def _pem(scratch: Path, name: str) -> Path:
    path = scratch / "jetforce.pem"
    path.write_bytes(pem_of(name, Identity()))
    return path

"""jetforce, a Gemini server of others, over a folder of files."""

from __future__ import annotations

import socket
import subprocess
import time
from typing import TYPE_CHECKING, Self

from tests.gemini.certificates import Identity, pem_of
from tests.support.venvs import Venv

if TYPE_CHECKING:
    from pathlib import Path

_START = 30.0


class Jetforce:
    """A process that serves the files in ``root`` as the host ``name``, at a free port."""

    def __init__(self, root: Path, scratch: Path, name: str = "jetforce.test") -> None:
        program = Venv("gemini").tool("jetforce")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.name = name
        pem = scratch / "jetforce.pem"
        pem.write_bytes(pem_of(name, Identity()))
        self._log = scratch / "jetforce.log"
        command = [program, "--dir", root, "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--hostname", name, "--tls-certfile", pem, "--tls-keyfile", pem]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self) -> Self:
        end = time.monotonic() + _START
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self._process.poll() is None, self._log.read_text()
                # Its imports take a second.
                time.sleep(0.05)
            else:
                return self
        raise AssertionError(self._log.read_text())

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)

    def url(self, path: str = "/") -> str:
        return f"gemini://{self.name}:{self.port}{path}"

"""Start the mock web in a subprocess, for a test."""

from __future__ import annotations

import http.client
import json
import os
import select
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.mockweb.folder import FolderSite
from tests.mockweb.log import Entry, read_log
from tests.mockweb.protocol import CONTROL_HOST
from tests.support import warm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.mockweb.graph import Graph

_START_S = 30.0
"""A start takes half a second; a busy machine may need far more."""

_STOP_S = 10.0


class MockWeb:
    """A mock web that runs inside the `with` block. Give one of `graph`, `spec` and `folder`.

    :raises RuntimeError: the server does not start; the message has its output
    """

    def __init__(
        self,
        *,
        graph: Graph | None = None,
        spec: Sequence[Mapping[str, Any]] | None = None,
        folder: Path | None = None,
        hosts: int = 1,
        tls: bool = False,
        port: int = 0,
    ) -> None:
        self._graph, self._spec, self._folder = graph, spec, folder
        self._hosts, self._tls, self._wanted_port = hosts, tls, port
        self.port = 0
        self.tls_port = 0
        self._final: list[Entry] | None = None

    @property
    def graph(self) -> Graph:
        """The graph with the ports of the running server.

        :raises ValueError: the web is not a graph
        """
        if self._graph is None:
            raise ValueError("this mock web serves no graph")
        return replace(self._graph, port=self.port, tls_port=self.tls_port)

    @property
    def pid(self) -> int:
        """The id of the server's process."""
        return self._process.pid

    def __enter__(self) -> Self:
        self._scratch = tempfile.TemporaryDirectory(prefix="mockweb-")
        self._room = Path(self._scratch.name)
        self._log = self._room / "requests.jsonl"
        try:
            self._start()
        except BaseException:
            self._scratch.cleanup()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the server; its log can still be read. A second call does nothing."""
        if self._final is not None:
            return
        self._end()
        self._final = read_log(self._log)
        self._scratch.cleanup()

    def url(self, host: str, path: str = "/", *, tls: bool = False) -> str:
        """Return the URL of a path on a host."""
        return f"{'https' if tls else 'http'}://{host}:{self.tls_port if tls else self.port}{path}"

    def seeds(self) -> list[str]:
        """Return the root of every host of a graph, or the first page of a folder."""
        if self._folder is not None:
            return FolderSite(self._folder, self._hosts, self.port).seeds()
        return self.graph.seeds()

    def log(self) -> list[Entry]:
        """Return all requests that have ended, by start time."""
        if self._final is not None:
            return self._final
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_STOP_S)
        try:
            connection.request("GET", "/flush", headers={"Host": CONTROL_HOST})
            connection.getresponse().read()
        finally:
            connection.close()
        return read_log(self._log)

    def stderr(self) -> str:
        """Return the error output of the server."""
        return self._errors.read_text(encoding="utf-8")

    def _start(self) -> None:
        self._errors = self._room / "stderr"
        with self._errors.open("wb") as errors:
            stdin, self._stdin = os.pipe()
            self._stdout, stdout = os.pipe()
            self._process = warm.start(
                [sys.executable, "-m", "tests.mockweb", *self._arguments()],
                stdin=stdin,
                stdout=stdout,
                stderr=errors,
            )
            os.close(stdin)
            os.close(stdout)
        ready, _, _ = select.select([self._stdout], [], [], _START_S)
        line = os.read(self._stdout, 4_096) if ready else b""
        if not line:
            self._end()
            raise RuntimeError(f"the mock web did not start:\n{self.stderr()}")
        ports = json.loads(line)
        self.port, self.tls_port = ports["port"], ports["tls_port"] or 0

    def _arguments(self) -> list[str]:
        common = ["--log", str(self._log), "--port", str(self._wanted_port)]
        common += ["--tls"] if self._tls else []
        if self._graph is not None:
            return [*common, "--graph", self._graph.text()]
        if self._folder is not None:
            return [*common, "--folder", str(self._folder), "--hosts", str(self._hosts)]
        rules = self._room / "spec.json"
        rules.write_text(json.dumps(list(self._spec or ())), encoding="utf-8")
        return [*common, "--sites", str(rules)]

    def _end(self) -> None:
        self._process.terminate()
        # The end of stdin stops a server that a signal does not.
        os.close(self._stdin)
        os.close(self._stdout)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

"""Runs the process that serves a crawl by gRPC, and starts it again if it dies."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from krowlspider.rpc.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

# Seconds for the process to end, and until it is started again: twice as many after each death.
_END = 3.0
_AGAIN, _AGAIN_MAX = 1.0, 60.0


class ServingPlan(msgspec.Struct, frozen=True):
    """What the process serves: the crawl in ``folder``, and its WARC files in the folders
    ``archive``, by the names of processes. ``policies`` is the file of its sheets, "" without one,
    and ``delay_min`` is KROWL_DELAY_MIN."""

    options: Options
    folder: str
    archive: dict[str, str]
    policies: str = ""
    delay_min: float = 0.0

    @classmethod
    def of(
        cls, settings: BaseSettings, token: str, folder: Path, archive: Mapping[str, Path]
    ) -> Self:
        """Return the plan for the crawl in ``folder`` with these settings."""
        policies = settings["KROWL_POLICIES"]
        return cls(
            Options.of(settings, token),
            str(folder.resolve()),
            {name: str(each.resolve()) for name, each in archive.items()},
            "" if policies is None else str(Path(policies).resolve()),
            settings.getfloat("KROWL_DELAY_MIN"),
        )


class ProcessMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the process says: the port at which it listens, what it has counted, or why it ends."""

    port: int = 0
    counts: dict[str, int] = {}
    error: str = ""


class ServingProcess:
    """The process of ``plan``, from `start` to `stop`, on the running event loop.

    ``on_counts`` is called with what the process has counted since its start.
    """

    def __init__(self, plan: ServingPlan, on_counts: Callable[[Mapping[str, int]], None]):
        self._plan = plan
        self._on_counts = on_counts
        self._process: subprocess.Popen[bytes] | None = None
        self._running: asyncio.Task[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        self._running = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End the process, which ends its calls before, and take in its last counts."""
        self._is_stopped = True
        if (running := self._running) is None:
            return
        if self._process is None:
            running.cancel()
        else:
            _close_input(self._process)
        if not (await asyncio.wait([running], timeout=_END))[0] and self._process is not None:
            self._process.kill()
            await asyncio.wait([running])

    async def _run(self) -> None:
        wait = _AGAIN
        while True:
            try:
                await self._serve()
            except OSError as error:
                logger.error("The process of gRPC cannot be started: %s", error)
            if self._is_stopped:
                return
            logger.error(
                "gRPC is not served: its process has ended; starting it again in %g s", wait
            )
            await asyncio.sleep(wait)
            wait = min(2 * wait, _AGAIN_MAX)

    async def _serve(self) -> None:
        """Run the process until it ends."""
        process = self._process = self._spawn()
        assert process.stdin is not None
        assert process.stdout is not None
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), process.stdout
        )
        try:
            while line := await reader.readline():
                self._take(msgspec.json.decode(line, type=ProcessMessage))
        finally:
            transport.close()
            # It has closed its output, so it ends.
            await asyncio.to_thread(process.wait)
            _close_input(process)
            self._process = None

    def _spawn(self) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            [sys.executable, "-m", "krowlspider.rpc.serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(self._plan) + b"\n")
            process.stdin.flush()
        return process

    def _take(self, message: ProcessMessage) -> None:
        if message.port:
            host, _, _ = self._plan.options.address.rpartition(":")
            logger.info("gRPC is served at %s:%d", host, message.port)
        if message.error:
            logger.error("gRPC: %s", message.error)
        if message.counts:
            self._on_counts(message.counts)


def _close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()

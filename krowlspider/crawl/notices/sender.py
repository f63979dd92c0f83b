"""Send notices to a command or a webhook, in a thread, so that the crawl does not wait."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from krowlspider.crawl.webhook import NotSentError, Webhook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)

# Seconds for one notice, and notices that wait: the others are dropped, with a log line.
TIME_LIMIT = 10.0
_WAITING = 20


class Sender:
    """Sends notices one after the other to ``target``: an http or https URL, or a command.

    The command gets the notice on its standard input, the URL as the body of a POST. Errors are
    logged, without the URL, which may have a secret.
    """

    def __init__(self, target: str, time_limit: float = TIME_LIMIT):
        self._send: Callable[[bytes], None]
        self._command: _Command | None = None
        if target.startswith(("http://", "https://")):
            self._send = Webhook(target, time_limit).send
        else:
            self._command = _Command(target, time_limit)
            self._send = self._command.send
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._is_given_up = False
        # A daemon: the end of the process does not wait for it.
        self._thread = Thread(target=self._work, name="notices", daemon=True)
        self._thread.start()

    def send(self, notice: Mapping[str, Any]) -> None:
        """Send a notice; return immediately."""
        if self._queue.qsize() >= _WAITING:
            logger.warning("KROWL_NOTIFY: %s is not sent: others wait", notice["event"])
            return
        self._queue.put(json.dumps(notice).encode())

    def close(self, wait: float) -> None:
        """Wait for the notices under way for at most ``wait`` seconds, then give them up.

        This blocks: call it in a thread.
        """
        self._queue.put(None)
        self._thread.join(wait)
        if self._thread.is_alive():
            logger.warning("KROWL_NOTIFY: the last notice was not taken within %.0f s", wait)
            self._is_given_up = True
            if self._command is not None:
                self._command.end()

    def _work(self) -> None:
        while (notice := self._queue.get()) is not None and not self._is_given_up:
            try:
                self._send(notice)
            except NotSentError as error:
                if not self._is_given_up:
                    logger.warning("KROWL_NOTIFY: a notice was not sent: %s", error)


class _Command:
    def __init__(self, command: str, time_limit: float):
        self._words = shlex.split(command)
        self._time_limit = time_limit
        self._child: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def send(self, notice: bytes) -> None:
        none = subprocess.DEVNULL
        try:
            # A session of its own, so that all that it starts can be killed with it.
            self._child = child = subprocess.Popen(  # noqa: S603 - the operator's own command
                self._words, stdin=subprocess.PIPE, stdout=none, stderr=none, start_new_session=True
            )
        except OSError as error:
            raise NotSentError(f"{self._words[0]}: {error.strerror}") from error
        if self._is_over:
            self._kill()
        try:
            child.communicate(notice, timeout=self._time_limit)
        except subprocess.TimeoutExpired:
            self._kill()
            child.wait()
            raise NotSentError(f"{self._words[0]} ran for {self._time_limit:.0f} s") from None
        finally:
            self._child = None
        if child.returncode:
            raise NotSentError(f"{self._words[0]} ended with code {child.returncode}")

    def end(self) -> None:
        """Kill the command that runs, and each one that is started from now on."""
        self._is_over = True
        self._kill()

    def _kill(self) -> None:
        if (child := self._child) is not None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)

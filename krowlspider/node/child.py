"""A process that is started again when it dies, and that ends when its supervisor dies."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from krowlspider.cluster.tasks import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

# Deaths within so many seconds after which a process is not started again.
DEATHS_MAX = 5
_WITHIN = 600.0
BACKOFF = 1.0
# The exit code for a process that is not started again.
GIVEN_UP = 1

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class Child:
    """The process ``name``; ``command`` returns its command by the number of its starts before.

    ``is_end`` returns whether an exit code is an end. After any other one, ``on_death`` is called
    and the process is started again. What it writes goes to the file ``log``, by default to the
    standard error of this process, or to the open file ``errors``. ``lock`` is an open file that it
    keeps open. ``last_signal`` is sent to it when the supervisor dies, once or several times.
    ``backoff`` are the seconds before the first restart; each further death within ten minutes
    doubles them.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[int], Sequence[str]],
        *,
        environment: Mapping[str, str],
        is_end: Callable[[int], bool],
        on_death: Callable[[], None] = lambda: None,
        log: Path | None = None,
        errors: int | None = None,
        lock: int | None = None,
        last_signal: signal.Signals = signal.SIGHUP,
        backoff: float = BACKOFF,
    ):
        self.name = name
        self.restarts = 0
        self._command = command
        self._environment = environment
        self._is_end = is_end
        self._on_death = on_death
        self._log = log
        self._errors = errors
        self._lock = lock
        self._last_signal = last_signal
        self._backoff = backoff
        self._process: asyncio.subprocess.Process | None = None
        self._stopped = asyncio.Event()
        self._deaths: deque[float] = deque(maxlen=DEATHS_MAX)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to the process, and do not start it again."""
        self._stopped.set()
        self.send(number)

    def send(self, number: int) -> None:
        """Send a signal to the process if it runs."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def run(self) -> int:
        """Run the process to its end; return its exit code.

        It is 0 if the process was stopped while it was to be started again, and GIVEN_UP after too
        many deaths.
        """
        while not self._stopped.is_set():
            self._process = await self._start()
            if self._stopped.is_set():
                self.stop()
            code = await self._process.wait()
            if self._stopped.is_set():
                # A process that has no handler yet dies by the signal, and has begun nothing.
                return 0 if code == -signal.SIGTERM else code
            if self._is_end(code):
                return code
            self._deaths.append(time.monotonic())
            self._on_death()
            if self._is_hopeless():
                logger.error(
                    "Process %s has died %d times within %d minutes, the last time with %s: it is"
                    " not started again",
                    *(self.name, DEATHS_MAX, _WITHIN // 60, _shown(code)),
                )
                return GIVEN_UP
            wait = self._wait()
            logger.warning(
                "Process %s has died with %s: starting it again in %d s, where it was",
                *(self.name, _shown(code), wait),
            )
            self.restarts += 1
            await wait_for(self._stopped, wait)
        return 0

    def _is_hopeless(self) -> bool:
        deaths = self._deaths
        return len(deaths) == DEATHS_MAX and deaths[-1] - deaths[0] < _WITHIN

    def _wait(self) -> float:
        recent = sum(self._deaths[-1] - death < _WITHIN for death in self._deaths)
        return float(self._backoff * 2 ** (recent - 1))

    async def _start(self) -> asyncio.subprocess.Process:
        supervisor = os.getpid()

        def end_with_supervisor() -> None:
            # Under nohup the supervisor ignores SIGHUP, and a process would inherit that.
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            # The kernel sends it when the main thread of the supervisor ends, and may send it again
            # for each other thread. A second SIGTERM would end a crawl as a crash does.
            _libc.prctl(_PR_SET_PDEATHSIG, self._last_signal)
            if os.getppid() != supervisor:
                os.kill(os.getpid(), signal.SIGTERM)

        output = None if self._log is None else self._log.open("wb")
        try:
            return await asyncio.create_subprocess_exec(
                *self._command(self.restarts),
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=self._errors if output is None else output,
                # The Ctrl-C of a terminal goes to the supervisor alone.
                start_new_session=True,
                preexec_fn=end_with_supervisor,
                pass_fds=() if self._lock is None else (self._lock,),
            )
        finally:
            if output is not None:
                output.close()


def _shown(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

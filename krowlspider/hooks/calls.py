"""Calls of hooks: each within its time, counted, and cut off if it fails too often."""

from __future__ import annotations

import asyncio
import logging
from inspect import isawaitable, iscoroutine
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

from krowlspider.errors import counted
from krowlspider.hooks.words import HookError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

logger = logging.getLogger(__name__)

# Seconds of a step on the event loop: from the first on a call is slow, from the second on the hook
# is cut off at once.
SLOW, HELD = 0.05, 2.0
# Bad calls after which a hook is cut off. A good call makes good for so much of a bad one: with
# less than 2 % of bad calls a hook stays.
BAD_MAX, FORGIVEN = 20.0, 0.02

# What is not of a hook: Ctrl-C, and the end of the coroutine that calls it.
_OURS = (KeyboardInterrupt, GeneratorExit)


class Call:
    """One hook. It returns None, the default of every hook, if the call fails.

    ``timeout`` is in seconds, for a coroutine. ``may_hold``: a plain function may take long, as the
    crawl does not run when it is called. ``count`` is called with the name of each stat to count,
    ``clock`` returns seconds.
    """

    def __init__(
        self,
        name: str,
        method: Callable[..., Any],
        *,
        timeout: float,
        count: Callable[[str], object],
        may_hold: bool = False,
        clock: Callable[[], float] = perf_counter,
    ):
        self.name = name
        # Why it is cut off; "" while it is not.
        self.cut = ""
        self.failures = self.slow = 0
        self._method = method
        self._timeout = timeout
        self._count = count
        self._may_hold = may_hold
        self._clock = clock
        self._bad = 0.0

    def now(self, *args: Any) -> Any:
        """Return the answer of a plain function."""
        if self.cut:
            return None
        begun = self._clock()
        try:
            found = self._method(*args)
            if iscoroutine(found):
                found.close()
                raise HookError("it is a coroutine: where it is called nothing can wait")
        except _OURS:
            raise
        except BaseException as error:  # noqa: BLE001 - of a user: counted and named
            self.failed(error)
            return None
        self._took(self._clock() - begun)
        return found

    def verdict(self, found: Any) -> bool | None:
        """Return an answer if it is True or False, else None. Other answers than None are counted
        as failed."""
        if found is None or found is True or found is False:
            return found
        self.failed(HookError(f"{found!r:.100} is neither True nor False nor None"))
        return None

    def items(self, found: Iterable[Any], most: int) -> list[Any] | None:
        """Return the items of an answer; None if they are too many. A generator runs here, and what
        it raises is counted as of the hook."""
        begun = self._clock()
        try:
            if isinstance(found, str | bytes):
                raise HookError("its answer is a list: return [url]")
            items = list(islice(found, most + 1))
            if len(items) > most:
                raise HookError(f"its answer has more items than {most:,}")
        except _OURS:
            raise
        except BaseException as error:  # noqa: BLE001 - of a user
            self.failed(error)
            return None
        seconds = self._clock() - begun
        if seconds > SLOW and not self._may_hold:
            self._is_slow(f"one call held the event loop for {seconds:.2f} s", seconds)
        return items

    async def answer(self, *args: Any) -> Any:
        """Return the answer of a plain function or of a coroutine."""
        if self.cut:
            return None
        begun, limit = self._clock(), None
        try:
            found = self._method(*args)
            took = self._clock() - begun
            if isawaitable(found):
                async with asyncio.timeout(self._timeout) as limit:
                    found = await found
        except _OURS:
            raise
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            if limit is not None and limit.expired():
                self._is_slow(f"no answer within {self._timeout:g} s")
            else:
                self.failed(error)
            return None
        self._took(took)
        return found

    def failed(self, error: BaseException) -> None:
        """Count a call that raised, or an answer that cannot be used."""
        self.failures += 1
        self._count(f"krowl/hooks/failed_count/{self.name}")
        if self.failures == 1:
            logger.error(
                "Hook %s failed, and its default holds; further ones are counted as"
                " krowl/hooks/failed_count/%s: %s",
                self.name,
                self.name,
                error,
                exc_info=error,
            )
        self._note_bad(f"{counted(self.failures, 'call')} failed, the last with {error!r}")

    def _took(self, seconds: float) -> None:
        if seconds > SLOW and not self._may_hold:
            self._is_slow(f"one call held the event loop for {seconds:.2f} s", seconds)
        elif self._bad:
            self._bad = max(0.0, self._bad - FORGIVEN)

    def _is_slow(self, how: str, seconds: float = 0.0) -> None:
        self.slow += 1
        self._count(f"krowl/hooks/slow_count/{self.name}")
        if self.slow == 1:
            logger.warning(
                "Hook %s is slow: %s; further ones are counted as krowl/hooks/slow_count/%s",
                self.name,
                how,
                self.name,
            )
        if seconds >= HELD:
            self._cut_off(how)
        else:
            self._note_bad(f"{counted(self.slow, 'call')} took too long, the last: {how}")

    def _note_bad(self, why: str) -> None:
        self._bad += 1
        if self._bad >= BAD_MAX:
            self._cut_off(why)

    def _cut_off(self, why: str) -> None:
        if self.cut:
            return
        self.cut = why[:300]
        self._count(f"krowl/hooks/cut_off_count/{self.name}")
        logger.error(
            "Hook %s is cut off until the next start, and its default holds: %s", self.name, why
        )

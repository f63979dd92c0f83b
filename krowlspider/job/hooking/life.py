"""Hooks of the crawl as a whole: its start, its end, its log, and URLs from outside."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from krowlspider.errors import counted
from krowlspider.frontier.store.store import STORE_ERRORS
from krowlspider.hooks.words import Enqueued, HookError, state_text
from krowlspider.urls.seeds import BadSeed, Seed, parse_seed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from krowlspider.hooks.calls import Call
    from krowlspider.job.hooking.hooked import Hooked

logger = logging.getLogger(__name__)

# URLs from outside that wait to be taken, and those taken in one turn of the event loop.
WAITING_MAX = 100_000
_AT_ONCE = 200
# Seeds of `Hooks.start`.
_SEEDS_MAX = 1_000_000


class HookLife:
    """Runs the hooks of a crawl from its start to its end.

    ``give`` queues seeds with their states as JSON by URL, and returns how many were new;
    ``make_durable`` returns once all is on disk; ``promote`` looks at known seeds in short steps.
    """

    def __init__(
        self,
        hooked: Hooked,
        *,
        give: Callable[[list[Seed], dict[str, str]], int],
        promote: Callable[[], Iterator[None]],
        make_durable: Callable[[], Awaitable[object]],
    ):
        self._hooked = hooked
        self._give = give
        self._promote = promote
        self._make_durable = make_durable
        self._loop = asyncio.get_running_loop()
        self._waiting = 0
        self._is_over = False
        self._lock = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._handler: _LogHandler | None = None
        if (call := hooked.calls.get("log")) is not None:
            self._handler = _LogHandler(call)
            logging.getLogger().addHandler(self._handler)

    async def start(self, seeds: Sequence[str]) -> list[tuple[Seed, str]] | None:
        """Return the seeds to crawl, with their states as JSON; None: all, as they are."""
        self._hooked.hooks._enqueue = self.enqueue
        if (call := self._hooked.calls.get("start")) is None:
            return None
        found = await call.answer(seeds)
        if found is None:
            return None
        pairs = found.items() if isinstance(found, Mapping) else found
        items = call.items(pairs, _SEEDS_MAX)
        if items is None:
            return None
        try:
            states = dict(items) if isinstance(found, Mapping) else dict.fromkeys(items)
            return [(_seed(url), state_text(state, url)) for url, state in states.items()]
        except (HookError, TypeError) as error:
            call.failed(error)
            return None

    @property
    def wants_seeds(self) -> bool:
        """Return whether `Hooks.start` is overridden."""
        return "start" in self._hooked.calls

    def enqueue(self, urls: Iterable[str], state: Any = None) -> Enqueued:
        """Queue URLs, as `Hooks.enqueue`."""
        seeds = [_seed(url) for url in islice(urls, WAITING_MAX + 1)]
        text = state_text(state, seeds[0].url if seeds else "")
        with self._lock:
            if self._is_over:
                raise HookError("the crawl does not run any more")
            if self._waiting + len(seeds) > WAITING_MAX:
                raise HookError(
                    f"{counted(self._waiting, 'URL')} to be taken already, {WAITING_MAX:,} at most:"
                    " wait for what enqueue() returned before"
                )
            self._waiting += len(seeds)
            done = Enqueued(self._loop)
            # Nobody can cancel it.
            done.set_running_or_notify_cancel()
            self._loop.call_soon_threadsafe(self._begin, seeds, text, done)
        return done

    def _begin(self, seeds: list[Seed], state: str, done: Enqueued) -> None:
        task = self._loop.create_task(self._take(seeds, state, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, seeds: list[Seed], state: str, done: Enqueued) -> None:
        new, left = 0, len(seeds)
        try:
            while left:
                at = len(seeds) - left
                some = seeds[at : at + min(_AT_ONCE, self._hooked.links.at_once)]
                new += self._give(some, {each.url: state for each in some} if state else {})
                with self._lock:
                    self._waiting -= len(some)
                left -= len(some)
                for _ in self._promote():
                    await asyncio.sleep(0)
                await asyncio.sleep(0)
            await self._make_durable()
        except Exception as error:
            if not isinstance(error, STORE_ERRORS):
                logger.exception("URLs from outside could not be queued")
            # An error of the store has stopped the crawl.
            done.set_exception(error)
        else:
            done.set_result(new)
        finally:
            with self._lock:
                self._waiting -= left

    @property
    def is_taking(self) -> bool:
        """Return whether URLs from outside wait to be queued, or to be on disk."""
        return self._waiting > 0 or bool(self._tasks)

    async def end(self, reason: str) -> None:
        """Call `Hooks.end`, and name the hooks that are cut off."""
        if (call := self._hooked.calls.get("end")) is not None:
            await call.answer(reason)
        self._hooked.hooks._enqueue = None
        with self._lock:
            # A thread may be in `enqueue` still.
            self._is_over = True
        # What a thread has just given begins in the next turn.
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(self._tasks)
        if cut := self._hooked.cut_off():
            logger.warning("%s cut off: %s", counted(len(cut), "hook"), "; ".join(cut))
        if self._handler is not None:
            logging.getLogger().removeHandler(self._handler)


def _seed(text: str) -> Seed:
    """:raises HookError: it is no URL or domain"""
    try:
        seed = parse_seed(text.encode(errors="surrogateescape"))
    except (BadSeed, AttributeError) as error:
        raise HookError(f"{text!r:.300} cannot be queued: {error}") from error
    if seed is None or seed.words is not None:
        raise HookError(f"{text!r:.300} cannot be queued: give a URL or a domain alone")
    return seed


class _LogHandler(logging.Handler):
    """Calls `Hooks.log`. What the hook itself logs is not given to it."""

    def __init__(self, call: Call):
        super().__init__()
        self._call = call
        self._busy = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(self._busy, "is_on", False):
            return
        self._busy.is_on = True
        try:
            self._call.now(record)
        finally:
            self._busy.is_on = False

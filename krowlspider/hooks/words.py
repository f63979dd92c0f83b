"""What hooks are given and what they answer."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

if TYPE_CHECKING:
    from collections.abc import Generator

# Bytes of the state of a URL as JSON, on disk and between nodes.
STATE_MAX = 4096
# Fields that a reader of a record, or the crawl itself, needs.
KEPT = frozenset(
    {
        *("connection", "content-encoding", "content-length", "content-type", "etag", "host"),
        *("if-modified-since", "if-none-match", "last-modified", "transfer-encoding"),
    }
)


class HookError(ValueError):
    """An answer of a hook, or a URL given to `Hooks.enqueue`, that cannot be used."""


@dataclass(slots=True, eq=False)
class Url:
    """A URL in the crawl, as hooks see it: gocrawl's ``URLContext``.

    ``url`` is what is fetched, ``host`` its lower-case host. ``depth`` is 0 for a seed. ``source``
    is the URL of the page that named it, "" for a seed, for a URL put in from outside, and for a
    request of an ordinary spider. ``state`` is any value that JSON can hold, of STATE_MAX bytes at
    most: it comes back with the page, after a restart and on another node too.
    """

    url: str
    host: str
    depth: int
    source: str = ""
    state: Any = None


class Link(NamedTuple):
    """A link that `Hooks.visit` returns, with its state."""

    url: str
    state: Any = None


@dataclass(slots=True, frozen=True)
class Delay:
    """What is known as the wait of a host is set. All times are seconds.

    ``ours`` is the wait without the hook, ``least`` the one that no answer goes below: robots.txt's
    Crawl-delay and KROWL_DELAY_MIN; after 429, 503 or a failure all of ``ours``. ``crawl_delay`` is
    0 without one, ``latency`` the average of the host. ``status`` and ``size``, in bytes, are those
    of the last answer, 0 without one.
    """

    host: str
    ours: float
    least: float
    crawl_delay: float
    latency: float
    status: int
    size: int


@dataclass(slots=True, frozen=True)
class Failed:
    """A request that failed, or a page that could not be read.

    ``kind`` is ``fetch``, ``robots``, ``head`` or ``callback``. ``reason`` is the word under which
    the failure is counted.
    """

    kind: str
    url: Url
    reason: str
    error: BaseException


@dataclass(slots=True, frozen=True)
class Answer:
    """An answer before it is archived. ``headers`` are as received, ``size`` is in bytes."""

    status: int
    headers: list[tuple[bytes, bytes]]
    request_headers: list[tuple[bytes, bytes]]
    size: int


class Redact(frozenset[str]):
    """Names of header fields: the archive gets ``[removed]`` in place of their values.

    :raises HookError: readers of the record need the field
    """

    def __new__(cls, *names: str) -> Self:
        lowered = frozenset(name.strip().lower() for name in names)
        if needed := sorted(lowered & KEPT):
            raise HookError(f"the archive needs {needed[0]!r} as it is: leave it out of Redact()")
        if wrong := sorted(name for name in lowered if not _is_name(name)):
            raise HookError(f"{wrong[0]!r} is no name of a header field")
        return super().__new__(cls, lowered)


def _is_name(name: str) -> bool:
    return name.isascii() and name.replace("-", "").replace("_", "").isalnum()


KEEP = True
SKIP = False


class Enqueued(Future[int]):
    """How many URLs were new, once all are on disk. Await it in a coroutine, or call ``result()``
    in a thread that is not the crawl's.

    ``loop`` is that of the crawl.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        super().__init__()
        self._loop = loop

    def result(self, timeout: float | None = None) -> int:
        """Wait, and return how many URLs were new.

        :raises HookError: the crawl waits for itself
        """
        if not self.done() and asyncio._get_running_loop() is self._loop:
            raise HookError("result() in the crawl's own thread waits for ever: await enqueue()")
        return super().result(timeout)

    def __await__(self) -> Generator[Any, None, int]:
        return asyncio.wrap_future(self).__await__()


def state_text(state: Any, url: str) -> str:
    """Return a state as JSON; "" for None.

    :raises HookError: JSON cannot hold it, or it is too long
    """
    if state is None:
        return ""
    try:
        text = msgspec.json.encode(state)
    except (TypeError, ValueError, RecursionError) as error:
        raise HookError(f"the state of {url[:300]} is no JSON: {error}") from error
    if len(text) > STATE_MAX:
        raise HookError(
            f"the state of {url[:300]} has {len(text):,} bytes as JSON, more than {STATE_MAX:,}:"
            " keep it in a store of your own, and a key here"
        )
    return text.decode()


def state_of(text: str) -> Any:
    """Return the state that `state_text` made."""
    return msgspec.json.decode(text) if text else None

"""What a register does: keys, sessions and transactions; and the page budget that is kept in it.

The page budget of a cluster: each node takes portions of it in advance. A node that dies, or a lost
answer, may leave a portion unfetched.
"""

from __future__ import annotations

import asyncio
import random
from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeAlias

from krowlspider.cluster.membership import SharedKeys, UnansweredError, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krowlspider.cluster.ring.live_members import RegisterEntry

# One step of a transaction, as Consul's API has it.
Step: TypeAlias = dict[str, object]

# Tries to change a number that other nodes change at the same time, and the most seconds to wait
# before the next one, times their number.
_TRIES = 20
_WAIT = 0.01


class SessionGoneError(UnansweredError):
    """The register knows no such session: what was asked for is not done."""


class Register(Protocol):
    """The register of the clusters of one server; ``name`` says in a sentence which one.

    ``is_supervised``: a node that stops or dies is always started again, so no other one ever takes
    over its domains. Each call raises UnansweredError if the server does not answer in time.
    """

    @property
    def name(self) -> str: ...

    @property
    def is_supervised(self) -> bool: ...

    async def get(self, key: str) -> RegisterEntry | None:
        """Return a key as it stands now."""

    async def list(self, prefix: str) -> tuple[int, Sequence[RegisterEntry]]:
        """Return the index of the register, and the keys below ``prefix`` as they stand now."""

    async def wait_for_change(self, prefix: str, index: str | None, seconds: float) -> str:
        """Return the index of the last change below ``prefix``: when it is not ``index``, or after
        so many seconds."""

    async def change(self, *steps: Step) -> bool:
        """Do all steps of a transaction and return True; if one is refused, do none."""

    async def transact(self, *steps: Step) -> Sequence[RegisterEntry] | None:
        """Return the keys that the steps read, and those that they wrote, without values.

        Return None if one step is refused: then none is done.

        :raises SessionGoneError: a session that locks a key has ended
        """

    async def open_session(self, node: str, ttl: int) -> str:
        """Return a new session. It ends some time after ``ttl`` seconds without a renewal, and the
        keys that it holds stay."""

    async def renew_session(self, session: str) -> None:
        """:raises SessionGoneError: the session has ended"""

    async def end_session(self, session: str) -> None: ...

    def close(self) -> None:
        """Take no more calls."""


class Service(Protocol):
    """The node as the tools of operators find it."""

    def serve_metrics(self, host: str, port: int) -> None:
        """Have the next `renew` name the port of the metrics at an address of this machine."""

    async def renew(self) -> None: ...

    async def remove(self) -> None: ...


def step(verb: str, key: str, value: str | bytes | None = None, **options: object) -> Step:
    """Return a step of a transaction; ``options`` have the names of Consul's API, as in Index."""
    made: Step = {"Verb": verb, "Key": key, **options}
    if value is not None:
        made["Value"] = b64encode(value.encode() if isinstance(value, str) else value).decode()
    return made


def unchanged(key: str, entry: RegisterEntry | None) -> Step:
    """Return a step that is refused if a key is not as it was read: ``entry``, None for no key."""
    if entry is None:
        return step("check-not-exists", key)
    return step("check-index", key, Index=entry.modified)


class RegisterKeys:
    """`SharedKeys` below ``krowlspider/CLUSTER/``."""

    def __init__(self, register: Register, cluster: str) -> None:
        self._register = register
        self._root = f"krowlspider/{cluster}/"

    async def get(self, name: str) -> bytes | None:
        entry = await self._register.get(self._root + name)
        return None if entry is None else entry.value

    async def put(self, name: str, value: str | bytes) -> None:
        await self._register.change(step("set", self._root + name, value))

    async def delete(self, name: str) -> None:
        await self._register.change(step("delete", self._root + name))

    async def add(self, name: str, number: int, limit: int) -> int:
        key = self._root + name
        for tries in range(1, _TRIES + 1):
            entry = await self._register.get(key)
            try:
                before = int(entry.value) if entry else 0
            except ValueError as error:
                raise UnansweredError(f"the register's key {key} holds no number") from error
            change = max(-before, min(number, max(0, limit - before)))
            cas = step("cas", key, str(before + change), Index=entry.modified if entry else 0)
            if change == 0 or await self._register.change(cas):
                return change
            # A random wait: nodes that lost to the same one do not collide again.
            await asyncio.sleep(random.uniform(0, _WAIT * tries))
        raise UnansweredError(f"the register's key {key} changes too fast")


# The key with the number of pages that all nodes have taken.
PAGES = "pages"
# A portion is this part of a limit, and at most so many pages.
_PART = 200
_MOST = 500
# Seconds between two looks, and before the next try after a refusal: others may give pages back.
_AGAIN = 1.0


def portion_of(most: int, limit: int) -> int:
    """Return how much of a limit a node takes in advance at a time, ``most`` at most."""
    return max(1, min(most, limit // _PART))


async def pages_taken(keys: SharedKeys) -> int:
    """Return how many pages all nodes have taken and not given back.

    :raises UnansweredError: the server does not answer, or the key holds no number
    """
    try:
        return int(await keys.get(PAGES) or 0)
    except ValueError as error:
        raise UnansweredError(f"the key {PAGES!r} of the cluster holds no number") from error


class Allowance:
    """The part of the budget of ``limit`` pages that this node has taken.

    ``pages_left`` pages may be fetched now. ``spent``: nothing is left on any node. While the
    server of ``keys`` does not answer, nothing is added.
    """

    def __init__(self, keys: SharedKeys, limit: int, *, again: float = _AGAIN) -> None:
        self._keys = keys
        self._limit = limit
        self._portion = portion_of(_MOST, limit)
        self._again = again
        self.pages_left = 0
        self.spent = False
        self._low = asyncio.Event()

    def take(self) -> None:
        """Count a page that is being fetched."""
        self.pages_left -= 1
        if 2 * self.pages_left <= self._portion:
            self._low.set()

    def give_back(self) -> None:
        """Count a page that was taken and not fetched."""
        self.pages_left += 1

    async def run(self, on_change: Callable[[], None], wanted: Callable[[], bool]) -> None:
        """Run until cancelled. While no pages are ``wanted``, those left are given back.

        ``on_change`` is called when there are pages again, and when ``spent`` has changed.
        """
        while True:
            self._low.clear()
            had_pages, was_spent, is_wanted = self.pages_left > 0, self.spent, wanted()
            with suppress(UnansweredError):
                await (self._fill() if is_wanted else self._release())
            if was_spent != self.spent or (is_wanted and not had_pages and self.pages_left > 0):
                on_change()
            await wait_for(self._low, self._again)

    async def _fill(self) -> None:
        if self.pages_left < self._portion:
            # Pages are taken meanwhile: read ``pages_left`` after the answer, not before.
            portion = await self._keys.add(PAGES, self._portion - self.pages_left, self._limit)
            self.pages_left += portion
            self.spent = not self.pages_left

    async def _release(self) -> None:
        await self._give_all_back()
        self.spent = await pages_taken(self._keys) >= self._limit

    async def _give_all_back(self) -> None:
        left, self.pages_left = self.pages_left, 0
        if left:
            await self._keys.add(PAGES, -left, self._limit)

    async def close(self, *, over: bool = False) -> None:
        """Give back what was not fetched, after `run` has ended.

        If the crawl is ``over``, the next one may take all pages again.
        """
        with suppress(UnansweredError):
            await self._give_all_back()
            if over:
                await self._keys.delete(PAGES)

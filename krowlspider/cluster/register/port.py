"""What a register does: keys with values, sessions that hold keys, and transactions."""

from __future__ import annotations

import asyncio
import random
from base64 import b64encode
from typing import TYPE_CHECKING, Protocol, TypeAlias

from krowlspider.cluster.membership import UnansweredError

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    async def put(self, name: str, value: str) -> None:
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

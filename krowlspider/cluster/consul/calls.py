"""Calls to a Consul agent: in threads of their own, bounded in time, with one error for all that may go wrong."""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from consul import Consul
from consul.base import ConsulException
from consul.exceptions import ClientError, NotFound
from requests import RequestException

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.ring.census import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")
# One step of a transaction: its Verb, Key, and what the verb takes besides.
Step: TypeAlias = dict[str, object]

# Seconds to connect, and to wait for the next bytes of an answer.
_TIMEOUT = 2.0
# One for each that may wait at the same time: watches of members and of the signal, lease, view, publishing, heartbeat,
# budget, and one to spare.
_THREADS = 8


class SessionGoneError(Exception):
    """Consul knows no such session."""


class Agent:
    """A Consul agent, asked from the event loop.

    py-consul bounds the time to connect and between two pieces of an answer, not the whole; so each call is given up
    after twice that as well. Its thread goes on until it ends by itself, and what it asked may still be done:
    what must not be done late is asked for as a change of a known state.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = _TIMEOUT) -> None:
        parts = urlsplit(url)
        self.url = url
        self._timeout = timeout
        self._consul = Consul(
            parts.hostname,
            parts.port or 8500,
            scheme=parts.scheme,
            consistency="consistent",
            # As the tools of Consul have it.
            verify=os.environ.get("CONSUL_CACERT") or True,
            connections_timeout=timeout,
        )
        session = self._consul.http.session
        # No proxy and no .netrc comes between a node and its agent.
        session.trust_env = False
        # py-consul's transactions forget the token otherwise.
        if token:
            session.headers["X-Consul-Token"] = token
        self._pool = ThreadPoolExecutor(_THREADS, "consul")

    async def call(self, ask: Callable[[Consul], _T], *, wait: float = 0.0) -> _T:
        """What the agent answers; ``wait`` is that of a blocking query, in seconds.

        :raises SessionGoneError: the session named in it has ended
        :raises UnansweredError: no answer, not in time, or a refusal
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(2 * self._timeout + wait * 17 / 16):
                return await loop.run_in_executor(self._pool, ask, self._consul)
        except TimeoutError as error:
            raise UnansweredError(f"Consul at {self.url} does not answer") from error
        # ValueError, KeyError, TypeError: what came is not what Consul says.
        except (
            ConsulException,
            RequestException,
            OSError,
            ValueError,
            KeyError,
            TypeError,
        ) as error:
            said = " ".join(str(error).split())
            if isinstance(error, NotFound) or "invalid session" in said:
                raise SessionGoneError(said) from error
            raise UnansweredError(f"Consul at {self.url}: {said[:300]}") from error

    async def get(self, key: str) -> Entry | None:
        """A key as it stands now: the read is linearizable."""

        def ask(consul: Consul) -> Entry | None:
            _, found = consul.kv.get(key)
            return None if found is None else _entry(found, found["Value"])

        return await self.call(ask)

    async def list(self, prefix: str) -> tuple[int, list[Entry]]:
        """Consul's index, and the keys below ``prefix`` as they stand now: the read is linearizable."""

        def ask(consul: Consul) -> tuple[int, list[Entry]]:
            index, found = consul.kv.get(prefix, recurse=True)
            return int(index), [_entry(each, each["Value"]) for each in found or ()]

        return await self.call(ask)

    async def change(self, *steps: Step) -> bool:
        """Do all the steps of a transaction or, if one of them does not hold, none; False for none.

        :raises SessionGoneError: the session named in it has ended
        :raises UnansweredError: it may have been done or not
        """
        return await self.transact(*steps) is not None

    async def transact(self, *steps: Step) -> Sequence[Entry] | None:
        """As `change`; what the steps give, None for none. A step that writes gives its key without the value."""
        payload = [{"KV": step} for step in steps]

        def ask(consul: Consul) -> Sequence[Entry] | None:
            try:
                given = consul.txn.put(payload)["Results"]
            except ClientError as error:
                # 409: a step does not hold. What it names may be the session.
                if str(error).startswith("409") and "invalid session" not in str(error):
                    return None
                raise
            return [
                _entry(each["KV"], b64decode(each["KV"]["Value"] or "")) for each in given or ()
            ]

        return await self.call(ask)

    def close(self) -> None:
        """Take no more calls; those under way end in their own time."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with suppress(OSError):
            self._consul.http.session.close()


def coded(value: str | bytes) -> str:
    """A value as transactions want it."""
    return b64encode(value.encode() if isinstance(value, str) else value).decode()


def _entry(found: dict[str, Any], value: bytes | None) -> Entry:
    return Entry(found["Key"], value or b"", found.get("Session"), int(found["ModifyIndex"]))

"""The register that a setting names, and the calls of a Consul agent. Consul also lists the
node as a service.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from consul import Consul
from consul.base import ConsulException
from consul.exceptions import ACLPermissionDenied, ClientError, NotFound
from requests import RequestException, Timeout
from requests.exceptions import ConnectionError as UnconnectedError
from requests.exceptions import SSLError

from krowlspider.cluster.local import LocalRegister
from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.register.port import Register, Service, SessionGoneError, Step
from krowlspider.cluster.ring.live_members import RegisterEntry
from krowlspider.cluster.transport.redis_connection import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy.settings import BaseSettings

    from krowlspider.cluster.ring.ring import Member

_T = TypeVar("_T")
# Seconds to connect, and to wait for the next bytes of an answer.
_TIMEOUT = 2.0
# Calls that may be under way at a time: watch, lease, view, publish, heartbeat, signal, budget.
_THREADS = 8
_NO_ANSWER = "does not answer: start its agent, or correct KROWL_CONSUL"
# ValueError, KeyError, TypeError: the answer is not one of Consul.
_FAILURES = (ConsulException, RequestException, OSError, ValueError, KeyError, TypeError)


class Agent:
    """A `Register` in Consul, by its agent, called from the event loop.

    py-consul does not limit the time of a whole call, so it is given up after a while. Its thread
    goes on: whatever must not be done late is asked for as a change of a known state. ``on_answer``
    is called with the seconds of each call that was answered, blocking queries aside.
    """

    is_supervised = False

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = _TIMEOUT,
        on_answer: Callable[[float], None] | None = None,
    ) -> None:
        parts = urlsplit(url)
        self.name = f"Consul at {url}"
        self._timeout = timeout
        self._consul = Consul(
            parts.hostname,
            parts.port or 8500,
            scheme=parts.scheme,
            consistency="consistent",
            # The variable that Consul's own tools read.
            verify=os.environ.get("CONSUL_CACERT") or True,
            connections_timeout=timeout,
        )
        session = self._consul.http.session
        # No proxy and no .netrc between a node and its agent.
        session.trust_env = False
        # py-consul sends transactions without the token otherwise.
        if token:
            session.headers["X-Consul-Token"] = token
        self._pool = ThreadPoolExecutor(_THREADS, "consul")
        self._on_answer = on_answer

    async def call(self, ask: Callable[[Consul], _T], *, wait: float = 0.0) -> _T:
        """Return what ``ask`` returns; ``wait`` are the seconds of a blocking query.

        :raises SessionGoneError: the session named in the call has ended
        :raises UnansweredError: no answer, not in time, or a refusal
        """
        loop = asyncio.get_running_loop()
        begun = monotonic()
        try:
            # Consul adds up to a sixteenth to the wait of a blocking query.
            async with asyncio.timeout(2 * self._timeout + wait * 17 / 16):
                found = await loop.run_in_executor(self._pool, ask, self._consul)
        except TimeoutError as error:
            raise UnansweredError(f"{self.name} {_NO_ANSWER}") from error
        except _FAILURES as error:
            text = " ".join(str(error).split())
            if isinstance(error, NotFound) or "invalid session" in text:
                raise SessionGoneError(text) from error
            raise UnansweredError(f"{self.name} {_what_failed(error, text)}") from error
        if self._on_answer is not None and not wait:
            self._on_answer(monotonic() - begun)
        return found

    async def get(self, key: str) -> RegisterEntry | None:
        def ask(consul: Consul) -> RegisterEntry | None:
            _, found = consul.kv.get(key)
            return None if found is None else _entry(found, found["Value"])

        return await self.call(ask)

    async def list(self, prefix: str) -> tuple[int, list[RegisterEntry]]:
        def ask(consul: Consul) -> tuple[int, list[RegisterEntry]]:
            index, found = consul.kv.get(prefix, recurse=True)
            return int(index), [_entry(each, each["Value"]) for each in found or ()]

        return await self.call(ask)

    async def wait_for_change(self, prefix: str, index: str | None, seconds: float) -> str:
        def ask(consul: Consul) -> str:
            found, _ = consul.kv.get(prefix, keys=True, index=index, wait=f"{seconds:g}s")
            return str(found)

        return await self.call(ask, wait=seconds if index else 0.0)

    async def change(self, *steps: Step) -> bool:
        return await self.transact(*steps) is not None

    async def transact(self, *steps: Step) -> Sequence[RegisterEntry] | None:
        payload = [{"KV": each} for each in steps]

        def ask(consul: Consul) -> Sequence[RegisterEntry] | None:
            try:
                results = consul.txn.put(payload)["Results"]
            except ClientError as error:
                # 409: a step is refused. The reason may be its session.
                if str(error).startswith("409") and "invalid session" not in str(error):
                    return None
                raise
            found = [each["KV"] for each in results or ()]
            return [_entry(each, b64decode(each["Value"] or "")) for each in found]

        return await self.call(ask)

    async def open_session(self, node: str, ttl: int) -> str:
        # No check: Consul's own would end the session when other agents do not see this one. No
        # lock delay: the margins of a `MemberLease` are longer.
        options = {"checks": [], "lock_delay": 0, "behavior": "release", "ttl": ttl}
        name = f"krowlspider {node}"
        session: str = await self.call(lambda consul: consul.session.create(name, **options))
        return session

    async def renew_session(self, session: str) -> None:
        await self.call(lambda consul: consul.session.renew(session))

    async def end_session(self, session: str) -> None:
        await self.call(lambda consul: consul.session.destroy(session))

    def close(self) -> None:
        # Calls under way end by themselves.
        self._pool.shutdown(wait=False, cancel_futures=True)
        with suppress(OSError):
            self._consul.http.session.close()


def _what_failed(error: Exception, text: str) -> str:
    """Return the end of a sentence about Consul: what failed, and the way out."""
    if isinstance(error, SSLError):
        return f"has no trusted certificate ({text[:200]}): set CONSUL_CACERT in the environment"
    if isinstance(error, Timeout):
        return _NO_ANSWER
    if isinstance(error, UnconnectedError):
        cause = next((each.strerror for each in _chain(error) if each.strerror), "no connection")
        return f"cannot be reached ({cause}): start its agent, or correct KROWL_CONSUL"
    if isinstance(error, ACLPermissionDenied):
        return f"refuses the token ({text[:200]}): correct KROWL_CONSUL_TOKEN, or its policies"
    if isinstance(error, ConsulException) and "JSON" not in text:
        return f"has failed ({text[:200]}): see its log"
    return f"does not answer as a Consul does ({text[:200]}): correct KROWL_CONSUL"


def _chain(error: BaseException | None) -> Iterator[OSError]:
    """Yield the errors of the system that have led to an error."""
    while error is not None:
        if isinstance(error, OSError):
            yield error
        error = error.__cause__ or error.__context__


def _entry(found: dict[str, Any], value: bytes | None) -> RegisterEntry:
    return RegisterEntry(
        found["Key"], value or b"", found.get("Session"), int(found["ModifyIndex"])
    )


# Time after which Consul removes the service of a node that has died.
_REMOVE_AFTER = "10m"


class ConsulService:
    """The service ``krowlspider-CLUSTER``, critical after ``ttl`` seconds without `renew`."""

    def __init__(self, agent: Agent, cluster: str, own: Member, ttl: int) -> None:
        self._agent = agent
        self._name = f"krowlspider-{cluster}"
        self._id = f"{self._name}-{own.id}"
        self._check = {"TTL": f"{ttl}s", "DeregisterCriticalServiceAfter": _REMOVE_AFTER}
        # Without the password: everybody who may list Consul's services sees it.
        redis = shown(own.redis)
        self._meta = {
            "node": own.id,
            "weight": str(own.weight),
            "redis": redis,
            "address": own.address,
        }
        # Where Prometheus finds this node: address and port of the metrics; and whether the
        # registered service has them.
        self._metrics: tuple[str | None, int | None] = (None, None)
        self._is_current = True

    def serve_metrics(self, host: str, port: int) -> None:
        """Have the next `renew` register the address of the metrics as that of the service."""
        self._metrics = host, port
        self._is_current = False

    async def renew(self) -> None:
        """Pass the check; register the service first if the agent does not know it as it is."""
        try:
            is_known = self._is_current and await self._pass()
        except UnansweredError:
            # By version, Consul answers 404 or 500 for a check that it does not know.
            is_known = False
        if not is_known:
            host, port = self._metrics
            self._is_current = True
            await self._agent.call(
                lambda consul: consul.agent.service.register(
                    self._name,
                    service_id=self._id,
                    address=host,
                    port=port,
                    check=self._check,
                    meta=self._meta,
                )
            )
            await self._pass()

    async def _pass(self) -> bool:
        check = f"service:{self._id}"
        return bool(await self._agent.call(lambda consul: consul.agent.check.ttl_pass(check)))

    async def remove(self) -> None:
        await self._agent.call(lambda consul: consul.agent.service.deregister(self._id))


def open_register(
    settings: BaseSettings, on_answer: Callable[[float], None] | None = None
) -> Register:
    """Return the register of KROWL_CONSUL; ``on_answer`` is called as by `Agent`."""
    url: str = settings["KROWL_CONSUL"]
    if url.startswith("unix:"):
        return LocalRegister(url)
    return Agent(url, settings["KROWL_CONSUL_TOKEN"] or None, on_answer=on_answer)


def service_in(register: Register, cluster: str, own: Member, ttl: int) -> Service | None:
    """Return the node as a service of Consul; None by another register."""
    return ConsulService(register, cluster, own, ttl) if isinstance(register, Agent) else None

"""Nodes of a cluster without a crawl, by each kind of register, and what is in the register."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from krowlspider.cluster.local import LocalRegister, RegisterServer
from krowlspider.cluster.membership import end
from krowlspider.cluster.register.membership import RegisteredMembership
from krowlspider.cluster.register.port import Register, Service, step
from krowlspider.cluster.registers import Agent
from krowlspider.cluster.ring.claims import RegisterReading
from krowlspider.cluster.ring.ring import Member, Ring

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
    from pathlib import Path

    from krowlspider.cluster.ring.live_members import RegisterEntry

    from .servers import Server

_T = TypeVar("_T")
# The least that Consul takes.
TTL = 10
# Of the TTL, in which the lease of a renewal is good.
LEASE = 0.8 * TTL
A = Member("a", 1, "redis://:secret@127.0.0.1:1/0", "a.example:1")
B = Member("b", 2, "redis://127.0.0.1:2/0", "b.example:2")
RING_A, RING_AB = Ring([A]), Ring([A, B])


def open_at(server: Server | Place) -> Register:
    return LocalRegister(server.url) if server.url.startswith("unix:") else Agent(server.url)


def ask(server: Server | Place, question: Callable[[Register], Coroutine[Any, Any, _T]]) -> _T:
    """Return the answer of a register, while the event loop waits."""

    async def main() -> _T:
        register = open_at(server)
        try:
            return await question(register)
        finally:
            register.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, main()).result()


def value_of(server: Server | Place, cluster: str, name: str) -> bytes | None:
    entry = ask(server, lambda register: register.get(f"krowlspider/{cluster}/{name}"))
    return None if entry is None else entry.value


def put(server: Server | Place, cluster: str, name: str, value: str | bytes) -> None:
    change = step("set", f"krowlspider/{cluster}/{name}", value)
    assert ask(server, lambda register: register.change(change))


def delete(server: Server | Place, cluster: str, name: str) -> None:
    change = step("delete", f"krowlspider/{cluster}/{name}")
    assert ask(server, lambda register: register.change(change))


def found(server: Server | Place, cluster: str) -> None:
    """As if the cluster were old: leases begin at once."""
    put(server, cluster, "founded", "1")


def expect(server: Server | Place, cluster: str, *nodes: str) -> None:
    """Have nodes wait for each other before they fetch, as a supervisor does."""
    found(server, cluster)
    put(server, cluster, "seed", b"anyseed8".hex())
    for node in nodes:
        put(server, cluster, f"crew/{node}", "{}")


def is_founded(server: Server | Place, cluster: str) -> bool:
    return value_of(server, cluster, "founded") is not None


def entries_in(server: Server | Place, cluster: str, folder: str = "") -> Sequence[RegisterEntry]:
    return ask(server, lambda register: register.list(f"krowlspider/{cluster}/{folder}"))[1]


def sessions(server: Server | Place, cluster: str) -> dict[str, str]:
    """The id of the session of each node."""
    return {
        each.node: each.session for each in entries_in(server, cluster, "nodes/") if each.session
    }


def end_session(server: Server | Place, session: str) -> None:
    ask(server, lambda register: register.end_session(session))


def pending_nodes_in(server: Server | Place, cluster: str) -> set[str]:
    return {each.node for each in entries_in(server, cluster, "crew/")}


def call(agent: Server, method: str, path: str, body: bytes | None = None) -> bytes:
    """Return what Consul's HTTP API answers."""
    request = urllib.request.Request(f"{agent.url}{path}", data=body, method=method)
    with urllib.request.urlopen(request, timeout=5) as answer:
        said: bytes = answer.read()
        return said


@dataclass
class Place:
    """Where a register is, and the loop that serves it."""

    url: str
    loop: asyncio.AbstractEventLoop

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Connections are taken, and nothing is answered."""
        thawed = Event()
        self.loop.call_soon_threadsafe(thawed.wait)
        try:
            yield
        finally:
            thawed.set()


@contextmanager
def supervisor_register(folder: Path) -> Iterator[Place]:
    """The register of a supervisor, which runs in a thread."""
    loop = asyncio.new_event_loop()
    server = RegisterServer(folder / "file", write_text)

    async def run() -> None:
        await server.open(folder / "socket")

    loop.run_until_complete(run())
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        yield Place(f"unix://{folder / 'socket'}", loop)
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        # Questions that wait for a change.
        waiting = asyncio.all_tasks(loop)
        for task in waiting:
            task.cancel()
        loop.run_until_complete(asyncio.wait(waiting) if waiting else asyncio.sleep(0))
        loop.close()


def write_text(path: Path, text: str) -> None:
    path.write_text(text)


async def until(condition: Callable[[], bool], within: float) -> float:
    """Wait until something is so; the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + within, f"it is not so after {within} s"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


@asynccontextmanager
async def joined(
    server: Server | Place,
    cluster: str,
    own: Member,
    on_change: Callable[[RegisteredMembership], None] = lambda _: None,
    *,
    seed: bytes | None = None,
    gemini: bool = False,
    service: Service | None = None,
) -> AsyncIterator[RegisteredMembership]:
    """A node that has started; it leaves if the test has not had it do so."""
    register = open_at(server)
    node = RegisteredMembership(register, cluster, own, ttl=TTL, gemini=gemini, service=service)
    node.seed.value = seed
    try:
        await node.start(lambda: on_change(node))
        yield node
    finally:
        await node.leave()
        register.close()


@asynccontextmanager
async def waiting(
    server: Server | Place, cluster: str, own: Member
) -> AsyncIterator[RegisteredMembership]:
    """A node that waits for the dead."""
    register = open_at(server)
    node = RegisteredMembership(register, cluster, own, ttl=TTL, delay=900.0)
    await node.start()
    yield node
    await node.leave()
    register.close()


async def die(server: Server | Place, cluster: str, node: RegisteredMembership) -> None:
    """As if it was killed, and its session had ended."""
    await end(node._tasks)
    node._lease.lose()
    end_session(server, sessions(server, cluster)[node.own.id])


def reading(node: RegisteredMembership) -> RegisterReading:
    return RegisterReading.of(node.epoch, node.members)


def good(node: RegisteredMembership) -> bool:
    return time.monotonic() < node.good_until

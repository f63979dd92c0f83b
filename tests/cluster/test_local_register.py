"""The register of `scrapy node`: what its file keeps, and how a session ends with its process.

`test_register_membership` and `test_register_starts` hold it and Consul to one contract.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.local import LocalRegister, RegisterServer, RegisterStore
from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.register.port import SessionGoneError, step
from krowlspider.errors import JobError
from tests.cluster.register_nodes import write_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

ROOT = "krowlspider/c/"


def serve(folder: Path, use: Callable[[RegisterServer, LocalRegister], Awaitable[None]]) -> None:
    """Open the register of a folder, use it, and close it."""

    async def main() -> None:
        server = RegisterServer(folder / "file", write_text)
        await server.open(folder / "socket")
        try:
            await use(server, LocalRegister(f"unix://{folder / 'socket'}"))
        finally:
            server.close()
            (folder / "socket").unlink()

    asyncio.run(main())


async def hold(register: LocalRegister, name: str, value: str) -> str:
    session = await register.open_session("a", 10)
    assert await register.change(step("lock", ROOT + name, value, Session=session))
    return session


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    """Heartbeats and sessions are of processes, which have ended."""

    async def before(_: RegisterServer, register: LocalRegister) -> None:
        await hold(register, "nodes/a", "claims")
        await hold(register, "beats/a", "{}")

    async def after(server: RegisterServer, register: LocalRegister) -> None:
        assert not server.is_new
        entry = await register.get(f"{ROOT}nodes/a")
        assert entry is not None
        assert (entry.value, entry.session) == (b"claims", None)
        assert await register.get(f"{ROOT}beats/a") is None

    serve(tmp_path, before)
    serve(tmp_path, after)


def test_a_change_is_not_answered_before_it_is_on_the_disk(tmp_path: Path) -> None:
    async def use(server: RegisterServer, register: LocalRegister) -> None:
        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        server._write = refuse
        with pytest.raises(UnansweredError):
            await register.change(step("set", f"{ROOT}nodes/a", "claims"))
        server._write = write_text
        assert await register.change(step("set", f"{ROOT}nodes/b", "claims"))

    serve(tmp_path, use)
    text = (tmp_path / "file").read_text()
    assert "nodes/a" in text
    assert "nodes/b" in text


def test_an_unreadable_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("{")
    with pytest.raises(JobError, match="put it back from a copy"):
        RegisterServer(tmp_path / "file", write_text)


def test_the_lease_of_a_dead_process_ends_at_once(tmp_path: Path) -> None:
    async def use(server: RegisterServer, register: LocalRegister) -> None:
        session = await hold(register, "nodes/a", "claims")
        index = await register.wait_for_change(f"{ROOT}nodes/", None, 5)
        seen = asyncio.create_task(register.wait_for_change(f"{ROOT}nodes/", index, 60))
        await asyncio.sleep(0)
        await server.release("a")
        assert await asyncio.wait_for(seen, 5) != index
        entry = await register.get(f"{ROOT}nodes/a")
        assert entry is not None
        assert entry.session is None
        with pytest.raises(SessionGoneError):
            await register.renew_session(session)

    serve(tmp_path, use)


def test_a_caller_that_gives_up_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(_: RegisterServer, register: LocalRegister) -> None:
        _, writer = await asyncio.open_unix_connection(tmp_path / "socket")
        writer.close()
        index = await register.wait_for_change(f"{ROOT}nodes/", None, 5)
        left.append(asyncio.create_task(register.wait_for_change(f"{ROOT}nodes/", index, 60)))
        assert await register.get(f"{ROOT}nodes/a") is None

    left: list[asyncio.Task[str]] = []
    serve(tmp_path, use)
    assert caplog.messages == []


def test_a_register_that_has_ended_does_not_answer(tmp_path: Path) -> None:
    register = LocalRegister(f"unix://{tmp_path / 'socket'}")
    with pytest.raises(UnansweredError, match=r"scrapy node at .* does not answer"):
        asyncio.run(register.get("nodes/a"))


def test_sessions_end_without_renewals() -> None:
    now = 0.0
    store = RegisterStore(lambda: now, {})
    session = store.open_session(10)
    store.transact([step("lock", "nodes/a", "", Session=session)])
    now = 19.0
    store.renew_session(session)
    now = 38.0
    entry = store.get("nodes/a")
    assert entry is not None
    assert entry.session == session
    now = 39.0
    (entry,) = store.list("")[1]
    assert entry.session is None
    with pytest.raises(SessionGoneError):
        store.transact([step("lock", "nodes/a", "", Session=session)])


def test_a_refused_transaction_changes_nothing() -> None:
    store = RegisterStore(lambda: 0.0, {"nodes/a": b"1"})
    before = store.list("")
    assert (
        store.transact([step("set", "nodes/b", "1"), step("check-not-exists", "nodes/a")]) is None
    )
    assert store.list("") == before

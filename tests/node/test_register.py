"""Which processes a supervisor starts, by the register of the last start."""

from __future__ import annotations

import asyncio
import json
from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import Settings

from krowlspider.cluster.local import LocalRegister
from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.register.membership import RegisteredMembership
from krowlspider.cluster.register.port import step
from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.errors import JobError
from krowlspider.job.folder import SOCKETS
from krowlspider.node.processes import ProcessRegister
from krowlspider.node.tree import Tree
from krowlspider.programs.ring import Command, show

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

NAME = "c"


def start(
    folder: Path,
    wanted: Sequence[str],
    act: Callable[[ProcessRegister, LocalRegister], Awaitable[None]],
) -> list[str]:
    """Open the register as a supervisor of these processes, and act; return which are leaving."""

    async def main() -> list[str]:
        tree = Tree(folder)
        register = ProcessRegister(tree, NAME, wanted)
        for process in wanted:
            (folder / process).mkdir(exist_ok=True)
        socket = folder / "socket"
        await register.open(socket, anew=False)
        try:
            await act(register, LocalRegister(f"unix://{socket}"))
        finally:
            register.close()
            socket.unlink()
        return register.leaving

    return asyncio.run(main())


async def joined(register: LocalRegister, process: str) -> RegisteredMembership:
    node = RegisteredMembership(register, NAME, Member(process), ttl=10)
    await node.start()
    await node.publish((Ring(map(Member, ("p1", "p2", "p3"))),))
    return node


async def nothing(*_: object) -> None: ...


def test_processes_with_hosts_are_started_until_they_have_none(tmp_path: Path) -> None:
    """p2 has died, and p3 was stopped; then p3 hands everything over. p4 has never had a folder."""

    async def before(_: ProcessRegister, register: LocalRegister) -> None:
        await joined(register, "p2")
        await (await joined(register, "p3")).leave(returns=True)

    async def after(_: ProcessRegister, register: LocalRegister) -> None:
        node = await joined(register, "p3")
        await node.dismiss()
        await node.leave()

    assert start(tmp_path, ["p1", "p2", "p3"], before) == []
    assert start(tmp_path, ["p1"], nothing) == ["p2", "p3"]
    assert start(tmp_path, ["p1", "p4"], after) == ["p2", "p3"]
    (tmp_path / "p4").rmdir()
    assert start(tmp_path, ["p1"], nothing) == ["p2"]


def test_a_process_has_joined_with_its_first_heartbeat(tmp_path: Path) -> None:
    """Not while it waits for the others; and not after its death."""

    async def act(supervised: ProcessRegister, register: LocalRegister) -> None:
        node = await joined(register, "p1")
        await node.beat({})
        assert supervised.joined() == set()
        await node.beat({"start": 1, "beat": 1})
        assert supervised.joined() == {"p1"}
        await supervised.end_lease("p1")
        assert supervised.joined() == set()

    start(tmp_path, ["p1"], act)


@pytest.mark.parametrize(("sent", "kept"), [("STOP", None), ("PAUSED", b"PAUSED")])
def test_a_start_lifts_the_signal_that_has_ended_the_last_one(
    tmp_path: Path, sent: str, kept: bytes | None
) -> None:
    """While no process runs nobody could. A pause stays: a person at the page can end it."""
    key = f"krowlspider/{NAME}/signal"
    found: list[bytes | None] = []

    async def send(_: ProcessRegister, register: LocalRegister) -> None:
        await register.change(step("set", key, sent))

    async def look(_: ProcessRegister, register: LocalRegister) -> None:
        entry = await register.get(key)
        found.append(None if entry is None else entry.value)

    start(tmp_path, ["p1"], send)
    start(tmp_path, ["p1"], look)
    assert found == [kept]


def test_folders_without_a_register_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p1").mkdir()
    with pytest.raises(JobError, match=r"no file 'register'.*: put it back from a copy"):
        Tree(tmp_path).check()


# Each but the first is JSON of a register that no start has written.
@pytest.mark.parametrize("text", ["{", "{}", '{"krowlspider/other/seed":"MTI="}'])
def test_a_register_that_lost_its_content_is_refused(tmp_path: Path, text: str) -> None:
    """A new seed, and new owners, would make each process refuse its own folder."""
    start(tmp_path, ["p1"], nothing)
    assert start(tmp_path, ["p1"], nothing) == []
    (tmp_path / "register").write_text(text)
    with pytest.raises(JobError, match=rf"{tmp_path}/register .*put .* back from a copy"):
        start(tmp_path, ["p1"], nothing)
    assert (tmp_path / "register").read_text() == text


def test_ring_takes_the_folder_of_the_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At any length of its path: that of a socket is short."""
    tree, sockets = tmp_path / ("long" * 40), tmp_path / "sockets"
    for folder in (tree / "redis", tree / "p1", sockets):
        folder.mkdir(parents=True)
    (tree / SOCKETS).symlink_to(sockets)
    command = Command()
    command.settings = settings = Settings()
    settings.setmodule("krowlspider.settings", priority="project")
    settings.set("KROWL_CLUSTER", NAME)
    parser = ArgumentParser()
    command.add_options(parser)

    async def ask(*arguments: str) -> Any:
        opts, rest = parser.parse_known_args([*arguments, "--json"])
        code = await show(rest, opts, settings)
        return code, json.loads(capsys.readouterr().out)

    async def main() -> None:
        with pytest.raises(JobError, match=r"is no JOBDIR of scrapy node: there is no file"):
            await ask(str(tree))
        register = ProcessRegister(Tree(tree), NAME, ["p1"])
        await register.open(sockets / "register", anew=False)
        try:
            node = await joined(LocalRegister(f"unix://{sockets}/register"), "p1")
            await node.beat({"start": 1, "beat": 1})
            for folder in (tree, tree / "p1"):
                _, found = await ask(str(folder))
                assert [row["id"] for row in found["nodes"]] == ["p1"]
            code, owned = await ask(str(tree), "https://example.org/")
            assert (code, owned[0]["domain"]) == (0, "example.org")
        finally:
            register.close()
        with pytest.raises(UnansweredError, match="is it still running"):
            await ask(str(tree))

    asyncio.run(main())

"""A hand-over loses nothing when either process is killed, or a disk is lost."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.cluster.forwarding import clients, drive
from tests.job.handover.hosts import to_there
from tests.job.handover.nodes import (
    EVERYWHERE,
    STEPS,
    frontier,
    pages,
    process,
    receiving,
    sender_of,
    urls,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.servers import Server
    from tests.frontier.conftest import World


@contextmanager
def opened(folder: Path) -> Iterator[tuple[World, World]]:
    here, there = frontier(folder, "here"), frontier(folder, "there")
    try:
        yield here, there
    finally:
        here.store.close()
        there.store.close()


def run_until(line: str, *arguments: str | Path) -> None:
    """Run a process until it prints a line."""
    with process(*arguments) as running:
        assert running.stdout is not None
        assert line in (printed.strip() for printed in running.stdout)


@pytest.mark.slow
def test_killed_sender_loses_and_doubles_nothing(server: Server, tmp_path: Path) -> None:
    with opened(tmp_path) as (here, _):
        here.add(*pages(60))
        here.commit()
    with process("receive", server.url, tmp_path):
        for steps in (1, 7, 61, 200, 290):
            with process("send", server.url, tmp_path) as sender:
                assert sender.stdout is not None
                # Later steps may have ended.
                for _ in range(steps):
                    sender.stdout.readline()
        run_until("all", "send", server.url, tmp_path)
    with opened(tmp_path) as (here, there):
        assert urls(here) == []
        assert urls(there) == pages(60)
        assert there.frontier.queued == 180


@pytest.mark.slow
def test_killed_receiver_loses_and_doubles_nothing(server: Server, tmp_path: Path) -> None:
    """It is killed between any two steps."""
    with opened(tmp_path) as (here, _):
        # More hosts than the batches of a receiver that reaches each step twice.
        here.add(*pages(1500, 1))
        here.commit()
    with process("send", server.url, tmp_path) as sender:
        for step in STEPS:
            run_until("here", "receive", server.url, tmp_path, step)
        with process("receive", server.url, tmp_path):
            assert sender.stdout is not None
            assert "all\n" in sender.stdout
    with opened(tmp_path) as (here, there):
        assert urls(here) == []
        assert urls(there) == pages(1500, 1)
        assert there.frontier.queued == 1500


def test_host_lost_with_a_disk_is_sent_again(
    server: Server, tmp_path: Path, here: World, there: World
) -> None:
    here.add(*(f"http://a.test/{page}" for page in range(40)))
    new = frontier(tmp_path / "new", "there")

    async def main() -> None:
        reached = asyncio.Event()
        held = asyncio.Event()

        async def make_durable() -> None:
            if reached.is_set():
                await held.wait()

        def taken(count: int) -> None:
            if count == 12:
                reached.set()

        async with clients(server.url) as (client,):
            sender = sender_of(here, lambda _: client)
            sending = asyncio.create_task(sender.send_all(to_there, EVERYWHERE))
            async with receiving(there, client, taken, make_durable=make_durable):
                await reached.wait()
            async with receiving(new, client):
                await sending

    drive(main())
    assert new.queued("a.test") == [f"http://a.test/{page}" for page in range(40)]
    new.store.close()

"""What the inbox cannot read or take goes to the dead list, with its reason."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from krowlspider.cluster.transport.inbox import DEAD_BYTES, Lengths, waiting
from krowlspider.cluster.transport.posts import encode_ask

from .forwarding import LATE, SPIDER, Sink, clients, drive, eventually, lag, messages, running, urls
from .inboxes import DEAD, HOSTS, ROBOTS, emptied, inbox, push
from .servers import Server
from .test_message import BAD


class Bomb:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._path}",)


def test_junk_goes_to_the_dead_list_with_its_reason(server: Server, tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    junk = [*BAD, bomb, pickle.dumps({"url": "http://a.test/"}), b"\x00" * (8 << 20)]
    good = messages(len(junk))

    async def main() -> None:
        sink = Sink()
        async with clients(server.url) as (client,):
            await push(client, [each for pair in zip(junk, good, strict=True) for each in pair])
            worker = inbox(client, sink, wall=lambda: 1234.5678)
            async with running(worker), lag() as late:
                left = await emptied(client)
            assert left.dead == len(junk)
            notes = [json.loads(note) for note in await client.lrange(DEAD, 0, -1)][::-1]
        assert late[0] < LATE
        assert sink.urls == urls(len(junk))
        assert worker.stats.dead == len(junk)
        assert not worker.stats.dead_lost
        assert not worker.stats.failed
        for note, data in zip(notes, junk, strict=True):
            assert note["message"] == data[:DEAD_BYTES].decode("utf-8", "backslashreplace")
            assert 0 < len(note["reason"]) <= 200
            assert note["time"] == 1234.568
        assert not (tmp_path / "exploded").exists()

    drive(main())


def test_dead_list_keeps_the_newest_up_to_its_cap(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("krowlspider.cluster.transport.inbox.DEAD_MAX", 10)

    async def main() -> None:
        async with clients(server.url) as (client,):
            await push(client, [b"bad %d" % n for n in range(25)])
            worker = inbox(client, Sink())
            async with running(worker):
                assert (await emptied(client)).dead == 10
            assert json.loads(await client.lindex(DEAD, 0))["message"] == "bad 24"
            assert worker.stats.dead == 25

    drive(main())


def test_refused_chunks_go_to_the_dead_list(
    server: Server,
) -> None:
    async def main() -> None:
        found: list[int] = []

        async def take(chunks: list[bytes]) -> list[str | None]:
            found.extend(map(int, chunks))
            return ["odd" if int(chunk) % 2 else None for chunk in chunks]

        async with clients(server.url) as (client,):
            await push(client, [b"%d" % n for n in range(300)], HOSTS)
            worker = inbox(client, Sink(), take_hosts=take)
            async with running(worker):
                await eventually(lambda: len(found) == 300)
                left = await emptied(client)
            assert left == Lengths(0, 0, 0, 150)
            notes = [json.loads(note) for note in await client.lrange(DEAD, 0, -1)][::-1]
        assert found == list(range(300))
        assert [int(note["message"]) for note in notes] == list(range(1, 300, 2))
        assert {note["reason"] for note in notes} == {"odd"}
        assert (worker.stats.taken, worker.stats.dead) == (0, 150)

    drive(main())


def test_unreadable_robots_messages_go_to_the_dead_list(server: Server) -> None:
    """They count as waiting until they are taken, also while the frontier is full."""

    async def main() -> None:
        taken: list[Any] = []

        async def take(found: list[Any]) -> list[None]:
            taken.extend(found)
            return [None] * len(found)

        async with clients(server.url) as (client,):
            good = encode_ask("a", 7, "http://b.test/robots.txt")
            await push(client, [b"{}", good, good.replace(b":1", b":2", 1)], ROBOTS)
            assert await waiting(client, SPIDER) > 0
            options = {"take_robots": take, "paused": lambda: True}
            async with running(inbox(client, Sink(), **options)):
                await eventually(lambda: bool(taken))
                assert (await emptied(client)).dead == 2
            assert await waiting(client, SPIDER) == 0
            assert [message.number for message in taken] == [7]

    drive(main())

"""Helpers for tests of the hand-over: a host, and what a frontier has of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from krowlspider.frontier.moves.chunks import Chunk, decode_chunk, encode_chunk

if TYPE_CHECKING:
    from tests.frontier.conftest import World

HOST_NAME = "a.test"


def url(number: int) -> str:
    return f"http://{HOST_NAME}/{number}"


def urls(*numbers: int) -> list[str]:
    return [url(number) for number in numbers]


def chunks(world: World) -> list[Chunk]:
    """Return all chunks of the host, which stays sealed."""
    departure = world.departures.begin(HOST_NAME)
    found: list[Chunk] = []
    while (chunk := departure.chunk(len(found))) is not None:
        found.append(decode_chunk(encode_chunk(chunk)))
    return found


def do(world: World, *wanted: str) -> None:
    """Fetch pages and commit."""
    for expected in wanted:
        world.clocks.pass_(5)
        assert world.fetch() == expected
    world.commit()


def content(world: World, *kinds: bytes) -> dict[bytes, bytes]:
    return dict(item for kind in kinds or (b"",) for item in world.store.items(kind))


def put_retry(world: World, wait: float) -> None:
    """Retry the first page after ``wait`` seconds."""
    lease = world.pop()
    assert lease is not None
    world.frontier.schedule.release(lease.host, 0.25)
    due = world.frontier.now() + wait
    world.frontier.queues.replace(lease, structs.replace(lease.entry, retries=1, due=due))

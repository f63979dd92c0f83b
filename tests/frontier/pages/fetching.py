"""Fetch pages of a frontier under test, with what their answers say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from krowlspider.frontier.entry import Fetched
from krowlspider.frontier.pages.rows import rows_in
from krowlspider.recrawl.validators import Meaning

if TYPE_CHECKING:
    from krowlspider.frontier.pages.row import PageRow
    from tests.frontier.conftest import World

SHA1 = b"s" * 20


class Written(NamedTuple):
    """A receipt of the archive."""

    payload: bytes
    url: str
    date: float


def fetched_at(started: float, url: str, payload: bytes = SHA1, **more: Any) -> Fetched:
    """Return an answer whose record has its payload itself."""
    values = {"status": 200, "etag": b"", "modified": b"", "meaning": Meaning.ORDINARY, **more}
    return Fetched(started, receipt=Written(payload, url, started), **values)


def fetch_page(world: World, started: float, **more: Any) -> str:
    """Fetch the next page, acknowledge it and commit; return its URL."""
    lease = world.pop()
    assert lease is not None
    lease.fetched = fetched_at(started, lease.entry.url, **more)
    world.frontier.schedule.release(lease.host, 0.25)
    world.frontier.acknowledge(lease)
    world.commit()
    world.clocks.pass_(5)
    return lease.entry.url


def rows(world: World, host: str | None = None) -> list[PageRow | None]:
    return list(rows_in(world.store, host))

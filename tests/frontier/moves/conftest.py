"""The frontier that hands over: one over each store, with little and with much memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.store.store import LevelStore
from tests.frontier.conftest import LIMITS, TINY, KeptMemoryStore, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["leveldb, tiny", "memory, roomy"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "memory, roomy":
        kept = KeptMemoryStore()
        yield World(lambda: kept, limits=LIMITS)
        return
    folder = tmp_path / "db"
    world = World(lambda: LevelStore(folder, create=not folder.exists()), limits=TINY)
    yield world
    world.store.close()


@pytest.fixture
def other() -> World:
    kept = KeptMemoryStore()
    return World(lambda: kept, node="there")

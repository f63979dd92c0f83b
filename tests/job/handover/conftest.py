"""The Redis servers of `tests.cluster`, and the frontiers of two nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.conftest import _redis, own_server, server
from tests.job.handover.nodes import frontier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.frontier.conftest import World

__all__ = ["_redis", "own_server", "server"]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    world = frontier(tmp_path, "here")
    yield world
    world.store.close()


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    world = frontier(tmp_path, "there")
    yield world
    world.store.close()

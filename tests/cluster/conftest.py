"""Servers that tests share, as starting one takes a second or two, and servers of their own."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from tests.cluster.register_nodes import supervisor_register
from tests.cluster.servers import consul_agent, redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.register_nodes import Place
    from tests.cluster.servers import Server

_numbers = count()


@pytest.fixture(scope="session")
def consul(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An agent that no test stops; each test takes a cluster of its own."""
    with consul_agent(tmp_path_factory.mktemp("consul") / "agent") as agent:
        yield agent


@pytest.fixture(scope="session")
def _supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with supervisor_register(tmp_path_factory.mktemp("register")) as place:
        yield place


@pytest.fixture(params=["consul", "supervisor"])
def register(request: pytest.FixtureRequest) -> Server | Place:
    """A register of each kind, that no test stops; each test takes a cluster of its own."""
    found: Server | Place = request.getfixturevalue(request.param.replace("super", "_super"))
    return found


@pytest.fixture(scope="session")
def _redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("redis") / "server"
    with redis_server(folder, "--appendfsync", "always") as server:
        yield server


@pytest.fixture
def server(_redis: Server) -> Server:
    """A Redis that holds nothing, and that no test stops or changes."""
    with Redis.from_url(_redis.url) as client:
        client.flushall()
    return _redis


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A Redis of the test's own."""
    # By default Redis may defer writing what it has acknowledged, while an older fsync lasts.
    with redis_server(tmp_path / "redis", "--appendfsync", "always") as server:
        yield server


@pytest.fixture
def cluster() -> str:
    """The name of a cluster that no other test has."""
    return f"test{next(_numbers)}"

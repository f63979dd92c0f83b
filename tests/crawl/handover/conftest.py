"""The Redis servers of `tests.cluster`."""

from tests.cluster.conftest import _redis, own_server, server

__all__ = ["_redis", "own_server", "server"]

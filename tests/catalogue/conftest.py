from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.postgresql import Server, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A server that the tests of a process share. Each makes a database of its own in it."""
    with running() as server:
        yield server

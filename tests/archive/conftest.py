from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .faultpoints import Archiving, dead_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def archiving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archiving]:
    process = Archiving(tmp_path_factory.mktemp("log") / "log")
    yield process
    process.close()


@pytest.fixture(scope="session")
def dead(archiving: Archiving, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dead_job(archiving, tmp_path_factory.mktemp("dead") / "job")

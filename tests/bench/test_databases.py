"""The benchmark of databases writes what it says."""

from __future__ import annotations

import pytest

from bench import databases


@pytest.mark.slow
def test_each_database_is_measured() -> None:
    figures = databases.measure(20, 2, None)
    assert set(figures) == {"postgresql", "sqlite"}
    assert all(min(rates.values()) > 0 for rates in figures.values())

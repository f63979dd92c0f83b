"""The benchmark of catalogues writes what it says."""

from __future__ import annotations

import pytest

from bench import databases


@pytest.mark.slow
def test_each_sink_is_measured() -> None:
    figures = databases.measure(20, 2, None)
    assert set(figures) == {"parquet", "postgresql", "sqlite"}
    assert all(min(rates.values()) > 0 for rates in figures.values())

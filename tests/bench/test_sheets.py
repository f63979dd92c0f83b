"""The benchmark of sheets finds hosts with a sheet, and others without."""

from __future__ import annotations

from bench import sheets


def test_each_figure_is_measured() -> None:
    figures = sheets.measure(200, 1)
    assert len(figures) == 7
    assert min(figures.values()) >= 0

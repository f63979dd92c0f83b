"""The benchmark of graphs makes one, and checks it against exact centralities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench import graph

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_a_graph_is_made_and_checked(tmp_path: Path):
    figures = graph.measure(20_000, 50, tmp_path)
    assert figures["host"]["vertices"] == pytest.approx(2_000, rel=0.1)
    assert figures["host"]["links"] == pytest.approx(20_000, rel=0.3)
    # So small a graph is exact.
    assert figures["errors"]["max"] < 1e-9
    assert figures["warc"]["links"] > 900
    assert "pages a CPU second" in graph.table(figures)

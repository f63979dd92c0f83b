"""A table calls its test with each row, and names the one that fails."""

from __future__ import annotations

from inspect import signature

import pytest

from tests.support.tables import table


def test_each_row_is_tried_in_each_row_of_the_other_table() -> None:
    seen = []

    @table(("a", "b"), [(1, 2), (3, 4)])
    @table("c", "xy")
    def tried(a: int, b: int, c: str) -> None:
        seen.append((a, b, c))

    assert not signature(tried).parameters
    tried()
    assert sorted(seen) == [(1, 2, "x"), (1, 2, "y"), (3, 4, "x"), (3, 4, "y")]


def test_the_row_that_fails_is_named() -> None:
    @table("number", [1, 0])
    def tried(number: int) -> None:
        if not number:
            pytest.fail("none")

    with pytest.raises(pytest.fail.Exception) as failed:
        tried()
    assert failed.value.__notes__ == ["in the row {'number': 0}"]

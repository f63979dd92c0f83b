"""Whatever strangers send is read in CPU time linear in its bytes, and raises nothing unforeseen.

A short run of what `make fuzz` does at length: inputs of one or two small pieces many times each,
between a beginning and an end.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, Target
from tests.fuzz.work import excess
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

CORPUS = Path(__file__).parent / "corpus"
# Bytes of an input: at one nanosecond for each two of them, what is quadratic takes four seconds.
SIZE = 64 * 1024


def repeated(start: bytes, parts: list[bytes], end: bytes) -> bytes:
    room = SIZE // len(parts)
    return b"".join([start, *(part * (room // len(part)) for part in parts), end])


@table("name", TARGETS)
def test_repeated_pieces_are_read_in_linear_time(name: str) -> None:
    target = TARGETS[name]
    piece = st.sampled_from(target.pieces)
    few = st.lists(piece, max_size=2).map(b"".join)
    part = st.lists(piece, min_size=1, max_size=2).map(b"".join)

    @settings(
        max_examples=10,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(few, st.lists(part, min_size=1, max_size=2), few)
    def examine(start: bytes, parts: list[bytes], end: bytes) -> None:
        data = repeated(start, parts, end)[: target.longest]
        assert not excess(target, data)

    examine()


@table("name", TARGETS)
def test_no_bytes_raise(name: str) -> None:
    target = TARGETS[name]
    few = st.lists(st.sampled_from(target.pieces) | st.binary(max_size=20), max_size=12)

    @settings(max_examples=60, derandomize=True, database=None, deadline=None)
    @given(few.map(b"".join))
    def examine(data: bytes) -> None:
        target.run(data[: target.longest])

    examine()


def corpus() -> Iterator[tuple[str, Path]]:
    for path in sorted(CORPUS.glob("*/*")):
        yield path.parent.name, path


@pytest.mark.parametrize(
    ("name", "path"), [pytest.param(*each, id="-".join(each[1].parts[-2:])) for each in corpus()]
)
def test_what_was_found_once_is_read_in_linear_time(name: str, path: Path) -> None:
    assert not excess(TARGETS[name], path.read_bytes())


def test_work_that_grows_by_the_square_is_noticed() -> None:
    def square(data: bytes) -> None:
        for at in range(0, len(data), 4):
            data.find(b"b", at)

    assert excess(Target(square, (b"a",), per_byte=1e-7, floor=0.001), b"a" * SIZE * 3)
    assert not excess(
        Target(lambda data: data.find(b"b"), (b"a",), per_byte=1e-7, floor=0.001), b"a" * SIZE * 3
    )

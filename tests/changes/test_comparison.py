"""How similar two texts are, and what differs."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.changes.comparison import difference, is_same_text, similarity
from tests.support.tables import table
from tests.support.work import seconds

if TYPE_CHECKING:
    from pathlib import Path

LINES = st.lists(st.sampled_from(["", *"abcdefg"]), max_size=30)


@table(
    ("before", "after", "share"),
    [
        ("", "", 1),
        ("", "a", 0),
        ("a", "a", 1),
        ("a b", "A  B", 1),
        ("a b", "a c", 0),
        # Of "a b c", "b c d" and "b c e" one is in both.
        ("a b c d", "a b c e", 0.3333),
        ("a b c d", "a b c d e", 0.6666),
        ("a b c a b c", "a b c a b c a b c", 1),
        # Chinese has no spaces: three sequences of five are in both.
        ("港口周一开", "港口周一关", 0.5),
    ],
)
def test_similarity(before: str, after: str, share: float):
    assert similarity([before], [after]) == similarity([after], [before]) == share


def test_similarity_does_not_see_lines():
    assert similarity(["a b", "c d"], ["a", "b c d"]) == 1


def test_a_small_change_is_never_rounded_up():
    words = [str(n) for n in range(100_000)]
    assert similarity([" ".join(words)], [" ".join([*words, "x"])]) == 0.9999


def test_text_is_the_same_in_other_lines():
    assert is_same_text(["a b", "c"], ["a", "b c"])
    assert not is_same_text(["a b"], ["a  b"])


@given(LINES, LINES)
def test_a_difference_makes_one_text_of_the_other(before: list[str], after: list[str]):
    text, is_cut = difference(before, after)
    assert not is_cut
    assert applied(text, before) == after


def applied(text: str, before: list[str]) -> list[str]:
    """Return what a unified difference makes of a text; its lines must be those that it names."""
    result: list[str] = []
    at = 0
    for line in text.splitlines():
        kind, rest = line[0], line[1:]
        if kind == "@":
            first, _, count = line.split()[1].removeprefix("-").partition(",")
            start = int(first) - (count != "0")
            result += before[at:start]
            at = start
            continue
        if kind != "+":
            assert before[at] == rest
            at += 1
        if kind != "-":
            result.append(rest)
    return result + before[at:]


def test_lines_of_an_empty_text_are_counted_from_none():
    assert difference([], ["a"]).text == "@@ -0,0 +1 @@\n+a\n"
    assert difference(["a"], []).text == "@@ -1 +0,0 @@\n-a\n"


def test_patch_takes_a_difference(tmp_path: Path):
    before = [f"line {n}" for n in range(40)]
    after = [*before[:7], "new", *before[8:30], *before[33:]]
    file = tmp_path / "text"
    file.write_text("\n".join(before) + "\n")
    text = difference(before, after).text
    subprocess.run(["patch", "-s", file], input=text.encode(), check=True)
    assert file.read_text().splitlines() == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # A long line, many characters, and many lines.
        (["a" * 2_000], ["b"]),
        ([f"{n} {'a' * 900}" for n in range(30)], ["b"]),
        (["a"], [str(n) for n in range(2_500)]),
    ],
)
def test_a_difference_that_is_cut_says_so(before: list[str], after: list[str]):
    text, is_cut = difference(before, after)
    assert is_cut
    assert 0 < len(text) <= 20_000


def test_a_change_behind_much_that_is_the_same_is_not_cut():
    same = [str(n) for n in range(50_000)]
    text, is_cut = difference([*same, "a", *same], [*same, "b", *same])
    assert (text.splitlines()[1:], is_cut) == ([" 49999", "-a", "+b", " 0"], False)


@pytest.mark.parametrize("kinds", [1, 21, 2_000])
def test_work_is_bounded(kinds: int):
    chance = random.Random(kinds)
    one, other = ([str(chance.randrange(kinds)) for _ in range(500_000)] for _ in range(2))
    assert seconds(lambda: difference(one, other), enough=1) < 1
    assert seconds(lambda: similarity(one, other), enough=2) < 2

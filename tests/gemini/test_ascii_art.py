"""Which preformatted blocks are pictures: a labelled set, and the ancestor's cases."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from krowlspider.gemini.ascii_art import is_art

# Blocks of three sorts, each after a line with its label: pictures made by hand here, banners that
# fonts of figlet made of our words, and code, tables, diagrams and texts.
_FILE = (Path(__file__).parent / "blocks.txt").read_text()
BLOCKS = [
    (label == "art", name, text)
    for label, name, text in re.findall(r"(?ms)^%% (art|text): (.+?)\n(.*?)\n(?=%% |\Z)", _FILE)
]
# Four equal characters in a row, the ancestor's characters, and its patterns.
_ANCESTOR = re.compile(r"([^ \t])\1{3}|[☆★░█⣿⡇⢀┼╭]|\(_-<|_ _ _ _")

STATION = r"""
        __
.-----.|__|.-----.-----.
|  _  ||  ||     |  _  |
|   __||__||__|__|___  |
|__|   station   |_____|
    """


def test_the_labelled_set_is_told_apart() -> None:
    wrong = [name for is_picture, name, text in BLOCKS if is_art(text) is not is_picture]
    assert len(BLOCKS) > 120
    assert len(wrong) <= 0.01 * len(BLOCKS), wrong


def test_no_text_of_the_set_is_lost() -> None:
    lost = [name for is_picture, name, text in BLOCKS if not is_picture and is_art(text)]
    assert lost == []


def test_the_ancestor_loses_tables_and_code() -> None:
    """The reason to count words: 2A calls one in six of these texts a picture."""
    texts = [text for is_picture, _, text in BLOCKS if not is_picture]
    lost = [text for text in texts if _ANCESTOR.search(text)]
    assert len(lost) > len(texts) / 6


# TLGS: tlgsutils/tests/utils_test.cpp. It has two more, a logo and a skull in a starry sky, of
# which the set has the like.
@pytest.mark.parametrize(
    "text",
    [
        STATION,
        "███████▎██████▎▅████▅\n█████▎━━━━███████▎████\n ━━━━━━━ ━━━━━━ ━━━━━",
        " .-----.\n| .---. |\n| |_ _| |\n| |   | |\n '-----'",
        " .   +. :: .:.  .\n.:: ::.\\######. :/\n : .:.\\ ### .:/ \n . :.:\\.__.:/ .",
    ],
)
def test_pictures_of_the_ancestor_are_pictures(text: str) -> None:
    assert is_art(text)


@pytest.mark.parametrize("text", ["", "  \n\t\n", "~*~*~*~", ":-)"])
def test_nothing_and_one_line_are_no_picture(text: str) -> None:
    assert not is_art(text)


@pytest.mark.parametrize("unit", ["a", "-", "/\\ ", "ab ", "\n", "1a", "é", "0x", "a\n"])
def test_work_is_bounded(unit: str) -> None:
    text = unit * (10_000_000 // len(unit))
    before = time.process_time()
    is_art(text)
    assert time.process_time() - before < 0.5

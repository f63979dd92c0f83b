"""Repeated sequences of words, and lines that a host repeats on its pages."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from krowlspider.corpus.quality.measures import WORDS_MAX, HostLines, Sequences, without
from krowlspider.corpus.quality.rules import read_rules
from tests.corpus.warcs import html, made_of, response, write

if TYPE_CHECKING:
    from pathlib import Path


def plain_top(words: list[str], size: int) -> float:
    grams = [tuple(words[n : n + size]) for n in range(len(words) - size + 1)]
    if len(words) < 2 * size:
        return 0.0
    gram, count = Counter(grams).most_common(1)[0]
    return count * len("".join(gram)) / len("".join(words)) if count > 1 else 0.0


def plain_covered(words: list[str], size: int) -> float:
    seen: set[tuple[str, ...]] = set()
    covered: set[int] = set()
    for start in range(len(words) - size + 1):
        gram = tuple(words[start : start + size])
        if gram in seen:
            covered.update(range(start, start + size))
        seen.add(gram)
    return sum(len(words[n]) for n in covered) / (len("".join(words)) or 1)


@pytest.mark.parametrize("known", [1, 3, 40, 2000])
def test_sequences_agree_with_plain_counts(known: int) -> None:
    chance = random.Random(known)
    for length in (0, 1, 4, 9, 10, 57, 300, WORDS_MAX):
        words = [f"w{chance.randrange(known):x}" for _ in range(length)]
        # A stretch that occurs again, so that ten words repeat where few words are known.
        words = (words[: length // 2] + words[5:25] + words)[:length]
        found = Sequences(words)
        for size in (2, 3, 4):
            assert found.top(size) == plain_top(words, size)
            assert found.top(size) <= found.top_at_most(size)
        for size in range(5, 11):
            assert found.covered(size) == plain_covered(words, size)
            assert found.covered(size) <= found.covered(5)
            assert found.covered(size) <= found.covered_at_most(size)


def test_lines_of_a_host_are_removed_once_they_repeat() -> None:
    """A line that a page has twice counts once; another host has its own lines."""
    lines = HostLines(2)
    for number in range(4):
        text = f"All rights reserved\n\nText {number}\n  All rights reserved"
        kept = text if number < 2 else f"\nText {number}"
        assert without(text, lines.repeated("a.example", text)) == kept
    assert lines.repeated("b.example", "All rights reserved") == set()


def test_a_repeated_line_is_removed_from_markdown_too() -> None:
    lines = HostLines(1)
    for _ in range(2):
        repeated = lines.repeated("a.example", "Contents\n\n- First\n\nText")
    assert without("## Contents\n\n* First\n\nNew text", repeated) == "\n\nNew text"


@pytest.mark.parametrize("most", [10, 11])
def test_the_lines_remembered_are_bounded(most: int) -> None:
    """Lines that come again are remembered."""
    lines = HostLines(1, most)
    for number in range(1000):
        menu = "" if number else "\nmenu"
        text = f"{number}\nmenu\nthe {number}"
        assert without(text, lines.repeated("a", text)) == f"{number}{menu}\nthe {number}"
    assert len(lines._new) + len(lines._old) <= 2 * most
    assert lines.repeated("a", "0") == set()


def test_a_page_is_judged_without_the_lines_of_its_host(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text("boilerplate = {enabled = true, pages = 1}\n")
    notice = b"<p>This notice is on each page.</p></main>"
    pages = [html(n).replace(b"</main>", notice) for n in range(3)]
    pages.append(html(0).replace(b"</main>", notice))
    records = [response(f"http://a.example/{n}", page) for n, page in enumerate(pages)]
    source = write(tmp_path / "a.warc.gz", records)
    for rules, count in ((read_rules(), 4), (read_rules(path), 1)):
        made = made_of(source, rules)
        kept = [record for line, record in made if line.refusal is None]
        assert sum("This notice" in record.text for record in kept) == count
        # The last page is the first again: all its lines have come before.
        assert (made[-1][0].refusal is None) == (rules.boilerplate is None)

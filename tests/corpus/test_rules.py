"""The rules, and the fingerprints of texts."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from krowlspider.corpus.card import card
from krowlspider.corpus.document import Document
from krowlspider.corpus.duplicates import DuplicateIndex, Found, Place
from krowlspider.corpus.fingerprints import fingerprints
from krowlspider.corpus.quality.rules import read_rules
from krowlspider.errors import KrowlError
from tests.corpus.warcs import prose

if TYPE_CHECKING:
    from pathlib import Path

URL = "http://example.org/a"
GOOD = prose(1)
LONG = "Of the many things that we have had to do since then not one was easy to explain. "
LINES = "\n".join(prose(n, 12) for n in range(20))


def verdict(text: str, url: str = URL, language: str = "en", **changes: int) -> str:
    found = Document(text, language, 300, "utf-8", 5000, 0)
    for name, value in changes.items():
        setattr(found, name, value)
    rejected = read_rules().judge(found, url, [])
    return rejected.rule if rejected else ""


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (GOOD, ""),
        (LINES, ""),
        ("Too short. " * 3, "chars"),
        (GOOD + "\ufffd" * 50, "broken_chars"),
        ("Uncommonlylonglongwords antidisestablish. " * 10, "words"),
        ("a. b c d e " * 60, "word_length"),
        (GOOD + " # # # " * 40, "symbols"),
        ("\n".join(f"* {line}" for line in LINES.split("\n")), "bullet_lines"),
        ("\n".join(f"{line[:-1]}..." for line in LINES.split("\n")), "ellipsis_lines"),
        (GOOD + " 1234" * 100, "letter_words"),
        (" ".join(f"word{chr(97 + n % 26)}{n}." for n in range(90)), "stop_words"),
        (GOOD.replace(".", ""), "sentences"),
        (GOOD + " Lorem ipsum.", "lorem_ipsum"),
        (GOOD + " Please enable JavaScript.", "javascript"),
        (LINES + "\n" + "\n".join(["The same line of it."] * 12), "repeated_lines"),
        (
            prose(3, 60) + " " + LONG * 3,
            "repeated_5grams",
        ),
        (prose(3, 100) + " extraordinary circumstance" * 12 + " .", "top_2gram"),
    ],
)
def test_each_rule_rejects_its_pages(text: str, rule: str) -> None:
    assert verdict(text) == rule


@pytest.mark.parametrize(
    ("url", "changes", "rule"),
    [
        ("http://example.org/login?x", {}, "special"),
        ("http://example.org/find?q=1", {}, "special"),
        ("http://example.org/research/tagged", {}, ""),
        (URL, {"html_chars": 10**6}, "text_ratio"),
        (URL, {"link_chars": 10**5}, "link_ratio"),
        (URL, {"rank": 1300}, "rank"),
    ],
)
def test_pages_are_rejected_for_what_is_around_the_text(
    url: str, changes: dict[str, int], rule: str
) -> None:
    assert verdict(GOOD, url, **changes) == rule


def test_rules_of_words_spare_languages_without_spaces() -> None:
    text = "".join(chr(0x4E00 + n * 7 % 900) + "。" * (n % 9 == 0) for n in range(300))
    assert verdict(text, language="zh") == ""
    assert verdict(text, language="en") == "words"


def test_a_file_changes_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        "chars.min = 5\nwords.enabled = false\nsentences.enabled = false\nsignals.refused = []\n"
        'language.accepted = ["en"]\nduplicates.near = false\n'
    )
    rules = read_rules(path)
    short = Document("These are the words of which there is one.", "en", 1, "utf-8", 100, 0)
    assert rules.judge(short, URL, ["noai"]) is None
    assert rules.near is None
    short.language = "de"
    assert rules.judge(short, URL, []) == ("language", "de")
    assert read_rules().judge(short, URL, ["noai"]) == ("noai", "set")


def test_an_unknown_language_is_named_with_what_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('language.accepted = ["en", "unknown", "eng"]')
    with pytest.raises(
        KrowlError, match=r"language\.accepted has 'eng': .* af, ar, .* en, .* zh, unknown"
    ):
        read_rules(path)


@pytest.mark.parametrize(
    "text",
    [
        *("x = 1", "nosuch.min = 1", "chars.least = 1", 'chars.min = "1"', "chars.min = true", "["),
        *("duplicates.bits = 4", "duplicates.bits = 2.5", "duplicates.bits = -1"),
        *('signals.refused = ["noindx"]', "signals.refused = [[]]"),
    ],
)
def test_wrong_rules_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(KrowlError, match="rules"):
        read_rules(path)


# --- duplicates ---


def test_near_duplicates_are_found_and_no_others(tmp_path: Path) -> None:
    """Two words of 500 are changed; precision and recall are at least 0.95."""
    index = DuplicateIndex(tmp_path / "index")
    chance, found, wrong = random.Random(1), 0, 0
    # As frequent as the words of a language (Zipf's law), half of them those of a topic.
    shares = [1 / rank for rank in range(1, 1001)]
    for number in range(100):
        known = [f"word{n}" if n % 2 else f"topic{number}-{n}" for n in range(1000)]
        words = chance.choices(known, shares, k=500)
        text = " ".join(words)
        for place in chance.sample(range(500), 2):
            words[place] = "changed"
        for copy, each in enumerate((text, " ".join(words))):
            near = index.take(Place("f", number, copy), *fingerprints(each), 3)
            right = near is not None and near.place == Place("f", number, 0)
            found += bool(copy and right)
            wrong += bool(near is not None and not (copy and right))
    index.close()
    assert found >= 95
    assert wrong <= 5


def test_index_gives_the_same_answers_again(tmp_path: Path) -> None:
    """A slice is read again after a kill: its pages do not repeat themselves."""
    long = prose(1, 2000)
    texts = [long, prose(2), long.upper(), long.replace("river", "brook", 1)]
    index = DuplicateIndex(tmp_path / "index")

    def answers() -> list[Found | None]:
        places = (Place("f", 10, n) for n in range(len(texts)))
        return [index.take(p, *fingerprints(t), 3) for p, t in zip(places, texts, strict=True)]

    first = answers()
    index.sync()
    assert [each and each.place.number for each in first] == [None, None, 0, 0]
    assert answers() == first
    index.close()


def test_the_card_names_the_rules_that_held(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('words.min = 20\nword_length.enabled = false\nlanguage.accepted = ["en"]\n')
    counts = Counter({"accepted": 1, "rejected/words": 7})
    text = card(counts, Counter({"en": 1, "de": 0}), read_rules(path), "jsonl")
    assert "\n| en | 1 |\n" in text
    assert "| de |" not in text
    assert "\n| words | 7 |\n" in text
    assert "\nLanguages: en. Duplicates: the same words, SimHash within 3 bits.\n" in text
    assert "\n| words | 20 | 100,000 |\n" in text
    assert "\n| repeated_5grams |  | 0.15 |\n" in text
    assert "| word_length |" not in text

"""Lists of bad words, by language."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.corpus.quality.measures import BadWords
from krowlspider.corpus.quality.rules import read_rules
from krowlspider.corpus.text.document import Document
from krowlspider.errors import KrowlError
from tests.corpus.warcs import prose

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Nothing here", 0),
        ("A Darn thing. DARN!", 2),
        ("darning, undarn", 0),
        ("what the heck; what\nthe-heck what the", 2),
        ("ends with what the", 0),
    ],
)
def test_words_and_phrases_are_counted(text: str, count: int) -> None:
    assert BadWords(["darn", "What the heck"], "en").count(text) == count


def test_words_are_found_within_a_text_without_spaces() -> None:
    assert BadWords(["笨蛋", "c++"], "zh").count("你是笨蛋吗笨蛋") == 2
    assert BadWords([], "zh").count("你是笨蛋吗笨蛋") == 0


def test_a_page_with_a_bad_word_of_its_language_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text("# a list\n\ndarn\n")
    path = tmp_path / "rules.toml"
    path.write_text('bad_words.files = {en = "en.txt"}\n')
    page = Document(f"{prose(1)} A darn thing.", "en", 1, "utf-8")
    rules = read_rules(path)
    assert rules.judge(page, "http://a/", []) == ("bad_words", 1)
    assert read_rules().judge(page, "http://a/", []) is None
    path.write_text('bad_words = {files = {en = "en.txt"}, max = 1}\n')
    assert read_rules(path).judge(page, "http://a/", []) is None
    path.write_text('bad_words.files = {de = "en.txt"}\n')
    before = read_rules(path)
    assert before.judge(page, "http://a/", []) is None
    # A corpus is not continued with another list.
    (tmp_path / "en.txt").write_text("other\n")
    assert read_rules(path).source != before.source


def test_a_missing_list_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('bad_words.files = {en = "none.txt"}\n')
    with pytest.raises(KrowlError, match=r"bad_words\.files: .*none\.txt cannot be read"):
        read_rules(path)


def test_a_rule_without_a_list_is_off() -> None:
    assert not read_rules().source["bad_words"]["enabled"]
    assert "bad_words" not in [rule.name for rule in read_rules().rules]

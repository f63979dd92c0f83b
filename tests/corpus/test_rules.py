"""The rules, and the fingerprints of texts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from krowlspider.corpus.build import Contents
from krowlspider.corpus.figures import card
from krowlspider.corpus.optouts import OptOutSignal
from krowlspider.corpus.quality.measures import BadWords, Measures
from krowlspider.corpus.quality.rules import read_rules
from krowlspider.corpus.text.document import Document, Reading, document
from krowlspider.corpus.warc_pages import CapturedPage
from krowlspider.errors import KrowlError
from tests.corpus.warcs import prose
from tests.support.tables import table

if TYPE_CHECKING:
    from pathlib import Path

URL = "http://example.org/a"
GOOD = prose(1)
LONG = "Of the many things that we have had to do since then not one was easy to explain. "
LINES = "\n".join(prose(n, 12) for n in range(20))


def verdict(text: str, url: str = URL, language: str = "en", **changes: float) -> str:
    found = Document(text, language, 0.9, "utf-8")
    for name, value in changes.items():
        setattr(found, name, value)
    rejected = read_rules().judge(found, url, [])
    return rejected.rule if rejected else ""


@table(
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
        (LINES + "\n" + "\n".join(["The same line of it."] * 12), ""),
        (LINES + "\n" + "\n".join([LONG] * 44), "repeated_line_chars"),
        (prose(3, 60) + " " + LONG * 3, ""),
        (prose(3, 60) + " " + LONG * 8, "repeated_5grams"),
        (prose(3, 100) + " extraordinary circumstance" * 12 + " .", "top_2gram"),
    ],
)
def test_each_rule_rejects_its_pages(text: str, rule: str) -> None:
    assert verdict(text) == rule


# Rules that are off by default, with the limits of their authors.
GOPHER = "".join(
    f"repeated_{size}grams = {{enabled = true, max = {0.2 - size / 100:.2f}}}\n"
    for size in range(5, 11)
)


@pytest.mark.parametrize(
    ("share", "rule"),
    [
        (0.145, "repeated_6grams"),
        (0.135, "repeated_7grams"),
        (0.125, "repeated_8grams"),
        (0.115, "repeated_9grams"),
        (0.105, "repeated_10grams"),
        (0.095, None),
    ],
)
def test_gophers_limits_are_lower_for_longer_sequences(
    tmp_path: Path, share: float, rule: str | None
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(GOPHER)
    words = [f"w{chr(97 + n // 26)}{chr(97 + n % 26)}d{'.' * (n % 9 == 0)}" for n in range(400)]
    again = words[: round(400 * share / (1 - share))]
    found = Document(" ".join(["Of the", *words, *again]), "en", 0.9, "utf-8")
    rejected = read_rules(path).judge(found, URL, [])
    assert (rejected and rejected.rule) == rule


@pytest.mark.parametrize(
    ("rule", "text", "is_kept"),
    [
        ("sentence_lines", LINES, True),
        ("sentence_lines", LINES.replace(".", ",") + " End. End. End.", False),
        ("sentence_lines", "これは文です。\n" * 50, True),
        ("short_lines", LINES, True),
        ("short_lines", LINES + "\nA short line of it" * 60, False),
        ("line_breaks", LINES, True),
        ("line_breaks", LINES + "\nItem" * 190, False),
        ("confidence", LINES, True),
    ],
)
def test_rules_that_are_off_can_be_switched_on(
    tmp_path: Path, rule: str, text: str, is_kept: bool
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(f"{rule}.enabled = true\n")
    found = Document(text, "zh" if "。" in text else "en", 0.9, "utf-8")
    measure = next(each for each in read_rules(path).rules if each.name == rule)
    assert (measure.value_against(Measures(found, URL, {})) is None) == is_kept
    assert rule not in {each.name for each in read_rules().rules}


def test_what_is_around_the_text_rejects_no_page() -> None:
    """Scripts, styles, links and images of a page do not count."""
    menu = "".join(f"<a href=/{n}>A link of the menu {n}<img src={n}.png></a>" for n in range(900))
    html = f"<style>{'a{b:c}' * 9000}</style><nav>{menu}</nav><main><p>{GOOD}</p></main>"
    page = CapturedPage(URL, "", "", "", [], f"{html}<script>{'x=1;' * 90_000}</script>".encode())
    found = document(page, Reading())
    assert found.text == GOOD
    assert read_rules().judge(found, URL, []) is None


@pytest.mark.parametrize(
    ("accepted", "language", "is_kept"),
    [
        ("no", "nn", True),
        ("no", "no", True),
        ("sh", "bs", True),
        ("sh", "sr", True),
        ("hr", "bs", False),
        ("nn", "no", False),
    ],
)
def test_macro_languages_accept_their_members(
    tmp_path: Path, accepted: str, language: str, is_kept: bool
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(f'language.accepted = ["{accepted}"]\n')
    found = Document(GOOD, language, 0.9, "utf-8")
    assert (read_rules(path).judge(found, URL, []) is None) == is_kept


@table(
    ("url", "changes", "rule"),
    [
        ("http://example.org/login?x", {}, "special"),
        ("http://example.org/find?q=1", {}, "special"),
        ("http://example.org/research/tagged", {}, ""),
        (URL, {"confidence": 0.0}, ""),
        ("http://example.org/wiki/User_talk:X", {}, "special"),
        ("http://example.org/w?title=Special%3AX", {}, "special"),
        ("http://example.org/wiki/Specials:_X", {}, ""),
        ("http://example.org/user/login.php", {}, "special"),
        ("http://example.org/search/bridges/", {}, "special"),
        ("http://example.org/en/tags/bridge", {}, "special"),
        ("http://example.org/error/404", {}, "special"),
        # Articles below a folder of such a name.
        ("http://example.org/cart/history-of-the-ox-cart", {}, ""),
        ("http://example.org/register/of-births-1840", {}, ""),
        ("http://example.org/search/articles/bridge-closed", {}, ""),
        ("http://example.org/en/tags/bridge/article-1", {}, ""),
    ],
)
def test_pages_are_rejected_by_their_url(url: str, changes: dict[str, float], rule: str) -> None:
    assert verdict(GOOD, url, **changes) == rule


@pytest.mark.parametrize(
    ("title", "value"),
    [
        ("Page not found", 1.0),
        ("404 Not Found | Example", 1.0),
        ("404", 1.0),
        ("404 - Example", 1.0),
        ("Pages that were not found by explorers", 0.0),
        ("Page not foundations of law", 0.0),
        ("404 days at sea", 0.0),
    ],
)
def test_titles_of_error_pages_are_known(title: str, value: float) -> None:
    found = Document(GOOD, "en", 0.9, "utf-8", fields={"title": title})
    assert Measures(found, URL, {}).special() == value


@table("mark", [*"۔።։။។।॥།。", "་།"])
def test_sentences_end_by_the_marks_of_each_script(mark: str) -> None:
    found = Document(f"aa bb{mark}cc dd{mark}ee{mark}", "ur", 1, "utf-8")
    assert Measures(found, URL, {}).sentences() == 3


@pytest.mark.parametrize("language", ["th", "lo"])
def test_languages_without_full_stops_need_no_sentences(language: str) -> None:
    assert Measures(Document("aa bb cc", language, 1, "utf-8"), URL, {}).sentences() is None


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
    short = Document("These are the words of which there is one.", "en", 1, "utf-8")
    given = [OptOutSignal("noai", "urn:a")]
    assert rules.judge(short, URL, given) is None
    assert rules.similarity is None
    short.language = "de"
    assert rules.judge(short, URL, []) == ("language", "de")
    assert read_rules().judge(short, URL, given) == ("noai", "urn:a")


def test_an_unknown_language_is_named_with_what_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('language.accepted = ["en", "unknown", "eng"]')
    with pytest.raises(
        KrowlError, match=r"language\.accepted has 'eng': .* am, ar, .* en, .* zu, unknown"
    ):
        read_rules(path)


@pytest.mark.parametrize(
    "text",
    [
        *("x = 1", "nosuch.min = 1", "chars.least = 1", 'chars.min = "1"', "chars.min = true", "["),
        *("duplicates.bits = 4", "duplicates.bits = 2.5", "duplicates.bits = -1"),
        *('signals.refused = ["noindx"]', "signals.refused = [[]]"),
        *('pii.email = "hide"', "bad_words.files = {eng = 'x'}", "duplicates.similarity = 0.4"),
        *("boilerplate.pages = 0", "boilerplate.pages = 1.5"),
    ],
)
def test_wrong_rules_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(KrowlError, match="rules"):
        read_rules(path)


def test_the_card_names_the_rules_that_held(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        'words.min = 20\nword_length.enabled = false\nlanguage.accepted = ["en"]\n'
        "duplicates.similarity = 0.8\nboilerplate.enabled = true\n"
    )
    counts = Counter({"accepted": 1, "rejected/words": 7, "masked/email": 3})
    built = Contents(counts, Counter({"en": 1, "de": 0}))
    text = card(built, read_rules(path), "jsonl", "oldest", "last")
    assert "\n| en | 1 |\n" in text
    assert "| de |" not in text
    assert "\n| words | 7 |\n" in text
    assert "\n| email | 3 |\n" in text
    assert "\nLanguages: en. Duplicates: the same words, 80% of their sequences of five" in text
    assert " words in common; the oldest is kept." in text
    assert (
        " Versions of a URL: the last one. Lines on more than 10 pages of a host: removed.\n"
        in text
    )
    assert "\n| words | 20 | 100,000 |\n" in text
    assert "\n| repeated_5grams |  | 0.5 |\n" in text
    assert "| word_length |" not in text


# --- lists of bad words, by language ---


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

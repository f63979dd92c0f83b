"""Snippets of texts, corrected words, and scores: pure parts."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.search.ranking import Evidence, by_neighbourhood, score, title_likeness
from krowlspider.search.snippets import Piece, joined, marked, snippet, without_title
from krowlspider.search.spelling import corrected, distance, edits


def shown(text: str, *words: str, length: int = 100) -> str:
    pieces = snippet(text, words, lambda word: word.lower() in words, length)
    return "".join(f"[{each.text}]" if each.is_marked else each.text for each in pieces)


def test_snippet_shows_the_place_with_the_most_words():
    text = "alpha " + "x " * 200 + "the alpha and the beta " + "y " * 200
    assert "[alpha] and the [beta]" in shown(text, "alpha", "beta")
    assert shown(text, "alpha", "beta").startswith("…")
    assert shown(text, "alpha", "beta").endswith("…")


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("Short text", ("text",), "Short [text]"),
        ("Alphabet alpha", ("alpha",), "Alphabet [alpha]"),
        ("nothing here", ("alpha",), "nothing here"),
        ("a\n\t b\x00\u202ec", ("b",), "a bc"),
        ("a\u061c b\xad\u2060c\U000e0041", ("b",), "a bc"),
        ("検索エンジンの検索", ("検索",), "[検索]エンジンの[検索]"),
        ("", ("alpha",), ""),
    ],
)
def test_short_texts_are_shown_whole(text: str, words: tuple[str, ...], expected: str):
    assert shown(text, *words) == expected


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("\nA capsule\nIt has pages", "\nIt has pages"),
        ("A capsule", "A capsule"),
        ("A capsules", "A capsules"),
        ("About: A capsule", "About: A capsule"),
    ],
)
def test_snippet_does_not_repeat_the_title(text: str, rest: str):
    assert without_title(text, "A capsule") == rest


def test_title_is_marked_whole():
    assert marked("Alpha beta", ["beta"], lambda word: word == "beta") == [
        Piece("Alpha "),
        Piece("beta", is_marked=True),
    ]


@given(st.text(), st.lists(st.text(min_size=1, max_size=5), max_size=4))
def test_snippet_is_a_part_of_the_text(text: str, words: list[str]):
    pieces = snippet(text * 20, [word.lower() for word in words], lambda _: True, 40)
    assert len(joined(pieces)) <= 40 + 2
    assert all(each.text for each in pieces)


def test_hostile_text_takes_no_time():
    begun = time.thread_time()
    for text in ("a" * 10**7, "a " * 5 * 10**6, "\u202e" * 10**7):
        snippet(text, ["a", "aa"], lambda _: False)
        snippet(text, ["a"], lambda _: True)
    assert time.thread_time() - begun < 3


KNOWN = {"search": 100, "engine": 90, "frontier": 80, "form": 70, "from": 900, "queue": 60}


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("serch", "search"),
        ("saerch", "search"),
        ("searchh", "search"),
        ("earch", "search"),
        ("forntir", "frontier"),
        ("search", None),
        ("form", None),
        ("fron", "from"),
        ("zzzzzz", None),
        ("se", None),
        ("s" * 30, None),
        ("12345", None),
    ],
)
def test_words_that_were_meant(word: str, meant: str | None):
    assert corrected(word, lambda each: KNOWN.get(each, 0), lambda _: KNOWN) == meant


def test_rare_word_is_no_mistake_of_another_rare_one():
    known = {"serch": 3, "search": 20}
    assert corrected("serch", lambda each: known.get(each, 0), lambda _: ()) is None


@given(st.text(alphabet="abc", min_size=3, max_size=6))
def test_edits_are_one_mistake_away(word: str):
    found = {*edits(word)}
    assert all(distance(word, each, 2) <= 1 for each in found)
    assert len(found) < 70 * len(word)


@pytest.mark.parametrize(
    ("one", "other", "far"),
    [("ab", "ba", 1), ("abc", "abc", 0), ("abc", "xyz", 3), ("abcd", "acbd", 1), ("a", "abcd", 3)],
)
def test_distances(one: str, other: str, far: int):
    assert distance(one, other, 2) == far


def test_page_of_which_nothing_is_known_has_the_score_of_its_text():
    assert score(Evidence(3.5), ["a"]).value == 3.5


@pytest.mark.parametrize(
    "better",
    [
        Evidence(2.0),
        Evidence(1.0, title=["a"]),
        Evidence(1.0, linking_hosts=10),
        Evidence(1.0, anchors=5.0, linking_hosts=1),
        Evidence(1.0, harmonic=100.0),
        Evidence(1.0, name="a"),
    ],
)
def test_each_part_raises_a_score_and_is_explained(better: Evidence):
    base, found = score(Evidence(1.0), ["a"], "a"), score(better, ["a"], "a")
    assert found.value > base.value
    product = 1.0
    for _, factor, _ in found.parts:
        product *= factor
    assert product == pytest.approx(found.value)


def test_links_of_a_farm_are_bounded():
    """A million hosts that say the words count no more than 65,536 do."""
    farm = score(Evidence(1.0, anchors=1e9, linking_hosts=10**9), ["a"]).value
    assert farm == score(Evidence(1.0, anchors=1e9, linking_hosts=2**16), ["a"]).value < 4


def test_likeness_of_titles():
    assert title_likeness(["a", "b"], ["b", "a"]) == 1.0
    assert title_likeness(["a", "b"], ["a", "c"]) == pytest.approx(1 / 3)
    assert title_likeness([], ["a"]) == title_likeness(["a"], []) == 0.0


def test_neighbourhood_ranks_as_in_tlgs():
    """Its formula: the harmonic mean of exp(6.5 authority / most) and of the text, which counts
    less from 48 KB."""
    found = by_neighbourhood(
        {"a": 2.0, "b": 2.0, "c": 2.0}, {"a": 1.0, "b": 0.5}, {"c": 48_000 + 3_000, "a": 48_000}
    )
    assert found["a"].value == pytest.approx(2 * 665.1416 * 2 / 667.1416)
    assert found["b"].value == pytest.approx(2 * 25.7903 * 2 / 27.7903, rel=1e-4)
    large = 2.0 / 1.3132617
    assert found["c"].value == pytest.approx(2 * large / (1 + large), rel=1e-4)

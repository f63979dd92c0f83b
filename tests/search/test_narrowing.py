"""Queries of frequent words: what is found at less cost, and when the whole query is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.search.formats import Captures
from krowlspider.search.narrowing import Bounds
from krowlspider.search.page import page
from krowlspider.search.query import parse
from krowlspider.search.searcher import ENOUGH, Searcher, SearchResults
from tests.search.indexes import Page, index

if TYPE_CHECKING:
    from pathlib import Path

PAGES = 600
# A query of these pages costs more than that, if its words are on all of them.
SMALL = Bounds(whole=200, chosen=150, first=200, looked_up=3000)
WORDS = ("kiwi", "banana", "cherry")


def _pages() -> list[Page]:
    """Each page has the three words, and each fourth has two of them in its title. Sixty have
    another word in the text or the title alone."""
    made = []
    for number in range(PAGES):
        title = f"Number {number}"
        if number % 4 == 0:
            first, second = WORDS[number % 3], WORDS[(number + 1) % 3]
            title = f"{first} {second} " + "and other fruit " * (number % 5)
        if number % 50 == 0:
            title += " seldom"
        body = "kiwi banana cherry " + ("melon" if number % 10 or not number % 50 else "seldom")
        lang = "de" if number % 2 else "en"
        made.append(Page(f"https://h{number}.test/", title, body, lang=lang))
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return index(tmp_path_factory.mktemp("index"), _pages())


def narrowed(folder: Path, bounds: Bounds = SMALL) -> Searcher:
    searcher = Searcher(folder)
    searcher.opened.view().compiler.bounds = bounds
    return searcher


def urls(found: SearchResults) -> list[str]:
    return [each.url for each in found.results]


@pytest.mark.parametrize(
    "text",
    [
        "kiwi",
        "kiwi banana",
        "kiwi banana cherry",
        "kiwi OR banana",
        '"kiwi banana"',
        '"kiwi banana" cherry',
        "kiwi banana lang:en",
        "kiwi banana -lang:de",
        "kiwi OR seldom",
        "kiwi OR seld*",
    ],
)
def test_frequent_words_find_the_same_pages(folder: Path, text: str):
    whole = Searcher(folder).search(parse(text))
    found = narrowed(folder).search(parse(text))
    assert urls(found) == urls(whole)
    assert [each.score for each in found.results] == pytest.approx(
        [each.score for each in whole.results], rel=0.02
    )
    assert whole.is_exact
    assert not found.is_exact
    assert ENOUGH <= found.total < whole.total


def test_fewer_pages_than_enough_are_not_the_answer(folder: Path):
    """All words are frequent, but most pages with a title of them are excluded."""
    text = "kiwi banana -intitle:fruit"
    found = narrowed(folder).search(parse(text), limit=100)
    titled = [url for url in urls(found) if int(url.partition(".")[0].rpartition("h")[2]) % 4 == 0]
    assert len(titled) < ENOUGH
    assert found.is_exact
    assert (found.total, found.reached) == (480, 100)


@pytest.mark.parametrize(
    "text", ["seldom", "seldom 599", "599", "melon", '"cherry melon"', "other fruit"]
)
def test_other_words_are_asked_as_they_are(folder: Path, text: str):
    """They are rare, or too few pages have them in the title."""
    whole = Searcher(folder).search(parse(text))
    found = narrowed(folder, SMALL._replace(whole=400)).search(parse(text))
    assert (urls(found), found.total) == (urls(whole), whole.total)
    assert found.is_exact


def test_rare_word_beside_a_frequent_one_may_be_anywhere(folder: Path):
    whole = Searcher(folder).search(parse("kiwi seldom"))
    found = narrowed(folder).search(parse("kiwi seldom"))
    assert urls(found) == urls(whole)
    assert (found.total, found.is_exact) == (60, False)


def test_pages_with_some_frequent_words_cost_little_too(folder: Path):
    text = "kiwi banana cherry nothing"
    whole = Searcher(folder).search(parse(text))
    found = narrowed(folder, SMALL._replace(chosen=400)).search(parse(text))
    assert urls(found) == urls(whole)
    assert whole.total == PAGES
    assert not found.is_exact


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two thirds of the pages have kiwi and banana in a row, a sixth has melon instead. Each has
    cherry, and one form of page, mostly the singular."""
    made = []
    for number in range(PAGES):
        fruit = "kiwi banana" if number % 3 else ("apple", "melon melon")[number % 2]
        form = "page" if number % 5 else "pages pages"
        title = "kiwi banana cherry" if number % 4 == 0 else f"Number {number}"
        made.append(Page(f"https://h{number}.test/", title, f"cherry {fruit} {form}"))
    return index(tmp_path_factory.mktemp("forms"), made)


@pytest.mark.parametrize(
    "text", ["kiwi OR melon cherry", '"kiwi banana" OR melon cherry', "pages cherry"]
)
def test_each_alternative_is_found_and_the_word_as_typed(forms: Path, text: str):
    """Of alternatives or forms of a word, the most frequent one does not leave the others out."""
    whole = Searcher(forms).search(parse(text))
    found = narrowed(forms).search(parse(text))
    assert urls(found) == urls(whole)


def test_pages_with_some_words_are_found_within_filters(forms: Path):
    """The narrowed query finds too few there."""
    found = narrowed(forms).search(parse("cherry kiwi nothing host:h1.test"))
    assert urls(found) == ["https://h1.test/"]
    assert (found.total, found.is_exact) == (1, True)


def test_pages_past_those_of_a_narrowed_query_are_found(folder: Path):
    """Fifty pages are enough for the first ten results, but not for a hundred."""
    searcher, query = narrowed(folder), parse("kiwi -intitle:banana")
    first, whole = searcher.search(query), searcher.search(query, limit=100)
    assert (first.total, first.is_exact) == (ENOUGH, False)
    assert (whole.total, whole.is_exact, len(whole.results)) == (500, True, 100)
    shown = page(first, {"q": "kiwi"}, 1, 10, Captures())
    assert "The first 50 are shown: give more words" in shown

"""Duplicates: copies are found, and nothing that has little in common with another page."""

from __future__ import annotations

import random
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from xxhash import xxh3_64_hexdigest

from krowlspider.corpus.copies.duplicates import DUPLICATE, DuplicateIndex, DuplicateMatch
from krowlspider.corpus.copies.fingerprints import (
    PLACES,
    VERSION,
    Fingerprints,
    bands,
    bits_apart,
    fingerprints,
    overlap,
    signature,
    sketch,
)
from krowlspider.corpus.copies.place import PagePlace
from tests.corpus.warcs import prose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

PAGES, TOPICS, WORDS = 60, 6, 500
SIMILARITY = 0.7
# As frequent as the words of a language (Zipf's law).
SHARES = [1 / rank for rank in range(1, 1001)]
FUNCTION = [
    *("the", "of", "and", "to", "a", "in", "is", "that", "it", "was", "for", "on", "are", "with"),
    *("as", "i", "his", "they", "be", "at"),
]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[DuplicateIndex]:
    index = DuplicateIndex(tmp_path / "index", SIMILARITY)
    yield index
    index.close()


def take(index: DuplicateIndex, texts: Sequence[str]) -> list[DuplicateMatch | None]:
    return [index.take(PagePlace("f", 7, n), fingerprints(text)) for n, text in enumerate(texts)]


def page(number: int, chance: random.Random) -> list[str]:
    """Return words of the language, of a topic, and of the page alone."""
    kinds = ("word", f"topic{number % TOPICS}-", f"own{number}-")
    known = [f"{kinds[n % 3]}{n}" for n in range(1000)]
    return chance.choices(known, SHARES, k=WORDS)


def shared(one: Sequence[str], other: Sequence[str]) -> float:
    """Return the share of the sequences of five words of two texts that both have."""
    a, b = ({tuple(words[n : n + 5]) for n in range(len(words) - 4)} for words in (one, other))
    return len(a & b) / len(a | b)


def test_a_version_has_the_same_fingerprints():
    """Those on disk are compared with new ones: change VERSION with these."""
    texts = (
        " ".join(f"word{chr(97 + n % 26)}{n * n % 997}" for n in range(count))
        for count in (5, 90, 5000)
    )
    made = [xxh3_64_hexdigest(b"".join(fingerprints(each))) for each in texts]
    assert (VERSION, made) == (4, ["e59a9aca40c2abc9", "452268955e64e719", "4d2ecd803829f055"])


def replaced(words: list[str], chance: random.Random, share: float = 0.02) -> list[str]:
    words = [*words]
    for place in chance.sample(range(len(words)), round(share * len(words))):
        words[place] = f"changed{place}"
    return words


def removed(words: list[str], chance: random.Random) -> list[str]:
    gone = set(chance.sample(range(len(words)), len(words) // 50))
    return [word for place, word in enumerate(words) if place not in gone]


def added(words: list[str], chance: random.Random) -> list[str]:
    words = [*words]
    for _ in range(len(words) // 50):
        words.insert(chance.randrange(len(words)), f"new{len(words)}")
    return words


def moved(words: list[str], chance: random.Random) -> list[str]:
    first = chance.randrange(len(words) - 40)
    return words[:first] + words[first + 20 : first + 40] + words[first : first + 20] + words[
        first + 40 :
    ]  # fmt: skip


def framed(words: list[str], chance: random.Random) -> list[str]:
    menu = [f"menu{n}" for n in range(WORDS // 20)]
    return [*menu, *words, *(f"footer{n}" for n in range(WORDS // 20))]


@pytest.mark.parametrize("change", [replaced, removed, added, moved, framed])
def test_changed_copies_are_found_and_no_others(
    index: DuplicateIndex, change: Callable[[list[str], random.Random], list[str]]
) -> None:
    """Edits of 2 % of the words; a header and a footer. Others of the topic are no copies."""
    chance, right, wrong = random.Random(1), 0, 0
    for number in range(PAGES):
        whole = page(number, chance)
        for copy, words in enumerate((whole, change(whole, chance))):
            found = index.take(PagePlace("f", number, copy), fingerprints(" ".join(words)))
            is_right = bool(copy) and found is not None and found.place == PagePlace("f", number, 0)
            right += is_right
            wrong += found is not None and not is_right
            if is_right:
                assert found is not None
                assert found.overlap == pytest.approx(shared(whole, words), abs=0.15)
    assert (right >= 0.95 * PAGES, wrong) == (True, 0)


def test_words_of_a_language_make_no_duplicates(index: DuplicateIndex) -> None:
    """Texts of 2,000 words that have only twenty function words in common, half of each text."""
    chance = random.Random(1)
    texts = [
        " ".join(chance.choice(FUNCTION) if n % 2 else f"w{number}x{n}" for n in range(2000))
        for number in range(100)
    ]
    assert take(index, texts) == [None] * len(texts)


def test_the_whole_of_a_long_text_counts(index: DuplicateIndex) -> None:
    """Four texts with the same first 2,300 words of 10,000; and one with another last word."""
    first = [f"first{n}" for n in range(2300)]
    texts = [" ".join([*first, *(f"t{text}w{n}" for n in range(7700))]) for text in range(4)]
    found = take(index, [*texts, texts[0] + " end", texts[0].upper()])
    assert found[:4] == [None] * 4
    near, same = found[4:]
    assert near is not None
    assert near.overlap is not None
    assert near.overlap > 0.99
    assert same == DuplicateMatch(PagePlace("f", 7, 0), DUPLICATE)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("One two  three\nfour five six", "one two three FOUR five\tsix", True),
        ("one two three four five six", "one two three four six five", False),
        ("one two", "One  two", True),
        ("one two", "two one", False),
        ("", "", True),
    ],
)
def test_duplicates_have_the_same_words(
    index: DuplicateIndex, one: str, other: str, is_same: bool
) -> None:
    expected = DuplicateMatch(PagePlace("f", 7, 0), DUPLICATE) if is_same else None
    assert take(index, [one, other]) == [None, expected]


# Chinese, Japanese and Thai, in short lines.
SCRIPTS = {"zh": (0x4E00, 900), "ja": (0x3041, 80), "th": (0x0E01, 46)}


@pytest.mark.parametrize(("first", "size"), SCRIPTS.values(), ids=SCRIPTS)
def test_texts_without_spaces_are_compared(index: DuplicateIndex, first: int, size: int) -> None:
    """A character counts as a word, whatever stands between lines."""
    chance = random.Random(1)
    texts = []
    for _ in range(3):
        letters = [chr(first + chance.randrange(size)) for _ in range(600)]
        texts.append("。\n".join("".join(letters[n : n + 12]) for n in range(0, 600, 12)))
    changed = texts[0].replace(texts[0][100], "a", 1).replace("。\n", "。", 9)
    found = take(index, [*texts, changed])
    assert found[:3] == [None] * 3
    assert found[3] is not None
    assert found[3].place == PagePlace("f", 7, 0)
    assert found[3].overlap is not None


@pytest.mark.parametrize("size", range(4, 20))
def test_spaces_decide_nothing_in_texts_without_them(index: DuplicateIndex, size: int) -> None:
    """Some tools put spaces into Japanese; a frame of long words is added to a copy."""
    chance = random.Random(1)
    letters = [chr(0x3041 + chance.randrange(80)) for _ in range(900)]
    text = " ".join("".join(letters[n : n + size]) for n in range(0, 900, size))
    frame = " ".join(f"an-entry-of-the-menu-{n}" for n in range(30))
    found = take(index, [text, f"{frame} {text}"])
    assert found[1] is not None
    assert found[1].place == PagePlace("f", 7, 0)


def test_the_most_similar_page_is_named(index: DuplicateIndex) -> None:
    chance = random.Random(1)
    whole = page(1, chance)
    texts = [replaced(whole, chance, share) for share in (0.01, 0.003, 0.012)]
    found = take(index, [" ".join(words) for words in (*texts, whole)])
    assert found[3] is not None
    assert found[3].place.number in {0, 1}


@pytest.mark.parametrize("words", [5, 6, 20, 130, 3000])
def test_a_signature_estimates_the_overlap(words: int) -> None:
    """With an error that is small for texts of each length. Fewer than five words have none."""
    chance = random.Random(1)
    for share in (0, 0.02, 0.2):
        one = [f"w{n}" for n in range(words)]
        other = replaced(one, chance, share)
        both = [fingerprints(" ".join(each)).minhash for each in (one, other)]
        assert {len(each) for each in both} == {PLACES}
        assert overlap(*both) == pytest.approx(shared(one, other), abs=0.25 if words < 30 else 0.12)
    assert fingerprints("only four words here").minhash == b""
    assert signature(b"") == b""
    assert bands(b"") == []


def test_sketches_differ_as_little_as_their_texts() -> None:
    chance = random.Random(1)
    for number in range(50):
        whole = page(number, chance)
        copy = replaced(whole, chance, 0.03)
        one, other = (fingerprints(" ".join(words)).minhash for words in (whole, copy))
        if overlap(one, other) >= SIMILARITY:
            assert (sketch(one) ^ sketch(other)).bit_count() <= bits_apart(SIMILARITY)
    assert bits_apart(1) == 0


@pytest.mark.parametrize("similarity", [None, 0.7])
def test_index_gives_the_same_answers_again(tmp_path: Path, similarity: float | None) -> None:
    """A slice that is read again after a kill holds no duplicates of its own pages."""
    long = prose(1, 2000)
    texts = [long, prose(2), long.upper(), long.replace("river", "brook", 1), long[9:], "few words"]
    index = DuplicateIndex(tmp_path / "index", similarity)

    def answers() -> list[DuplicateMatch | None]:
        places = (PagePlace("f", 10, n) for n in range(len(texts)))
        marks = [fingerprints(text, minhash=similarity is not None) for text in texts]
        return [index.take(p, each) for p, each in zip(places, marks, strict=True)]

    first = answers()
    index.sync()
    numbers = [each and each.place.number for each in first]
    near = None if similarity is None else 0
    assert numbers == [None, None, 0, near, near, None]
    assert answers() == first
    index.close()


def test_texts_under_one_key_are_all_compared(index: DuplicateIndex) -> None:
    """They share a band with the third text, which is near to the first alone."""
    first = bytes(range(PLACES))
    second = first[:4] + bytes(PLACES - 4)
    third = first[:-9] + bytes(9)
    found = [
        index.take(PagePlace("a", number, number), Fingerprints(bytes([number] * 16), minhash))
        for number, minhash in enumerate((first, second, third))
    ]
    assert found[:2] == [None, None]
    assert found[2] is not None
    assert found[2].place == PagePlace("a", 0, 0)
    assert all(set(bands(a)) & set(bands(b)) for a, b in combinations((first, second, third), 2))

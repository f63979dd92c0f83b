"""Duplicates: made copies are found, other pages of the same topic are not."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from krowlspider.corpus.duplicates import DuplicateIndex, Found, Place
from krowlspider.corpus.fingerprints import Fingerprints, fingerprints
from tests.corpus.warcs import prose

if TYPE_CHECKING:
    from pathlib import Path

PAGES, TOPICS, WORDS = 60, 6, 500
# As frequent as the words of a language (Zipf's law).
SHARES = [1 / rank for rank in range(1, 1001)]
Sentences = list[list[str]]


def page(number: int, chance: random.Random) -> Sentences:
    """Return sentences of words of the language, of a topic, and of the page alone."""
    kinds = ("word", f"topic{number % TOPICS}-", f"own{number}-")
    known = [f"{kinds[n % 3]}{n}" for n in range(1000)]
    words = chance.choices(known, SHARES, k=WORDS)
    return [words[start : start + 12] for start in range(0, WORDS, 12)]


def changed_words(sentences: Sentences, chance: random.Random) -> Sentences:
    changed = [[*each] for each in sentences]
    for _ in range(2):
        words = chance.choice(changed)
        words[chance.randrange(len(words))] = "changed"
    return changed


def changed_order(sentences: Sentences, chance: random.Random) -> Sentences:
    first = chance.randrange(len(sentences) - 1)
    moved = sentences[first : first + 2][::-1]
    return [*sentences[:first], *moved, *sentences[first + 2 :]]


def changed_frame(sentences: Sentences, chance: random.Random) -> Sentences:
    return [["home", "about"], *sentences, ["all", "rights", "reserved"]]


@pytest.mark.parametrize("change", [changed_words, changed_order, changed_frame])
@pytest.mark.parametrize("bits", [3, None], ids=["simhash", "minhash"])
def test_near_duplicates_are_found_and_no_others(
    tmp_path: Path, bits: int | None, change: object
) -> None:
    """Precision and recall are at least 0.95."""
    similarity = 0.8 if bits is None else None
    index = DuplicateIndex(tmp_path / "index", bits, similarity)
    chance, right, wrong = random.Random(1), 0, 0
    for number in range(PAGES):
        whole = page(number, chance)
        for copy, each in enumerate((whole, change(whole, chance))):  # type: ignore[operator]
            text = " ".join(f"{' '.join(words)}." for words in each)
            marks = fingerprints(text, minhash=similarity is not None)
            found = index.take(Place("f", number, copy), marks)
            is_right = bool(copy) and found is not None and found.place == Place("f", number, 0)
            right += is_right
            wrong += found is not None and not is_right
    index.close()
    assert right >= 0.95 * PAGES
    assert right >= 0.95 * (right + wrong)


def test_minhash_finds_what_simhash_does_not(tmp_path: Path) -> None:
    """Twelve of 500 words are changed. Short texts and texts without spaces have a MinHash too."""
    chance, index = random.Random(1), DuplicateIndex(tmp_path / "index", 3, 0.6)
    found: list[Found | None] = []
    for number in range(2):
        words = chance.choices([f"word{number}-{n}" for n in range(300)], k=500)
        for copy in range(2):
            for place in range(0, 12 * copy * 40, 40):
                words[place] = "changed"
            marks = fingerprints(" ".join(words), minhash=True)
            found.append(index.take(Place("f", number, copy), marks))
    index.close()
    assert [each and each.place for each in found] == [
        *(None, Place("f", 0, 0), None, Place("f", 1, 0))
    ]
    assert all(each is None or each.distance > 3 for each in found)
    for text in ("one two three four five", "".join(map(chr, range(0x4E00, 0x4E80)))):
        assert len(fingerprints(text, minhash=True).minhash) == 256
    assert fingerprints("too few words", minhash=True).minhash == b""


@pytest.mark.parametrize("similarity", [None, 0.8])
def test_index_gives_the_same_answers_again(tmp_path: Path, similarity: float | None) -> None:
    """A slice that is read again after a kill holds no duplicates of its own pages."""
    long = prose(1, 2000)
    texts = [long, prose(2), long.upper(), long.replace("river", "brook", 1), long[9:], "few words"]
    bits = 3 if similarity is None else None
    index = DuplicateIndex(tmp_path / "index", bits, similarity)

    def answers() -> list[Found | None]:
        places = (Place("f", 10, n) for n in range(len(texts)))
        marks = [fingerprints(text, minhash=similarity is not None) for text in texts]
        return [index.take(p, each) for p, each in zip(places, marks, strict=True)]

    first = answers()
    index.sync()
    numbers = [each and each.place.number for each in first]
    assert numbers == [None, None, 0, 0, 0, None]
    assert answers() == first
    index.close()


def test_texts_under_one_key_are_all_compared(tmp_path: Path) -> None:
    """The third text has one pair of blocks in common with each other, and is near the first."""
    index = DuplicateIndex(tmp_path, 3)
    simhashes = [0, (1 << 38) - 1, 1 << 30 | 1 << 20 | 1]
    found = [
        index.take(Place("a", number, number), Fingerprints(bytes([number] * 16), simhash))
        for number, simhash in enumerate(simhashes)
    ]
    assert found == [None, None, Found(Place("a", 0, 0), 3)]
    index.close()

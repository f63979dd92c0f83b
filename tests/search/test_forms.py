"""The forms of words that an index knows, and which of them a word has."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from krowlspider.corpus.copies.fingerprints import hashes_of
from krowlspider.search.forms import Forms, cleaned, forms_in
from krowlspider.search.schema import FOLDED, LOWERED, analysers, open_forms

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = {
    "en": "Walking, walked; the WALK of Houses-and_gardens (happily).\u00a0It's " + "y" * 80,
    "de": "Die Häuser; größere Straßen, \u201eGärten\u201c \u2014 und…Wälder",
    "ru": "Красивые дома, в ДОМАХ; дом",
    "tr": "İstanbul'da kitaplar\u0307 ve KİTAPLAR",
    "ta": "வீடுகள் மரங்கள், மரம்",
    "fr": "l'été des chevaux\x00chevauchait \ud800 naïves e\u0301te\u0301s",
}  # fmt: skip


def meet(forms: Forms, text: str, language: str) -> None:
    words = cleaned(text).split()
    forms.meet(words, hashes_of(words), language)


def expected(text: str, language: str) -> dict[str, set[str]]:
    """Return the words of each stem that differ from it, as tantivy finds both in the text."""
    known, text = analysers(), text.encode(errors="replace").decode()
    found = defaultdict(set)
    names = (f"stem_{language}", LOWERED, FOLDED)
    for stem, word, term in zip(*(known[name].analyze(text) for name in names), strict=True):
        if stem != word:
            found[stem].add(term)
    return found


@pytest.mark.parametrize("places", [1, 8, 4096])
def test_forms_are_those_of_the_analyser(tmp_path: Path, places: int):
    """However many words are remembered, and in whatever order the texts come."""
    forms = Forms(tmp_path, places)
    for language in [*TEXTS, *random.Random(1).choices([*TEXTS], k=30)]:
        meet(forms, TEXTS[language], language)
        forms.commit()
    forms.close()
    find = forms_in(open_forms(tmp_path))
    for language, text in TEXTS.items():
        made = expected(text, language)
        assert made or language == "ta"
        assert {stem: {*find(language, stem)} for stem in made} == made


def test_forms_of_the_next_process_are_added(tmp_path: Path):
    for text in ("walks", "walked", "walks walking"):
        forms = Forms(tmp_path)
        meet(forms, text, "en")
        forms.commit()
        forms.close()
    assert {*forms_in(open_forms(tmp_path))("en", "walk")} == {"walks", "walked", "walking"}


def test_languages_have_their_own_forms(tmp_path: Path):
    forms = Forms(tmp_path)
    for language in ("en", "de", "nb", "xx"):
        meet(forms, "hauses katzen 17th", language)
    forms.commit()
    forms.close()
    find = forms_in(open_forms(tmp_path))
    assert [*find("en", "haus")] == ["hauses"]
    assert [*find("de", "katz")] == ["katzen"]
    assert [*find("en", "katz")] == [*find("xx", "haus")] == []
    assert [*find("no", "haus")] == ["hauses"]

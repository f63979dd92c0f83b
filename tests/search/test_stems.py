"""The stems that are indexed of a text."""

from __future__ import annotations

import random

import pytest

from krowlspider.search.schema import LOWERED, analysers
from krowlspider.search.stems import Stems

TEXTS = {
    "en": "Walking, walked; the WALK of Houses-and_gardens (happily).\u00a0It's " + "y" * 80,
    "de": "Die Häuser; größere Straßen, \u201eGärten\u201c \u2014 und…Wälder",
    "ru": "Красивые дома, в ДОМАХ; дом",
    "tr": "İstanbul'da kitaplar\u0307 ve KİTAPLAR",
    "ta": "வீடுகள் மரங்கள், மரம்",
    "fr": "l'été des chevaux\x00chevauchait \ud800 naïves e\u0301te\u0301s",
}  # fmt: skip


def expected(text: str, language: str) -> set[str]:
    """Return the stems that differ from their word, as tantivy finds them in the whole text."""
    found, text = analysers(), text.encode(errors="replace").decode()
    pairs = zip(found[f"stem_{language}"].analyze(text), found[LOWERED].analyze(text), strict=True)
    return {stem for stem, word in pairs if stem != word}


@pytest.mark.parametrize("kept", [0, 5, 1000])
def test_stems_are_those_of_the_analyser(kept: int):
    """However many words are remembered, and in whatever order the texts come."""
    stems = Stems(kept)
    for language in [*TEXTS, *random.Random(1).choices([*TEXTS], k=30)]:
        name, made = stems.of(TEXTS[language], language) or ("", "")
        assert name == f"body_{language}"
        assert set(made.split()) == expected(TEXTS[language], language)


def test_a_word_that_is_its_own_stem_is_left_out():
    assert Stems().of("walk walk walks walked", "en") == ("body_en", "walk")
    assert Stems().of("walk", "en") == ("body_en", "")


def test_languages_without_a_stemmer_have_none():
    assert Stems().of("walking", "xx") is None


def test_languages_have_their_own_stems():
    stems = Stems()
    english, german = (stems.of("hauses katzen", code) for code in ("en", "de"))
    assert set((english or ("", ""))[1].split()) == {"haus", "katzen"} - {"katzen"}
    assert set((german or ("", ""))[1].split()) == {"haus", "katz"}

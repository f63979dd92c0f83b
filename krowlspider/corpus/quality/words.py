"""Frequent words by language, and languages that write without spaces."""

from __future__ import annotations

SPACELESS = frozenset({"zh", "ja", "th", "lo", "my", "km", "bo", "dz"})
# Gopher's eight for English; as many of the most frequent words for others.
STOP_WORDS = {
    "en": frozenset({"the", "be", "to", "of", "and", "that", "have", "with"}),
    "de": frozenset({"der", "die", "und", "in", "den", "von", "zu", "das", "mit", "ist"}),
    "fr": frozenset({"de", "la", "le", "et", "les", "des", "en", "un", "une", "est"}),
    "es": frozenset({"de", "la", "que", "el", "en", "y", "los", "del", "las", "un"}),
    "it": frozenset({"di", "e", "il", "la", "che", "in", "un", "per", "del", "è"}),
    "pt": frozenset({"de", "a", "o", "que", "e", "do", "da", "em", "um", "para"}),
    "nl": frozenset({"de", "van", "het", "een", "en", "in", "is", "dat", "op", "te"}),
    "pl": frozenset({"i", "w", "na", "z", "do", "się", "jest", "nie", "to", "że"}),
    "ru": frozenset({"и", "в", "не", "на", "что", "с", "по", "как", "это", "для"}),
    "sv": frozenset({"och", "i", "att", "det", "som", "en", "på", "är", "av", "för"}),
}

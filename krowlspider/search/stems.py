"""The stems of texts, as they are indexed: each once, and only those that differ from their word.

A word that is its own stem is in the body as it stands. So little is indexed besides, and the work
for a word that was met before is one look-up.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from krowlspider.search.schema import LOWERED, TERM_MAX, analysers, stemmed_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Tokens whose stems are kept, of all languages together: some 60 MB.
_KEPT = 500_000
# Of ASCII, letters become lower case, and all but letters and digits a blank. Other bytes stay.
_CLEAN = bytes(
    code if code > 0x7F else ord(chr(code).lower()) if chr(code).isalnum() else 0x20
    for code in range(256)
)


class Stems:
    """Finds stems, and keeps those of the tokens it has met."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._analysers = analysers()
        # By the name of the field: the stems of a token between blanks.
        self._known: dict[str, dict[bytes, str]] = defaultdict(dict)
        self._count = 0

    def of(self, text: str, language: str) -> tuple[str, str] | None:
        """Return the field and the stems of a text, between blanks in any order; None if its
        language has no stemmer."""
        name = stemmed_field(language)
        if name is None:
            return None
        tokens = text.encode(errors="replace").translate(_CLEAN).split()
        known = self._known[name]
        stems = set(map(known.get, tokens))
        if None in stems:
            found = self._found(name.replace("body", "stem"), {*tokens}.difference(known))
            self._keep(name, found)
            stems.update(found.values())
        return name, " ".join(filter(None, stems))

    def _found(self, analyser: str, tokens: Iterable[bytes]) -> dict[bytes, str]:
        """Return the stems of each token, "" for one that is its own stem."""
        stem = self._analysers[analyser].analyze
        words = {each: each.decode(errors="replace") for each in tokens}
        # Mostly each token is one word.
        plain = [each for each, word in words.items() if len(each) < TERM_MAX and word.isalnum()]
        text = " ".join(map(words.__getitem__, plain))
        stems = stem(text)
        found = {}
        if len(stems) == len(plain):
            # Letters of ASCII are in lower case already.
            lowered = text.split() if text.isascii() else self._analysers[LOWERED].analyze(text)
            each_of = zip(plain, stems, lowered, strict=True)
            found = {token: made if made != word else "" for token, made, word in each_of}
        for token, word in words.items():
            if token not in found:
                pairs = zip(stem(word), self._analysers[LOWERED].analyze(word), strict=True)
                found[token] = " ".join(made for made, lower in pairs if made != lower)
        return found

    def _keep(self, name: str, found: Mapping[bytes, str]) -> None:
        short = {token: stems for token, stems in found.items() if len(token) <= TERM_MAX}
        if self._count + len(short) > self._kept:
            self._known.clear()
            self._count = 0
        if len(short) <= self._kept:
            self._known[name].update(short)
            self._count += len(short)

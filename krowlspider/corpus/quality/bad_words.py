"""Count the words of a list in a text, as C4 does (Raffel et al. 2020, section 2.2)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from krowlspider.corpus.languages import SPACELESS

if TYPE_CHECKING:
    from collections.abc import Iterable

_WORD = re.compile(r"\w+")


class BadWords:
    """A list of words and phrases of one language. Case and the signs between words do not count.

    In languages without spaces they count within words too.
    """

    def __init__(self, entries: Iterable[str], language: str):
        entries = [entry.lower() for entry in entries]
        # Without entries, nothing is found.
        self._within = re.compile("|".join(map(re.escape, entries)) or "(?!)")
        self._is_spaceless = language in SPACELESS
        # The rests of the entries, by their first word.
        self._rests: dict[str, set[tuple[str, ...]]] = {}
        for first, *rest in filter(None, map(_WORD.findall, entries)):
            self._rests.setdefault(first, set()).add(tuple(rest))

    def count(self, text: str) -> int:
        """Return how many words of ``text`` begin an entry of the list."""
        if self._is_spaceless:
            return sum(1 for _ in self._within.finditer(text.lower()))
        words, rests = _WORD.findall(text.lower()), self._rests
        if rests.keys().isdisjoint(words):
            return 0
        return sum(
            any(tuple(words[place : place + len(rest)]) == rest for rest in rests[word])
            for place, word in enumerate(words, 1)
            if word in rests
        )


def entries_of(text: str) -> list[str]:
    """Return the entries of a list, one on each line, without empty lines and # comments."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]

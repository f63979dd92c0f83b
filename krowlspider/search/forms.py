"""The forms of words, kept beside the segments: an entry for each word that differs from its stem.

A query for a word asks for the words of the same stem too. A word costs a look-up in a text, and an
entry when it is first met. Entries are never removed: a form that no page has any more finds none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64_intdigest

from krowlspider.errors import need
from krowlspider.search.schema import (
    ENTRY,
    FOLDED,
    LOWERED,
    STEMMERS,
    analysers,
    open_forms,
    stemmer_of,
    tantivy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

# Places of the table of words that were met last: 16 MB.
_PLACES = 1 << 22
# Bytes that the writer may collect, the least that tantivy takes.
_HEAP = 15_000_000
# Forms of a stem that are read.
_READ = 300
# The same word of another language has another hash.
_SALTS = {code: xxh3_64_intdigest(code.encode()) for code in STEMMERS}
# Letters of ASCII become lower case, and all of it but letters and digits a blank.
_CLEAN = bytes(
    code if code > 0x7F else ord(chr(code).lower()) if chr(code).isalnum() else 0x20
    for code in range(256)
)


def cleaned(text: str) -> bytes:
    """Return a text whose words stand between blanks, with letters of ASCII in lower case. Words
    that are not of ASCII may have signs in them."""
    return text.encode(errors="replace").translate(_CLEAN)


class Forms:
    """Collects the forms of words for an index, whose folder they are in.

    What was met before `commit` is durable after it.
    """

    def __init__(self, folder: Path, places: int = _PLACES) -> None:
        self._numpy = need("numpy")
        self._analysers = analysers()
        # A part of its hash says where a word is, another one stands there. A later word may take
        # the place, then the first one is met anew: its entry is made twice.
        self._met = self._numpy.zeros(places, self._numpy.uint32)
        self._new: set[str] = set()
        self._writer = open_forms(folder, make=True).writer(_HEAP, 1)
        self._writer.garbage_collect_files()

    def meet(self, words: Sequence[bytes], hashes: bytes, language: str) -> None:
        """Take the words of a text that were not met before, given their hashes too. Words with a
        digit have no forms."""
        code = stemmer_of(language)
        if code is None:
            return
        found = {words[place] for place in self._unmet(code, hashes)}
        # Bytes beyond ASCII are no letters by themselves.
        new = [each for each in found if each.isalpha() or not each.isascii()]
        if new:
            self._new.update(self._found(code, new))

    def _unmet(self, code: str, hashes: bytes) -> list[int]:
        """Return the places of words in a text that may not have been met, and note them."""
        found = self._numpy.frombuffer(hashes, "<u8") ^ _SALTS[code]
        slots, rest = found & (len(self._met) - 1), (found >> 32).astype("u4")
        unmet = (self._met[slots] != rest).nonzero()[0]
        self._met[slots[unmet]] = rest[unmet]
        places: list[int] = unmet.tolist()
        return places

    def _found(self, code: str, tokens: list[bytes]) -> Iterator[str]:
        """Yield the entries of the words in tokens that differ from their stem."""
        text = " ".join(each.decode(errors="replace") for each in tokens)
        names = (f"stem_{code}", LOWERED, FOLDED)
        for stem, word, folded in zip(*(self._analyse(name, text) for name in names), strict=True):
            if stem != word:
                yield _entry(code, stem, folded)

    def _analyse(self, name: str, text: str) -> list[str]:
        found: list[str] = self._analysers[name].analyze(text)
        return found

    def commit(self) -> None:
        if self._new:
            made = tantivy().Document()
            made.add_text(ENTRY, " ".join(sorted(self._new)))
            self._writer.add_document(made)
            self._writer.commit()
            self._new.clear()

    def close(self) -> None:
        """Wait until entries are merged. What was not committed is dropped."""
        self._writer.wait_merging_threads()


def forms_in(index: Any) -> Callable[[str, str], Collection[str]]:
    """Return what finds the words of a stem, given its language, as of the last commit."""
    find = index.searcher().terms_with_prefix

    def forms(code: str, stem: str) -> list[str]:
        prefix = _entry(code, stem, "")
        return [entry[len(prefix) :] for entry, _ in find(ENTRY, prefix, limit=_READ)]

    return forms


def _entry(code: str, stem: str, word: str) -> str:
    return f"{code}/{stem}/{word}"

"""Words that a person may have meant: those of the index that are a mistake or two away."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Lengths of words that are looked at, and the length from which two mistakes are looked for.
SHORTEST, LONGEST, TWO_FROM = 3, 24, 6
# A word is replaced if the other one is on so many times as many pages.
MORE_FREQUENT = 10
# Pages of a word from which it is no mistake.
FREQUENT = 50
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def corrected(
    word: str, frequency: Callable[[str], int], near: Callable[[str], Iterable[str]]
) -> str | None:
    """Return the word that was probably meant; None if it is this one.

    ``frequency`` returns the number of pages with a word, ``near`` words like it that may be two
    mistakes away.
    """
    if not SHORTEST <= len(word) <= LONGEST or not word.isalpha():
        return None
    here = frequency(word)
    if here >= FREQUENT:
        return None
    candidates = {each: 1 for each in edits(word) if frequency(each)}
    if len(word) >= TWO_FROM and not candidates:
        for each in near(word):
            if each not in candidates and (far := distance(word, each, 2)) <= 2:
                candidates[each] = far
    candidates.pop(word, None)
    if not candidates:
        return None
    # The same first letter is more probable than another one.
    best = max(
        candidates,
        key=lambda each: (
            -candidates[each],
            frequency(each) * (1.0 if each[0] == word[0] else 0.2),
            each,
        ),
    )
    return best if frequency(best) >= max(1, MORE_FREQUENT * here) else None


def edits(word: str) -> Iterator[str]:
    """Yield the words with one letter more, less or other, or two neighbours exchanged."""
    letters = "".join(sorted({*word, *(_LETTERS if word.isascii() else "")}))
    for at in range(len(word) + 1):
        begin, end = word[:at], word[at:]
        if end:
            yield begin + end[1:]
        if len(end) > 1 and end[0] != end[1]:
            yield begin + end[1] + end[0] + end[2:]
        for letter in letters:
            yield begin + letter + end
            if end and end[0] != letter:
                yield begin + letter + end[1:]


def distance(one: str, other: str, most: int) -> int:
    """Return the number of letters added, removed, replaced or exchanged with a neighbour, between
    two words; more than ``most`` is ``most + 1``."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = [*range(len(other) + 1)]
    for at, letter in enumerate(one, 1):
        before, last, row = row, before, [at]
        for there, found in enumerate(other, 1):
            cost = min(row[-1] + 1, before[there] + 1, before[there - 1] + (letter != found))
            if at > 1 and there > 1 and letter == other[there - 2] and one[at - 2] == found:
                cost = min(cost, last[there - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return most + 1 if row[-1] > most else row[-1]

"""Compare two versions of a text: how similar they are, and what differs. Pure."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_intdigest

from krowlspider.corpus.copies.fingerprints import words_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# Words of a sequence, and words of a text that are compared.
_SEQUENCE = 3
_WORDS_MAX = 200_000
# A similarity has four decimals.
_SCALE = 10_000
# Lines that are compared behind what is the same at the beginning: the time of `SequenceMatcher`
# can grow with their square. Lines about a difference that are shown, and characters of a line and
# of the whole.
_LINES_MAX = 2000
_CONTEXT = 1
_LINE_MAX = 1000
_DIFF_MAX = 20_000


class Difference(NamedTuple):
    """The unified difference of two texts, with line breaks; ``is_cut`` if it is not all of it."""

    text: str
    is_cut: bool


def similarity(before: list[str], after: list[str]) -> float:
    """Return the share of sequences of three words that two texts have in common, from 0 to 1.

    It is the resemblance of the sets of sequences (Broder 1997), rounded down to four decimals. The
    first 200,000 words of each text count, in lower case. A character of a script without spaces
    is a word. A text of one or two words is one sequence.
    """
    one, other = _sequences(before), _sequences(after)
    if not one and not other:
        return 1.0
    return len(one & other) * _SCALE // len(one | other) / _SCALE


def _sequences(lines: list[str]) -> set[int]:
    words = words_of(" ".join(lines).lower())[:_WORDS_MAX]
    last = max(len(words) - _SEQUENCE, 0)
    return {
        xxh3_64_intdigest(b" ".join(words[at : at + _SEQUENCE])) for at in range(last + 1) if words
    }


def is_same_text(before: list[str], after: list[str]) -> bool:
    """Return whether two texts differ at most in how they are divided into lines."""
    return before == after or " ".join(before) == " ".join(after)


def difference(before: list[str], after: list[str]) -> Difference:
    """Return what differs, as ``diff --unified`` prints it, without the names of files.

    Behind the first difference, 2,000 lines of each text are compared. Up to 1,000 characters of a
    line are shown, and 20,000 in all.
    """
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    start, behind = max(start - _CONTEXT, 0), max(end - _CONTEXT, 0)
    one = before[start : len(before) - behind]
    other = after[start : len(after) - behind]
    is_cut = max(len(one), len(other)) > _LINES_MAX
    shown, left = [], _DIFF_MAX
    for line in _unified(one[:_LINES_MAX], other[:_LINES_MAX], start):
        is_cut |= len(line) > _LINE_MAX
        text = line[:_LINE_MAX]
        left -= len(text) + 1
        if left < 0:
            is_cut = True
            break
        shown.append(f"{text}\n")
    return Difference("".join(shown), is_cut)


def _common(one: list[str], other: list[str]) -> int:
    """Return how many lines at the beginning are the same."""
    same = 0
    for line, twin in zip(one, other, strict=False):
        if line != twin:
            break
        same += 1
    return same


def _unified(one: list[str], other: list[str], start: int) -> Iterator[str]:
    """Yield the lines of a unified difference of texts that are at ``start`` of the whole ones."""
    for group in SequenceMatcher(None, one, other).get_grouped_opcodes(_CONTEXT):
        (_, a_start, _, b_start, _), (_, _, a_end, _, b_end) = group[0], group[-1]
        yield f"@@ -{_range(start, a_start, a_end)} +{_range(start, b_start, b_end)} @@"
        for kind, i, j, k, m in group:
            if kind == "equal":
                yield from (f" {line}" for line in one[i:j])
            else:
                yield from (f"-{line}" for line in one[i:j])
                yield from (f"+{line}" for line in other[k:m])


def _range(start: int, begin: int, end: int) -> str:
    """Return the lines of a hunk: number of the first and how many, the number alone for one."""
    count = end - begin
    first = start + begin + (count > 0)
    return str(first) if count == 1 else f"{first},{count}"

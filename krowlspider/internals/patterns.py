"""The steps that searching a regular expression in a URL may take.

``re._parser`` is private: it gives the tree that ``re.compile`` compiles.

An expression backtracks where it can go on in several ways. It cannot where the next character
decides: ``[0-9]+/`` ends its digits at one place, and ``(?:/[^/]+)+$`` each of its parts. So each
part is looked at with the characters that may follow it.
"""

from __future__ import annotations

import re._parser as parser  # type: ignore[import-not-found]
from math import factorial, inf, log2
from typing import Any

# Characters of the text that is searched: URLLENGTH_LIMIT.
_LENGTH = 2048.0
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT"}
_ENDS = {"AT_END", "AT_END_STRING"}
# Ways beyond two to this power count as without end.
_BITS_MAX = 60.0
# The bit of re.MULTILINE, with which "^" is no anchor.
_MULTILINE = 8
# Parts of one character.
_ONE = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}
# Characters at the begin of a sequence that are looked at, and the ways in which it may begin.
_RUN_MAX, _RUNS_MAX = 24, 64

_Set = frozenset[int]
# The characters of a normalised URL, of which each letter counts as both cases.
_ALL: _Set = frozenset(range(0x21, 0x7F))
_DIGITS = frozenset(map(ord, "0123456789"))
_WORD = _DIGITS | frozenset(map(ord, "abcdefghijklmnopqrstuvwxyz_ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
_NONE: _Set = frozenset()
_CATEGORIES: dict[str, _Set] = {
    "CATEGORY_DIGIT": _DIGITS,
    "CATEGORY_NOT_DIGIT": _ALL - _DIGITS,
    "CATEGORY_WORD": _WORD,
    "CATEGORY_NOT_WORD": _ALL - _WORD,
    "CATEGORY_SPACE": _NONE,
    "CATEGORY_NOT_SPACE": _ALL,
}


def steps_of(expression: str) -> float:
    """Return an upper bound on the steps of searching an expression in a normalised URL of 2,048
    characters.

    It is an estimate by the shape of the expression: the ways in which its repeats and branches can
    match multiply. A repeat of a part that can match in several ways may take exponential time: the
    bound is infinity then.

    :raises re.error: it does not compile
    """
    tree = parser.parse(expression)
    is_anchored = len(tree) > 0 and str(tree[0][0]) == "AT" and "BEGINNING" in str(tree[0][1])
    if is_anchored and not tree.state.flags & _MULTILINE:
        return _sequence(tree, _ALL, is_whole=True)[1]
    _, work = _sequence(tree, _ALL, is_whole=True, positions=1)
    return _LENGTH + work * _places(tree, 0)


# --- what may come first ---


def _first(tree: Any, at: int = 0) -> tuple[_Set, bool]:
    """Return the characters with which a sequence may begin from a place on, and whether it may
    match nothing."""
    found = _NONE
    for number in range(at, len(tree)):
        op, given = tree[number]
        own, may_be_empty = _first_of(str(op), given)
        found |= own
        if not may_be_empty:
            return found, False
    return found, True


def _first_of(op: str, given: Any) -> tuple[_Set, bool]:
    if op in _ONE:
        return _characters(op, given), False
    if op in _REPEATS or op == "POSSESSIVE_REPEAT":
        low, _, part = given
        found, may_be_empty = _first(part)
        return found, may_be_empty or low == 0
    if op == "SUBPATTERN":
        return _first(given[-1])
    if op == "ATOMIC_GROUP":
        return _first(given)
    if op == "BRANCH":
        each = [_first(part) for part in given[1]]
        return _NONE.union(*(found for found, _ in each)), any(empty for _, empty in each)
    if op == "AT":
        # Behind the end comes nothing. All else of no width allows less than what follows it does.
        return _NONE, str(given) not in _ENDS
    if op in {"ASSERT", "ASSERT_NOT"}:
        return _NONE, True
    return _ALL, True


def _characters(op: str, given: Any) -> _Set:
    """Return the characters that one part matches, letters in both cases."""
    if op == "ANY":
        return _ALL
    if op != "IN":
        own = _both_cases({given})
        return own if op == "LITERAL" else _ALL - {given}
    found: set[int] = set()
    is_negated = False
    for kind, what in given:
        match str(kind):
            case "NEGATE":
                is_negated = True
            case "LITERAL":
                found.add(what)
            case "RANGE":
                found |= _ALL.intersection(range(what[0], what[1] + 1))
            case "CATEGORY":
                found |= _CATEGORIES[str(what)]
    # What is left out may come in the other case, where case is ignored.
    return _both_cases(_ALL - found) if is_negated else _both_cases(found)


def _both_cases(found: set[int] | _Set) -> _Set:
    return _ALL & {ord(case) for each in found for case in (chr(each).lower() + chr(each).upper())}


def _places(tree: Any, at: int) -> float:
    """Return at how many places of a text a sequence may match from a place on, by the characters
    with which it begins: "/a/" may overlap itself by one character, and so match at every other."""
    runs = _runs([*tree[at : at + _RUN_MAX]], _RUN_MAX)
    return _LENGTH if runs is None else min(_LENGTH, sum(_LENGTH / _step(run) for run in runs))


def _step(run: list[_Set]) -> int:
    """Return the least distance of two places at which a run of characters matches."""
    for step in range(1, len(run)):
        if all(run[at].intersection(run[at + step]) for at in range(len(run) - step)):
            return step
    return max(1, len(run))


def _runs(items: list[Any], most: int) -> list[list[_Set]] | None:
    """Return the runs of characters with which each match of a sequence begins; None if they are
    too many."""
    if not items or most <= 0:
        return [[]]
    (op, given), *rest = items
    kind = str(op)
    if kind in _ONE:
        return _each_with([_characters(kind, given)], _runs(rest, most - 1))
    if kind == "SUBPATTERN":
        return _runs([*given[-1], *rest], most)
    if kind in _REPEATS and 0 < (low := int(given[0])) and _is_one(given[2]):
        before = [_characters(str(given[2][0][0]), given[2][0][1])] * min(low, most)
        is_fixed = low == given[1]
        return _each_with(before, _runs(rest, most - low) if is_fixed else [[]])
    if kind != "BRANCH":
        return [[]]
    found: list[list[_Set]] = []
    for part in given[1]:
        if (each := _runs([*part, *rest], most)) is None or len(found) + len(each) > _RUNS_MAX:
            return None
        found += each
    return found


def _is_one(part: Any) -> bool:
    return len(part) == 1 and str(part[0][0]) in _ONE


def _each_with(before: list[_Set], runs: list[list[_Set]] | None) -> list[list[_Set]] | None:
    return None if runs is None else [before + run for run in runs]


# --- ways and steps ---


def _sequence(
    tree: Any, after: _Set, *, is_whole: bool = False, positions: int = 0
) -> tuple[float, float]:
    """Return in how many ways a sequence can match at one place if a character of ``after`` follows
    it, and the steps of trying all.

    ``is_whole``: it is the whole expression, and the search begins at so many ``positions``. The
    ends of its repeats are positions too, each behind the one before: of k positions there are
    as many as their number to the power of k, divided by the factorial of k.
    """
    ways, work = 1.0, 1.0
    for at, (op, given) in enumerate(tree):
        kind = str(op)
        follows, may_be_empty = _first(tree, at + 1)
        own_ways, own_work = _item(kind, given, follows | after if may_be_empty else follows)
        is_position = is_whole and kind in _REPEATS and own_ways >= _LENGTH / 2
        if is_whole and kind in _REPEATS and at == len(tree) - 1 and _is_one(given[2]):
            # It fails at its first characters, or the search is over.
            own_work, own_ways = float(given[0]) + 1.0, 1.0
        # The next part is tried after each way, and the one behind it where that has matched.
        work += ways * (own_work + own_ways) / factorial(positions + is_position)
        ways *= own_ways if may_be_empty else min(own_ways, _places(tree, at + 1))
        positions += is_position
        if ways > 2.0**_BITS_MAX:
            return inf, inf
    return ways, work


def _item(op: str, given: Any, after: _Set) -> tuple[float, float]:
    if op in _REPEATS:
        return _repeat(given, after)
    if op == "POSSESSIVE_REPEAT":
        return 1.0, _repeat(given, _ALL)[1]
    if op == "ATOMIC_GROUP":
        return 1.0, _sequence(given, _ALL)[1]
    if op == "SUBPATTERN":
        return _sequence(given[-1], after)
    if op in {"ASSERT", "ASSERT_NOT"}:
        return 1.0, _sequence(given[1], _ALL)[1]
    if op == "BRANCH":
        return _branches(given[1], after)
    if op == "GROUPREF_EXISTS":
        return _branches([part for part in given[1:] if part is not None], after)
    return 1.0, _LENGTH if op.startswith("GROUPREF") else 1.0


def _repeat(given: Any, after: _Set) -> tuple[float, float]:
    low, high, part = given
    first, may_be_empty = _first(part)
    most, least = min(float(high), _LENGTH), min(float(low), _LENGTH)
    ways, work = _sequence(part, first | after if most > 1.0 else after)
    if ways == 1.0:
        # The part reads on where it stopped, so all its repeats read the text once. Where the next
        # character says whether there is one more, they end at one place.
        is_sure = not may_be_empty and first.isdisjoint(after)
        return 1.0 if is_sure else most - least + 1.0, max(most, work)
    if ways == inf or (most > 1.0 and most * log2(ways) > _BITS_MAX):
        return inf, inf
    if most == 1.0:
        return ways + 1.0 - least, work
    total = ways**most
    return total + (most - least), total * work


def _branches(parts: list[Any], after: _Set) -> tuple[float, float]:
    found = [_sequence(part, after) for part in parts]
    work = sum(each for _, each in found)
    met = _NONE
    for part in parts:
        first, may_be_empty = _first(part)
        first |= after if may_be_empty else _NONE
        if not met.isdisjoint(first):
            return sum(ways for ways, _ in found), work
        met |= first
    return max(ways for ways, _ in found), work

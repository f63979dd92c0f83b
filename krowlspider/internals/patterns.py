"""The steps that searching a regular expression may take.

``re._parser`` is private: it gives the tree that ``re.compile`` compiles.
"""

from __future__ import annotations

import re._parser as parser  # type: ignore[import-not-found]
from math import inf, log2
from typing import Any

# Characters of the text that is searched: URLLENGTH_LIMIT.
_LENGTH = 2048.0
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT"}
# Ways beyond two to this power count as without end.
_BITS_MAX = 60.0
# The bit of re.MULTILINE, with which "^" is no anchor.
_MULTILINE = 8


def steps_of(expression: str) -> float:
    """Return an upper bound on the steps of searching an expression in 2,048 characters.

    It is an estimate by the shape of the expression: the ways in which its repeats and branches can
    match multiply. A repeat of a part that can match in several ways may take exponential time: the
    bound is infinity then.

    :raises re.error: it does not compile
    """
    tree = parser.parse(expression)
    _, work = _sequence(tree)
    is_anchored = len(tree) > 0 and str(tree[0][0]) == "AT" and "BEGINNING" in str(tree[0][1])
    return work if is_anchored and not tree.state.flags & _MULTILINE else work * _LENGTH


def _sequence(tree: Any) -> tuple[float, float]:
    """Return in how many ways a sequence can match at one place, and the steps of trying all."""
    ways, work = 1.0, 1.0
    for op, given in tree:
        own_ways, own_work = _item(str(op), given)
        work += ways * own_work
        ways *= own_ways
        if ways > 2.0**_BITS_MAX:
            return inf, inf
    return ways, work


def _item(op: str, given: Any) -> tuple[float, float]:
    if op in _REPEATS:
        return _repeat(*given)
    if op == "POSSESSIVE_REPEAT":
        return 1.0, _repeat(*given)[1]
    if op == "ATOMIC_GROUP":
        return 1.0, _sequence(given)[1]
    if op == "SUBPATTERN":
        return _sequence(given[-1])
    if op in {"ASSERT", "ASSERT_NOT"}:
        return 1.0, _sequence(given[1])[1]
    if op == "BRANCH":
        return _branches(given[1])
    if op == "GROUPREF_EXISTS":
        return _branches([part for part in given[1:] if part is not None])
    return 1.0, _LENGTH if op.startswith("GROUPREF") else 1.0


def _repeat(low: Any, high: Any, part: Any) -> tuple[float, float]:
    ways, work = _sequence(part)
    most, least = min(float(high), _LENGTH), min(float(low), _LENGTH)
    if ways == 1.0:
        # The part reads on where it stopped, so all its repeats read the text once.
        return most - least + 1.0, max(most, work)
    if ways == inf or (most > 1.0 and most * log2(ways) > _BITS_MAX):
        return inf, inf
    total = ways**most
    return total + (most - least), total * work


def _branches(parts: list[Any]) -> tuple[float, float]:
    found = [_sequence(part) for part in parts]
    firsts = [str(part[0]) if len(part) and str(part[0][0]) == "LITERAL" else "" for part in parts]
    work = sum(each for _, each in found)
    if all(firsts) and len(set(firsts)) == len(firsts):
        return max(ways for ways, _ in found), work
    return sum(ways for ways, _ in found), work

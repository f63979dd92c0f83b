"""What became of the seeds of a crawl of several processes, from the answers of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krowlspider.frontier.seed_table import ELSEWHERE, KNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_COUNTED = ("done", "limited", "failed", "waiting", "other")
_SUMS = ("pages", "bytes")


def seeds_of(answers: Mapping[str, Mapping[str, Any]], limit: int) -> dict[str, Any]:
    """Return the report of all processes, by those of each: the first ``limit`` rows, and all tags.

    Each process has a row for each line of a file. That of the owner of the seed says what became
    of it. What was fetched from a seed is added up.
    """
    every = list(answers.values())
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    tags: dict[str, list[dict[str, Any]]] = {}
    for found in every:
        for row in found["seeds"]:
            rows.setdefault((row["source"], row["line"], row["seed"]), []).append(row)
        for row in found["tags"]:
            tags.setdefault(row["tag"], []).append(row)
    return {
        "total": max((found["total"] for found in every), default=0),
        "seeds": [_row(each) for each in list(rows.values())[:limit]],
        "tags": [_tag(tags[name]) for name in sorted(tags)],
    }


def _row(each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    best = max(each, key=lambda row: {ELSEWHERE: 0, KNOWN: 1}.get(row["outcome"], 2))
    if best["outcome"] == ELSEWHERE:
        # On its way to its owner.
        best = {**best, "outcome": "queued"}
    return {**best, **_fetched(each)} if "tag" in best else best


def _tag(each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    total = dict(each[0])
    for name in _COUNTED:
        total[name] = sum(row[name] for row in each)
    # Each process has counted the lines that are no seeds, and the seeds of the others.
    invalid = max(row["invalid"] for row in each)
    total["failed"] -= sum(row["invalid"] for row in each) - invalid
    total["other"] -= sum(row["elsewhere"] for row in each)
    known = sum(total[name] for name in _COUNTED)
    total["seeds"] = max(known, *(row["seeds"] for row in each))
    # On their way to their owners.
    total["waiting"] += total["seeds"] - known
    return {**total, **_fetched(each), "invalid": invalid, "elsewhere": 0}


def _fetched(each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what was fetched; a process may know no words of a seed, and has "" then."""
    sums = {name: sum(row[name] or 0 for row in each) for name in _SUMS}
    first = min(filter(None, (row["first_fetch"] for row in each)), default="")
    return {**sums, "first_fetch": first, "last_fetch": max(row["last_fetch"] for row in each)}

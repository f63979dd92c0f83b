"""Measure how long queries of a search index take: one after the other, and several at once.

The words are drawn from the titles of its pages, so frequent words are asked as often as rare ones
of the same titles. Texts are not read from the archive: made documents have none.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any

from krowlspider.search.query import parse
from krowlspider.search.schema import FOLDED
from krowlspider.search.searcher import Searcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

# Queries of a kind, those before that warm the caches, and threads at once.
QUERIES = 300
_WARM = 20
_THREADS = 4
_TITLES = 5000


def measure(index: Path, queries: int = QUERIES) -> dict[str, Any]:
    """Return the milliseconds of queries by their kind: wall time and CPU."""
    searcher = Searcher(index)
    begun = time.perf_counter()
    view = searcher.opened.view()
    figures: dict[str, Any] = {
        "documents": view.page_count,
        "open_ms": round((time.perf_counter() - begun) * 1000, 1),
    }
    titles = _titles(view)
    for kind, make in KINDS.items():
        chance = random.Random(kind)
        texts = [make(chance.choice(titles), chance) for _ in range(queries + _WARM)]
        for text in texts[:_WARM]:
            _ask(searcher, text)
        figures[kind] = _row([_ask(searcher, text) for text in texts[_WARM:]])
    chance = random.Random(0)
    made = [make(chance.choice(titles), chance) for make in KINDS.values() for _ in range(queries)]
    chance.shuffle(made)
    figures[f"all kinds, {_THREADS} at once"] = _row(_at_once(searcher, made))
    return figures


def _titles(view: Any) -> list[list[str]]:
    """Return the words of the titles of the last pages.

    :raises RuntimeError: there is none
    """
    fold = view.compiler.analysers[FOLDED].analyze
    every = view.compiler.compile(parse("size:>=0")).every
    hits = view.searcher.search(every, _TITLES, count=False, order_by_field="fetched").hits
    words = [fold(view.searcher.doc(at).get_first("title") or "") for _, at in hits]
    if not (long := [each for each in words if len(each) > 2]):
        raise RuntimeError("the index has no page with a title of three words: index some first")
    return long


def _word(title: Sequence[str], chance: random.Random) -> str:
    return chance.choice(title)


def _words(title: Sequence[str], chance: random.Random) -> str:
    return " ".join(chance.sample(title, 2))


def _phrase(title: Sequence[str], chance: random.Random) -> str:
    at = chance.randrange(len(title) - 1)
    return f'"{title[at]} {title[at + 1]}"'


def _many(title: Sequence[str], _: random.Random) -> str:
    return " ".join(title[:8])


def _prefix(title: Sequence[str], chance: random.Random) -> str:
    return chance.choice(title)[:3] + "*"


def _either(title: Sequence[str], chance: random.Random) -> str:
    return " OR ".join(chance.sample(title, min(3, len(title))))


def _filtered(title: Sequence[str], chance: random.Random) -> str:
    return f"{chance.choice(title)} lang:en size:>1k since:2024"


def _misspelt(title: Sequence[str], chance: random.Random) -> str:
    word = chance.choice(title)
    return word[:2] + "q" + word[2:]


KINDS: Mapping[str, Callable[[Sequence[str], random.Random], str]] = {
    "a word": _word,
    "two words": _words,
    "a phrase": _phrase,
    "the words of a title": _many,
    "a prefix": _prefix,
    "one of three words": _either,
    "a word with filters": _filtered,
    "a misspelt word": _misspelt,
}


def _ask(searcher: Searcher, text: str) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.thread_time()
    searcher.search(parse(text))
    return time.perf_counter() - wall, time.thread_time() - cpu


def _at_once(searcher: Searcher, texts: list[str]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    left = iter(texts)

    def work() -> None:
        found.extend(_ask(searcher, text) for text in left)

    # A list's iterator is safe between threads.
    threads = [threading.Thread(target=work) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _row(times: list[tuple[float, float]]) -> dict[str, Any]:
    row: dict[str, Any] = {"queries": len(times)}
    for name, seconds in zip(("wall", "cpu"), zip(*times, strict=True), strict=True):
        parts = statistics.quantiles(seconds, n=100)
        row[name] = {
            "p50": round(parts[49] * 1000, 1),
            "p90": round(parts[89] * 1000, 1),
            "p99": round(parts[98] * 1000, 1),
            "most": round(max(seconds) * 1000, 1),
        }
    return row


def table(figures: Mapping[str, Any]) -> str:
    """Return the figures as a table of Markdown."""
    shown = ("p50", "p90", "p99")
    heads = [f"{name} {part}" for name in ("wall", "CPU") for part in shown]
    lines = [
        f"{figures['documents']:,} documents, opened in {figures['open_ms']} ms; milliseconds:",
        "",
        f"| queries | {' | '.join(heads)} |",
        "| --- " * (1 + len(heads)) + "|",
    ]
    for name, row in figures.items():
        if isinstance(row, dict):
            times = [str(row[clock][part]) for clock in ("wall", "cpu") for part in shown]
            lines.append(f"| {row['queries']} of {name} | {' | '.join(times)} |")
    return "\n".join(lines)

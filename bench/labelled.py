"""Public sets of pages whose main text people have marked, and how each set scores a text.

They are repositories on GitHub. A folder has a checkout of each under its own name:
``article-extraction-benchmark`` (of scrapinghub), ``web-content-extraction-benchmark`` (of
Murrough-Foley: WCXB), ``trafilatura`` (of adbar) and ``readability`` (of mozilla).
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import lxml.html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_WORD = re.compile(r"\w+")
# Words of a sequence in the set of news.
_WORDS = 4


class Labelled(NamedTuple):
    """A page, its kind, and what its text is: the text, or phrases that are in it and are not."""

    kind: str
    url: str
    body: bytes
    text: str = ""
    inside: Sequence[str] = ()
    outside: Sequence[str] = ()


def news(folder: Path) -> Iterator[Labelled]:
    """Yield the pages of article-extraction-benchmark."""
    truth = json.loads((folder / "ground-truth.json").read_text())
    for name, page in sorted(truth.items()):
        body = gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes())
        yield Labelled("news", page.get("url", ""), body, page.get("articleBody", ""))


def wcxb(folder: Path, split: str) -> Iterator[Labelled]:
    """Yield the pages of a split of WCXB, ``dev`` or ``test``; their kinds are those of the set."""
    for path in sorted((folder / split / "ground-truth").glob("*.json")):
        page = json.loads(path.read_text())
        body = (folder / split / "html" / f"{path.stem}.html.gz").read_bytes()
        kind = page["_internal"]["page_type"]["primary"]
        text = page["ground_truth"].get("main_content") or ""
        yield Labelled(kind, page.get("url") or "", gzip.decompress(body), text)


def trafilaturas(folder: Path) -> Iterator[Labelled]:
    """Yield the pages of trafilatura's own evaluation."""
    tests = folder / "tests"
    for url, page in json.loads((tests / "evaldata.json").read_text()).items():
        for path in (tests / "cache" / page["file"], tests / "eval" / page["file"]):
            if path.exists():
                yield Labelled(
                    "trafilatura", url, path.read_bytes(), "", page["with"], page["without"]
                )
                break


def readabilitys(folder: Path) -> Iterator[Labelled]:
    """Yield the test pages of Readability."""
    for page in sorted((folder / "test" / "test-pages").iterdir()):
        expected = lxml.html.fromstring((page / "expected.html").read_text() or "<p>")
        body = (page / "source.html").read_bytes()
        yield Labelled("readability", "http://page.example/", body, expected.text_content())


def by_sequences(pages: Sequence[Labelled], texts: Sequence[str]) -> float:
    """Return F1 as article-extraction-benchmark does: of the means of precision and recall."""
    rows = [
        (_sequences(page.text), _sequences(text)) for page, text in zip(pages, texts, strict=True)
    ]
    common = [((a & b).total(), a.total(), b.total()) for a, b in rows]
    precision = statistics.mean(both / found for both, _, found in common if found)
    recall = statistics.mean(both / wanted for both, wanted, _ in common if wanted)
    return 2 * precision * recall / (precision + recall)


def by_words(pages: Sequence[Labelled], texts: Sequence[str]) -> float:
    """Return the mean F1 of words, as WCXB does."""
    return statistics.mean(_f1(page.text, text) for page, text in zip(pages, texts, strict=True))


def by_phrases(pages: Sequence[Labelled], texts: Sequence[str]) -> float:
    """Return F1 of phrases, as trafilatura does: those in the text, and those that are not."""
    found = missed = wrong = 0
    for page, text in zip(pages, texts, strict=True):
        hits = sum(phrase in text for phrase in page.inside)
        found, missed = found + hits, missed + len(page.inside) - hits
        wrong += sum(phrase in text for phrase in page.outside)
    return 2 * found / (2 * found + missed + wrong)


SETS: dict[str, tuple[Callable[[Path], Iterator[Labelled]], Callable[..., float]]] = {
    "article-extraction-benchmark": (news, by_sequences),
    "web-content-extraction-benchmark": (lambda folder: wcxb(folder, "test"), by_words),
    "trafilatura": (trafilaturas, by_phrases),
    "readability": (readabilitys, by_words),
}


def _sequences(text: str) -> Counter[tuple[str, ...]]:
    words = _WORD.findall(text)
    starts = range(max(1, len(words) - _WORDS + 1))
    return Counter(found for n in starts if (found := tuple(words[n : n + _WORDS])))


def _f1(wanted: str, found: str) -> float:
    one, other = (Counter(_WORD.findall(text.lower())) for text in (wanted, found))
    if not one or not other:
        return float(one == other)
    return 2 * (one & other).total() / (one.total() + other.total())

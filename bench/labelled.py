"""Public sets of pages whose main text people have marked, and how each set scores a text.

Two are in Go modules, which ``go mod download`` fetches: the evaluation of trafilatura, and the
test pages of Readability. Two are repositories on GitHub, of which a folder has a checkout under
its own name: ``article-extraction-benchmark`` (of scrapinghub), and
``web-content-extraction-benchmark`` (of Murrough-Foley: WCXB).
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import lxml.html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TRAFILATURA = "github.com/markusmobius/go-trafilatura@v1.12.2"
_READABILITY = "codeberg.org/readeck/go-readability/v2@v2.1.3"
_WORD = re.compile(r"\w+")
WCXB = "web-content-extraction-benchmark"
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


def trafilaturas() -> Iterator[Labelled]:
    """Yield the pages of trafilatura's own evaluation."""
    module = _module(_TRAFILATURA)
    source = (module / "scripts" / "comparison" / "data.go").read_text()
    for url, entry in re.findall(r'^\t("http.*"): \{\n((?:\t\t.*\n)*)\t\}', source, re.MULTILINE):
        fields = dict(re.findall(r"^\t\t(\w+): +(?:\[\]string\{)?(.*?)\}?,$", entry, re.MULTILINE))
        phrases = [json.loads(f"[{fields.get(name, '')}]") for name in ("With", "Without")]
        for folder in ("comparison", "mock"):
            path = module / "test-files" / folder / json.loads(fields["File"])
            if path.exists():
                yield Labelled("trafilatura", json.loads(url), path.read_bytes(), "", *phrases)
                break


def readabilitys() -> Iterator[Labelled]:
    """Yield the test pages of Readability."""
    for expected in sorted(_module(_READABILITY).glob("test-pages/*/expected.html")):
        text = lxml.html.fromstring(expected.read_text() or "<p>").text_content()
        body = (expected.parent / "source.html").read_bytes()
        yield Labelled("readability", "http://page.example/", body, text)


def _module(name: str) -> Path:
    """Return the folder of a Go module, which is fetched once."""
    words = ["go", "mod", "download", "-json", name]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return Path(json.loads(done.stdout)["Dir"])


def is_served(page: Labelled, text: str) -> bool:
    """Return whether what people have marked is in a page without its scripts: half of the words,
    or one of the phrases. ``text`` is all text of the page as it was served."""
    if page.inside:
        return any(phrase in text for phrase in page.inside)
    wanted, found = (Counter(_WORD.findall(each.lower())) for each in (page.text, text))
    return bool(wanted) and 2 * (wanted & found).total() >= wanted.total()


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


# How each set scores texts.
SCORES: dict[str, Callable[[Sequence[Labelled], Sequence[str]], float]] = {
    "news": by_sequences,
    WCXB: by_words,
    "trafilatura": by_phrases,
    "readability": by_words,
}


def pages_by_set(checkouts: Path | None) -> dict[str, list[Labelled]]:
    """Return the pages of all sets; without ``checkouts`` only those in packages."""
    found = {"trafilatura": list(trafilaturas()), "readability": list(readabilitys())}
    if checkouts is not None:
        found["news"] = list(news(checkouts / "article-extraction-benchmark"))
        found[WCXB] = list(wcxb(checkouts / WCXB, "test"))
    return found


def _sequences(text: str) -> Counter[tuple[str, ...]]:
    words = _WORD.findall(text)
    starts = range(max(1, len(words) - _WORDS + 1))
    return Counter(found for n in starts if (found := tuple(words[n : n + _WORDS])))


def _f1(wanted: str, found: str) -> float:
    one, other = (Counter(_WORD.findall(text.lower())) for text in (wanted, found))
    if not one or not other:
        return float(one == other)
    return 2 * (one & other).total() / (one.total() + other.total())

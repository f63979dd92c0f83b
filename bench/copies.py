"""Measure near duplicates over real texts: which are false, and which changed copies are found.

The texts are of Debian's packages: pages of documentation, manual pages in several languages, and
the help of a program in four; and ``web``, the texts that are given.
"""

from __future__ import annotations

import gzip
import random
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.venvs import CACHE
from krowlspider.corpus.copies.duplicates import DuplicateIndex
from krowlspider.corpus.copies.fingerprints import fingerprints
from krowlspider.corpus.copies.place import PagePlace
from krowlspider.corpus.quality.rules import read_rules
from krowlspider.corpus.text.document import Reading, document
from krowlspider.corpus.warc_pages import CapturedPage
from tests.support.realdocs import documentation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from krowlspider.corpus.text.document import Document

_MANUALS = (
    *("manpages", "manpages-dev", "manpages-de", "manpages-de-dev", "manpages-fr"),
    *("manpages-fr-dev", "manpages-es", "manpages-pl", "manpages-ja", "manpages-ru"),
    *("manpages-it", "manpages-pt-br", "manpages-uk", "manpages-ro", "manpages-zh", "manpages-cs"),
)
_HELPS = tuple(f"libreoffice-help-{language}" for language in ("en-us", "de", "fr", "ru"))
# Words of a text that is compared with others, and texts of which changed copies are made.
_WORDS_MIN, _COPIED = 60, 2000
_TEXTS = 20_000


def measure(web: list[str], scratch: Path | None = None) -> dict[str, Any]:
    """Return false near duplicates among all texts, and the share of changed copies found."""
    kinds = dict(_real_texts(web))
    most = -(-_TEXTS // len(kinds))
    texts = [text for found in kinds.values() for text in found[: 3 * most]][: 2 * _TEXTS]
    chance = random.Random(1)
    chance.shuffle(texts)
    texts = texts[:_TEXTS]
    with tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as name:
        index = DuplicateIndex(Path(name), read_rules().similarity)
        same, shares, false = 0, [], 0
        kept = []
        for number, text in enumerate(texts):
            found = index.take(PagePlace("t", number, number), fingerprints(text))
            if found is None:
                kept.append(number)
            elif found.overlap is None:
                same += 1
            else:
                shares.append(_shared(text, texts[found.place.number]))
                false += shares[-1] < 0.2
        recall = Counter[str]()
        copied = kept[:_COPIED]
        for number in copied:
            for change, text in _changed(texts[number], chance).items():
                found = index.find(fingerprints(text))
                recall[change] += found is not None
        index.close()
    return {
        "texts": len(texts),
        "kinds": {kind: len(found) for kind, found in kinds.items()},
        "same": same,
        "near": len(shares),
        "least_in_common": round(min(shares, default=1), 3),
        "false": false,
        "recall": {name: round(n / len(copied), 3) for name, n in recall.items()},
    }


def _real_texts(web: list[str]) -> Iterator[tuple[str, list[str]]]:
    pages = sorted(documentation().rglob("*.html"))
    bodies = (_page_of(path) for path in pages)
    yield "documentation", _long(found.text for found in bodies)
    yield "manual pages", _long(_manuals())
    helps = _unpacked("help", _HELPS).rglob("*.html")
    yield "help of programs", _long(_page_of(path).text for path in sorted(helps))
    yield "web", _long(web)


def _page_of(path: Path) -> Document:
    return document(
        CapturedPage("http://docs.example/", "", "", "", [], path.read_bytes()), Reading()
    )


def _manuals() -> Iterator[str]:
    for path in sorted(_unpacked("manuals", _MANUALS).glob("usr/share/man/**/*.gz")):
        if path.is_file():
            source = gzip.decompress(path.read_bytes()).decode(errors="replace")
            yield re.sub(r"^[.'].{0,3}(?:\\\".*)?|\\f[A-Z]|\\[&-]", " ", source, flags=re.MULTILINE)


def _unpacked(name: str, packages: Iterable[str]) -> Path:
    """Return a folder with what is in Debian's packages, which are fetched once."""
    folder = CACHE / name
    if not folder.exists():
        folder.mkdir(parents=True)
        words = ["apt-get", "download", *packages]
        subprocess.run(words, cwd=folder, check=True, capture_output=True)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package.name, "all"], cwd=folder, check=True)
    return folder / "all"


def _long(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for text in texts if len(text.split()) >= _WORDS_MIN))


def _shared(one: str, other: str) -> float:
    a, b = (
        {tuple(words[n : n + 5]) for n in range(len(words) - 4)}
        for words in (one.lower().split(), other.lower().split())
    )
    return len(a & b) / (len(a | b) or 1)


def _changed(text: str, chance: random.Random) -> dict[str, str]:
    words = text.split()
    number = max(len(words) // 50, 1)
    replaced, removed, added = [*words], [*words], [*words]
    for place in chance.sample(range(len(words)), number):
        replaced[place] = f"changed{place}"
    for place in sorted(chance.sample(range(len(words)), number), reverse=True):
        del removed[place]
    for place in chance.sample(range(len(words)), number):
        added.insert(place, f"added{place}")
    frame = [f"menu{n}" for n in range(len(words) // 10)]
    return {
        name: " ".join(each)
        for name, each in (
            ("2 % replaced", replaced),
            ("2 % removed", removed),
            ("2 % added", added),
            ("a header of 10 %", [*frame, *words]),
            ("a footer of 10 %", [*words, *frame]),
        )
    }

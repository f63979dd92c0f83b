"""Which language a text is in, by CLD2: by its script, and then by its sequences of letters."""

from __future__ import annotations

import re
from collections import Counter

from krowlspider.corpus.extras import need
from krowlspider.corpus.languages import LANGUAGES, MACRO

UNKNOWN = "unknown"
# Characters of text in which the language is detected.
_DETECTED = 2000
# Below this confidence the language is unknown.
_LEAST = 0.4
# CLD2's score, for a kilobyte of text in the language that it found.
_SCORE = 600
# Bytes of letters of a text that is long enough.
_SIZE = 60
# Codes that were withdrawn from ISO 639-1; written Chinese is one language.
_CODES = {"iw": "he", "jw": "jv", "zh-Hant": "zh"}
# The macro language of each language that is in one.
_MACRO = {code: name for name, members in MACRO.items() for code in members} | {"zh-Hant": "zh"}
# Characters that CLD2 does not take, none of which is text.
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def detected(text: str) -> tuple[str, float]:
    """Return the language of a text, and the confidence from 0 to 1.

    That is the share of the text in the language less the share in the next one, lowered if the
    sequences of letters are rare in it, or the text is short. Languages of one macro language count
    together. The language is "unknown" below 0.4.
    """
    cld = need("pycld2")
    start = text[:_DETECTED]
    try:
        found = cld.detect(start, isPlainText=True, bestEffort=True)
    except (cld.error, UnicodeError):
        start = _NO_TEXT.sub(" ", start)
        found = cld.detect(start.encode(errors="ignore"), isPlainText=True, bestEffort=True)
    _, size, parts = found
    shares = Counter[str]()
    for _, code, share, _ in parts:
        shares[_MACRO.get(code, code)] += share
    (name, first), *others = shares.most_common(2)
    second = others[0][1] if others else 0
    code, score = next(
        (code, score) for _, code, _, score in parts if _MACRO.get(code, code) == name
    )
    confidence = (first - second) / 100 * min(score / _SCORE, 1) * min(size / _SIZE, 1)
    code = _CODES.get(code, code)
    if code not in LANGUAGES:
        return UNKNOWN, 0.0
    return code if confidence >= _LEAST else UNKNOWN, round(max(confidence, 0.0), 2)

"""Find public IP addresses, not the numbers of versions and chapters that look like them."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Of IPv6 only the range in use, 2000::/3: other addresses look like names in programs.
_ADDRESS = re.compile(
    r"(?<![\w.:-])(?:(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)"
    r"|[23][0-9a-f]{3}:[0-9a-f:]{1,33}(?:[0-9a-f]|::)(?![\w-]|\.\w))",
    re.IGNORECASE,
)
# Words before numbers of four parts that are no addresses, in the languages of many pages.
_NUMBERED = (
    *("versions?", "vers?", "releases?", "rel", "revisions?", "rev", "builds?", "firmware", "fw"),
    *("kernel", "drivers?", "patch", "update", "upgrade", "upgraded", "updated", "downgrade"),
    *("sections?", "sect?", "subsections?", "chapters?", "chap", "paragraphs?", "para", "clauses?"),
    *("articles?", "art", "appendix", "annex", "figures?", "fig", "tables?", "items?", "rules?"),
    *("requirements?", "steps?", "examples?", "exercises?", "theorem", "lemma", "equation", "eq"),
    *("abschnitte?", "kapitel", "abbildung", "tabelle", "absatz", "ziffer", "versión", "sección"),
    *("capítulo", "versão", "seção", "versione", "sezione", "chapitre", "versie", "hoofdstuk"),
    *("версия", "версии", "раздел", "глава", "версію", "wersja", "sürüm", "版本", "バージョン"),
)
# Then a few more of the same kind may come: "versions 1.2.3.4, 1.2.3.5 and 1.2.3.6".
_BEFORE = re.compile(
    rf"(?:(?<!\w)(?:{'|'.join(_NUMBERED)})\.?|§{{1,2}})"
    r"\s{0,2}(?:numbers?|no\.|nr\.|n°|№)?[\s:=#(\"'-]{0,3}(?:[<>]=?|[≥≤~])?\s?(?:v\.?\s?)?"
    r"(?:\d[\w.-]{0,20}(?:\s?(?:,|/|–|-|to|and|or|through|until|und|bis|et|y)\s?){1,2}v?){0,4}\Z",
    re.IGNORECASE,
)
# Characters before a match that are looked at.
_CONTEXT = 64
# The version of a product: "Mozilla/5.0.0.1". A slash before it, as in URLs, is no letter.
_PRODUCT = re.compile(r"[A-Za-z]/\Z")
# The number of a heading at the begin of a line: "4.1.2.3. String Constants".
_HEADING = re.compile(
    r"^[ \t]*(?:\d{1,2}\.){3}\d{1,2}(?:\.\s|[ \t\u00a0]+[^\W\d_a-z])", re.MULTILINE
)


def find(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each address."""
    for match in _ADDRESS.finditer(text):
        if _is_public(match[0]) and not (":" not in match[0] and _is_version(text, match.start())):
            yield match.span()


def _is_version(text: str, start: int) -> bool:
    before = text[max(0, start - _CONTEXT) : start]
    if _BEFORE.search(before) or _PRODUCT.search(before):
        return True
    indent = len(before) - len(before.rstrip(" \t"))
    return _HEADING.match(text, start - indent) is not None


def _is_public(address: str) -> bool:
    try:
        return ip_address(address).is_global
    except ValueError:
        return False

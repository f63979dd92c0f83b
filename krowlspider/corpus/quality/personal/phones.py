"""Find phone numbers: those whose form tells, and those that the words around them name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXTENSION = r"(?:(?:\s?(?:x|ext\.?|extension)\s?|;ext=)\d{1,6})?"
_END = r"(?![\w-]|[.,]\d|/\d)"
# With the code of a country behind "+" or "00"; as in North America, which has no such code; with
# the zero of a trunk and three groups or more, which one character separates.
_FORM = re.compile(
    r"(?<![\w+.,/-])(?<!\d )(?:"
    r"\+(?:[ ().\-/\u00a0]{0,2}\d){8,15}"
    r"|00[1-9]\d{0,2}(?:[ .-]\(?\d{1,8}\)?){2,6}"
    r"|(?:1[-. ])?(?:\(\d{3}\)[ -]?|\d{3}[-.])\d{3}[-. ]\d{4}"
    r"|1 \d{3} \d{3} \d{4}"
    r"|\(?0\d{1,4}\)?([ .-])\d{2,4}(?:\1\d{2,4}){1,4}(?!\1\d)"
    rf"){_EXTENSION}{_END}",
    re.IGNORECASE,
)
# Digits of a number, by the form of its beginning.
_DIGITS = {"+": (8, 15), "00": (9, 16), "0": (9, 11), "": (10, 11)}
# Labels of numbers, in the languages of many pages; those that are also other words need a colon.
_LABELS = (
    *("phones?", "telephones?", "tele?", "mobile", "mob", "cell", "cellphone", "fax", "telefax"),
    *("whatsapp", "telegram", "viber", "hotline", "helpline", "landline", "téléphone", "portable"),
    *("telefon", "telefonnummer", "handy", "rufnummer", "teléfono", "telefono", "telefone"),
    *("móvil", "celular", "cellulare", "telefoon", "puhelin", "telefonas", "телефон", "тел", "моб"),
    *("факс", "電話番号", "電話", "电话", "手机", "传真", "전화", "هاتف", "टेलीफोन", "फ़ोन"),
)
_WITH_COLON = ("desk", "direct", "office", "work", "home", "toll[- ]free", "sms", "call", "ph")
_LABEL = re.compile(
    rf"(?<!\w)(?:(?:{'|'.join(_LABELS)})"
    r"(?:\s?(?:numbers?|no|nr|n°|№|#)\.?)?\.?\s?(?:is|at|on|[:：#])?"
    rf"|(?:{'|'.join(_WITH_COLON)})(?:\s?numbers?)?[:：])[\s|*]{{0,4}}\Z",
    re.IGNORECASE,
)
# Words that say it in a sentence.
_SAID = re.compile(
    r"(?<!\w)(?:(?:call|ring|phone|reach|contact|text|whatsapp|dial|answering)"
    r"(?:\s(?:me|us|him|her|them|back|now|today))?\s?(?:at|on|:)?"
    r"|(?:messages?|sms|texts?|calls)\s(?:to|from|at|on))\s{1,2}\Z",
    re.IGNORECASE,
)
# Behind a number at the begin of a line, as in signatures: "416 60 039 office".
_BEGIN = re.compile(r"(?:\A|[\n,])[ \t]?\Z")
_ROLE = re.compile(
    r"[ \t]?[-–(]?[ \t]?(?:office|fax|mobile|cell|home|work|phone|tel|desk|direct)\b",
    re.IGNORECASE,
)
# Characters before a number that are looked at.
_CONTEXT = 48
_NUMBER = re.compile(
    rf"(?<!\w)\(?\+?\d(?:[ ().\-/\u00a0]{{0,2}}\d){{6,14}}{_EXTENSION}(?!\w|[-.,/]\d)",
    re.IGNORECASE,
)
_NO_DIGIT = re.compile(r"\D")
_AFTER_NUMBER = re.compile("[xe;]", re.IGNORECASE)
_DATE = re.compile(
    r"(?:(?:19|20)\d\d([ ./-])(?:0?\d|1[0-2])\1(?:[0-2]?\d|3[01])"
    r"|(?:[0-2]?\d|3[01])([ ./-])(?:[0-2]?\d|3[01])\2(?:19|20)?\d\d"
    r"|(?:19|20)\d\d ?[-–/] ?(?:19|20)\d\d)(?!\w|[./-]\d)"
)
# A number of the United States' social security; a place on the globe; a large round number.
_OTHER = re.compile(
    r"\d{3}-\d{2}-\d{4}\Z|\+\d{1,3}\.\d{3,8}(?!\d)|\+?\d{1,3}(?:[ .]\d{3})*[ .]000\Z"
)
# Digits by thousands: a count or a price, unless a label says that it is a number to call.
_THOUSANDS = re.compile(r"\d{1,3}(?:[ .,\u00a0]\d{3})+")


def find(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each number."""
    found = [match.span() for match in _FORM.finditer(text) if _is_number(match[0])]
    found += [match.span() for match in _NUMBER.finditer(text) if _is_named(match)]
    last = 0
    for start, end in sorted(found, key=lambda span: (span[0], -span[1])):
        if start >= last:
            yield start, end
            last = end


def _is_named(match: re.Match[str]) -> bool:
    """Return whether the text around a number says that it is one to call."""
    if _DATE.match(match[0]):
        return False
    text, start = match.string, match.start()
    before = text[max(0, start - _CONTEXT) : start]
    if _LABEL.search(before) or (_BEGIN.search(before) and _ROLE.match(text, match.end())):
        return True
    return bool(_SAID.search(before)) and not _THOUSANDS.fullmatch(match[0])


def _is_number(text: str) -> bool:
    """Return whether a text in the form of a number has as many digits as such a number."""
    if _DATE.match(text) or _OTHER.match(text):
        return False
    bare = text.lstrip("(")
    kind = next(start for start in _DIGITS if bare.startswith(start))
    least, most = _DIGITS[kind]
    digits = _NO_DIGIT.sub("", _AFTER_NUMBER.split(text, maxsplit=1)[0])
    return least <= len(digits) <= most

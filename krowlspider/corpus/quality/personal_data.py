"""Find and mask e-mail addresses, phone numbers and IP addresses in the fields of a page.

Each takes time linear in the length of the text.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.corpus.text.document import Document

# Letters, digits, "_", and the marks on letters of Indic and other scripts, which are no letters.
_LETTER = r"\w\u0300-\u036f\u0900-\u0dff\u0e31-\u0e4e"
# No match starts within a run of its characters, and ++ does not backtrack: a run is read once. An
# apostrophe begins no address, so that quoted ones are found without their quotes.
_EMAIL = re.compile(
    rf"(?<![{_LETTER}.%+-])(?<!\w['’])[{_LETTER}%+-][{_LETTER}.%+'’-]*+@"
    rf"([{_LETTER}-]{{1,63}}+(?:[.\u3002\uff0e][{_LETTER}-]{{1,63}}+){{1,8}})"
)
_DOT = re.compile("[.\u3002\uff0e]")
# A top-level domain has letters of ASCII, none of ASCII, or is the encoded form of the latter. What
# follows the first without a space is text in another script.
_TOP = re.compile(
    r"xn--[a-z0-9-]{2,59}+$|[a-z]{2,63}+(?![0-9_-])|[^\x00-\x7f]{2,63}+$", re.IGNORECASE
)
_DOMAIN_LABEL = re.compile(r"(?!-)[^_]++(?<!-)")
# A remote path of scp or Git: user@host:folder/file, user@host:name.git.
_REMOTE = re.compile(r":~?[\w.-]*+(?:/|(?<=\.git)(?![\w/]))")
# The user of a URL, with a password or without: ssh://git@host/. Addresses of ``mailto:`` have no
# slashes.
_USER = re.compile(r"://[^\s/@]*+$")
_USER_MAX = 200
# Pictures for two pixels a point: icon@2x.png.
_SCALED = re.compile(r"\d(?:\.\d)?x(?:~\w+)?\.(?:png|jpe?g|gif|svg|webp|avif)", re.IGNORECASE)


def emails(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each e-mail address, with domains in any script too (RFC 6531)."""
    if "@" not in text:
        return
    for match in _EMAIL.finditer(text):
        end = _end_of_domain(match)
        before = text[max(0, match.start() - _USER_MAX) : match.start()]
        if end is None or ("://" in before and _USER.search(before)):
            continue
        if not _REMOTE.match(text, end):
            yield match.start(), end


def _end_of_domain(match: re.Match[str]) -> int | None:
    """Return where the domain ends; None if it is none."""
    domain = match[1]
    *labels, last = _DOT.split(domain)
    top = _TOP.match(last)
    if top is None or not all(map(_DOMAIN_LABEL.fullmatch, labels)) or _SCALED.fullmatch(domain):
        return None
    return match.end() - len(last) + top.end()


# Of IPv6 only the range in use, 2000::/3: other addresses look like names in programs.
_IP = re.compile(
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
_IP_CONTEXT = 64
# The version of a product: "Mozilla/5.0.0.1". A slash before it, as in URLs, is no letter.
_PRODUCT = re.compile(r"[A-Za-z]/\Z")
# The number of a heading at the begin of a line: "4.1.2.3. String Constants".
_HEADING = re.compile(
    r"^[ \t]*(?:\d{1,2}\.){3}\d{1,2}(?:\.\s|[ \t\u00a0]+[^\W\d_a-z])", re.MULTILINE
)


def ips(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each public IP address, not of the numbers of versions and chapters
    that look like one."""
    for match in _IP.finditer(text):
        if _is_public(match[0]) and not (":" not in match[0] and _is_version(text, match.start())):
            yield match.span()


def _is_version(text: str, start: int) -> bool:
    before = text[max(0, start - _IP_CONTEXT) : start]
    if _BEFORE.search(before) or _PRODUCT.search(before):
        return True
    indent = len(before) - len(before.rstrip(" \t"))
    return _HEADING.match(text, start - indent) is not None


def _is_public(address: str) -> bool:
    try:
        return ip_address(address).is_global
    except ValueError:
        return False


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
_PHONE_CONTEXT = 48
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


def phones(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each phone number: its form tells, or the words around it name it."""
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
    before = text[max(0, start - _PHONE_CONTEXT) : start]
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


# The marks are those of Dolma (Soldaini et al. 2024).
_KINDS: dict[str, tuple[Callable[[str], Iterator[tuple[int, int]]], str]] = {
    "email": (emails, "|||EMAIL_ADDRESS|||"),
    "ip": (ips, "|||IP_ADDRESS|||"),
    "phone": (phones, "|||PHONE_NUMBER|||"),
}
KINDS = frozenset(_KINDS)
_FIELDS = ("title", "description", "author")
# Fields of pairs: their values, unless they are URLs.
_PAIRS = ("open_graph", "json_ld_fields")


def mask(document: Document, kinds: Iterable[str]) -> dict[str, int]:
    """Mask the text and the fields that people write; return how many of each kind were masked."""
    counts: dict[str, int] = {}
    for kind in sorted(kinds):
        document.text, count = _masked(document.text, kind)
        for name in _FIELDS:
            if isinstance(value := document.fields.get(name), str):
                document.fields[name], more = _masked(value, kind)
                count += more
        for pair in (pair for name in _PAIRS for pair in document.fields.get(name) or ()):
            if "://" not in pair.value:
                pair.value, more = _masked(pair.value, kind)
                count += more
        for link in document.fields.get("links") or ():
            link.text, more = _masked(link.text, kind)
            count += more
        if count:
            counts[kind] = count
    return counts


def _masked(text: str, kind: str) -> tuple[str, int]:
    """Return a text with each place of a kind masked, and how many there were."""
    find, mark = _KINDS[kind]
    parts, last = [], 0
    for start, end in find(text):
        parts += [text[last:start], mark]
        last = end
    return "".join([*parts, text[last:]]), len(parts) // 2

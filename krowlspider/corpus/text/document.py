"""Take text, language and metadata from a page of HTML, a PDF or a page of gemtext.

HTML is decoded as browsers do, unless the declared encoding does not fit the bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from w3lib.encoding import resolve_encoding

from krowlspider.corpus.optouts import Licences, licences_in
from krowlspider.corpus.text.extractors import (
    TextSource,
    links,
    links_of,
    markdown,
    plain_text,
    read_head,
    short,
)
from krowlspider.corpus.warc_pages import CapturedPage, Unreadable
from krowlspider.errors import need
from krowlspider.gemini import gemtext
from krowlspider.urls.canonical import normalise_archived
from krowlspider.urls.encoding import DEFAULT, codec_for, decode, known_encoding, mark_of

# Codes of ISO 639-1, or else of 639-3, and, for WET, those of ISO 639-3.
_ISO_CODES = """
aa:aar ab:abk af:afr ak:aka am:amh ar:ara as:asm ay:aym az:aze ba:bak be:bel bg:bul bh:bih bi:bis
bn:ben bo:bod br:bre bs:bos ca:cat ceb:ceb chr:chr co:cos crs:crs cs:ces cy:cym da:dan de:deu dv:div
dz:dzo el:ell en:eng eo:epo es:spa et:est eu:eus fa:fas fi:fin fj:fij fo:fao fr:fra fy:fry ga:gle
gd:gla gl:glg gn:grn gu:guj gv:glv ha:hau haw:haw he:heb hi:hin hmn:hmn hr:hrv ht:hat hu:hun hy:hye
ia:ina id:ind ie:ile ig:ibo ik:ipk is:isl it:ita iu:iku ja:jpn jv:jav ka:kat kha:kha kk:kaz kl:kal
km:khm kn:kan ko:kor ks:kas ku:kur ky:kir la:lat lb:ltz lg:lug lif:lif ln:lin lo:lao lt:lit lv:lav
mfe:mfe mg:mlg mi:mri mk:mkd ml:mal mn:mon mr:mar ms:msa mt:mlt my:mya na:nau ne:nep nl:nld nn:nno
no:nor nr:nbl nso:nso ny:nya oc:oci om:orm or:ori pa:pan pl:pol ps:pus pt:por qu:que rm:roh rn:run
ro:ron ru:rus rw:kin sa:san sco:sco sd:snd sg:sag si:sin sk:slk sl:slv sm:smo sn:sna so:som sq:sqi
sr:srp ss:ssw st:sot su:sun sv:swe sw:swa syr:syr ta:tam te:tel tg:tgk th:tha ti:tir tk:tuk tl:tgl
tn:tsn to:ton tr:tur ts:tso tt:tat ug:uig uk:ukr ur:urd uz:uzb ve:ven vi:vie vo:vol war:war wo:wol
xh:xho yi:yid yo:yor za:zha zh:zho zu:zul
"""
LANGUAGES = dict(each.split(":") for each in _ISO_CODES.split())
# Macro languages that `language.accepted` may name, with the codes of the languages in them.
MACRO = {"no": ("no", "nn"), "sh": ("bs", "hr", "sr")}
# Those that are written without spaces.
SPACELESS = frozenset({"zh", "ja", "th", "lo", "my", "km", "bo", "dz"})
# Gopher's eight for English; as many of the most frequent words for others.
STOP_WORDS = {
    "en": frozenset({"the", "be", "to", "of", "and", "that", "have", "with"}),
    "de": frozenset({"der", "die", "und", "in", "den", "von", "zu", "das", "mit", "ist"}),
    "fr": frozenset({"de", "la", "le", "et", "les", "des", "en", "un", "une", "est"}),
    "es": frozenset({"de", "la", "que", "el", "en", "y", "los", "del", "las", "un"}),
    "it": frozenset({"di", "e", "il", "la", "che", "in", "un", "per", "del", "è"}),
    "pt": frozenset({"de", "a", "o", "que", "e", "do", "da", "em", "um", "para"}),
    "nl": frozenset({"de", "van", "het", "een", "en", "in", "is", "dat", "op", "te"}),
    "pl": frozenset({"i", "w", "na", "z", "do", "się", "jest", "nie", "to", "że"}),
    "ru": frozenset({"и", "в", "не", "на", "что", "с", "по", "как", "это", "для"}),
    "sv": frozenset({"och", "i", "att", "det", "som", "en", "på", "är", "av", "för"}),
}

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
_OLD_CODES = {"iw": "he", "jw": "jv", "zh-Hant": "zh"}
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
    _, size, parts = _detect(text[:_DETECTED], best_effort=True)
    shares = Counter[str]()
    for _, code, share, _ in parts:
        shares[_MACRO.get(code, code)] += share
    (name, first), *others = shares.most_common(2)
    second = others[0][1] if others else 0
    code, score = next(
        (code, score) for _, code, _, score in parts if _MACRO.get(code, code) == name
    )
    confidence = (first - second) / 100 * min(score / _SCORE, 1) * min(size / _SIZE, 1)
    code = _OLD_CODES.get(code, code)
    if code not in LANGUAGES:
        return UNKNOWN, 0.0
    return code if confidence >= _LEAST else UNKNOWN, round(max(confidence, 0.0), 2)


def languages(text: str) -> list[str]:
    """Return the codes of ISO 639-3 of up to three languages of a text, the most frequent first.

    It is CLD2's answer: empty if that is not reliable.
    """
    is_reliable, _, parts = _detect(text, best_effort=False)
    codes = (_OLD_CODES.get(code, code) for _, code, share, _ in parts if share)
    return [LANGUAGES[code] for code in codes if code in LANGUAGES] if is_reliable else []


def _detect(text: str, *, best_effort: bool) -> Any:
    cld = need("pycld2")
    try:
        return cld.detect(text, isPlainText=True, bestEffort=best_effort)
    except (cld.error, UnicodeError):
        kept = _NO_TEXT.sub(" ", text).encode(errors="ignore")
        return cld.detect(kept, isPlainText=True, bestEffort=best_effort)


# Encodings without the text that the bytes were meant for.
_WITHOUT_TEXT = frozenset({"replacement", "x-user-defined"})
# Bytes that an encoding does not define. Python has private characters for some of them.
_LOST = re.compile("[\ufffd\ue000-\uf8ff]")
# The standard has control characters for others, which no text needs.
_ODD = re.compile("[\ufffd\ue000-\uf8ff\x80-\x9f]")
# An encoding that is wrong loses more characters, and a larger share of the non-ASCII ones.
_LOST_MAX = 3
_LOST_SHARE_MAX = 0.05
# Of other encodings two thirds or more are odd in UTF-8.
_UTF8_MAX = 0.5
# Characters outside ASCII by which UTF-8 is known where another encoding is declared.
_UTF8_MIN = 2
# The sets that the standard has made larger. Short UTF-8 may fit the larger one.
_SMALLER = {"cp949": "euc_kr", "cp932": "shift_jis", "big5hkscs": "big5", "gb18030": "gbk"}
# Bytes by which encodings are compared, from the first that is not plain ASCII.
_SAMPLE = 128 * 1024
_NOT_PLAIN = re.compile(rb"[\x1b\x80-\xff]")


@dataclass(frozen=True, slots=True)
class _Reading:
    """A sample in one encoding. ``odd`` is the share of odd characters, 0 if it fits."""

    encoding: str
    text: str
    odd: float


def decoded(body: bytes, charset: str | None) -> tuple[str, str]:
    """Return Python's name of the encoding of HTML, and its text: by byte order mark, ``charset``
    of the HTTP header, meta element, guess.

    A few bytes that a declared encoding does not define are replaced. With more of them, UTF-8 or
    the guess is taken, if it fits better.
    """
    mark, marked = mark_of(body)
    if mark:
        name = codec_for(marked)
        return name, decode(body[len(mark) :], name)
    known = known_encoding(body, charset)
    declared = "" if known is None or known in _WITHOUT_TEXT else codec_for(known)
    text = _strict(body, declared or "utf-8")
    if text is not None and (declared == "utf-8" or _fits(body, text, declared or "utf-8")):
        return declared or "utf-8", text
    first = _NOT_PLAIN.search(body)
    # An even place: a character of UTF-16 has two bytes.
    start = first.start() & ~1 if first else 0
    name = _best(body[start : start + _SAMPLE], declared, _guessed(body))
    return name, decode(body, name)


def _guessed(body: bytes) -> str:
    """Return the codec of the encoding that the frequencies of the bytes suggest."""
    encodings = need("resiliparse.parse.encoding")
    label = encodings.detect_encoding(body)
    name = encodings.map_encoding_to_html5(label, fallback_utf8=False)
    return (name and resolve_encoding(name)) or codec_for(DEFAULT)


def _strict(body: bytes, name: str) -> str | None:
    try:
        return body.decode(name)
    except UnicodeDecodeError:
        return None


def _fits(body: bytes, text: str, name: str) -> bool:
    """Return whether a strictly decoded text is no UTF-8 or private characters by chance."""
    if _LOST.search(text) or (len(text) == len(body) and _is_utf8(body)):
        return False
    smaller = _SMALLER.get(name)
    return smaller is None or _strict(body, "utf-8") is None or _strict(body, smaller) is not None


def _is_utf8(body: bytes) -> bool:
    """Return whether a body has at least two characters outside ASCII, and all are UTF-8. In an
    encoding with one byte a character that does not come by chance."""
    if body.isascii() or (text := _strict(body, "utf-8")) is None:
        return False
    return len(text) - len(text.encode("ascii", "ignore")) >= _UTF8_MIN


def _best(sample: bytes, declared: str, guessed: str) -> str:
    # The escapes of ISO-2022-JP are UTF-8 too.
    has_escapes = declared.startswith("iso2022") and sample.isascii()
    if not has_escapes and _read(sample, "utf-8").odd < _UTF8_MAX:
        return "utf-8"
    if declared in {"", "utf-8"}:
        return guessed
    first, guess = _read(sample, declared), _read(sample, guessed)
    return guessed if _is_better(guess, first, sample) else declared


def _is_better(guess: _Reading, declared: _Reading, sample: bytes) -> bool:
    if len(guess.text) < len(sample):
        return guess.odd < declared.odd / 2
    # An encoding with one byte a character fits most bytes.
    lost, share = _count(_LOST, declared.text)
    return lost > _LOST_MAX and share > _LOST_SHARE_MAX and guess.odd < declared.odd


def _read(sample: bytes, name: str) -> _Reading:
    text = decode(sample, name, is_whole=False)
    return _Reading(name, text, _count(_ODD, text)[1])


def _count(characters: re.Pattern[str], text: str) -> tuple[int, float]:
    """Return how many of these characters a text has, and their share of its non-ASCII ones."""
    count = len(characters.findall(text))
    return count, count / (len(text) - len(text.encode("ascii", "ignore"))) if count else 0


# Pages of a PDF that are read, and characters of its text.
_PAGES_MAX = 2000
_CHARS_MAX = 8 * 1024 * 1024
# pdfium's sign for a hyphen at the end of a line, with the line break.
_HYPHEN = re.compile("[\ufffe\x02]\n?")
_PDF_DATE = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?")
_NAMES = {"title": "Title", "author": "Author", "description": "Subject"}
_DATES = {"published": "CreationDate", "modified": "ModDate"}


@dataclass(frozen=True, slots=True)
class Reading:
    """How a page is read: by which of EXTRACTORS, as Markdown or not, with its links or not.

    ``pdf``: PDFs are read too.
    """

    extractor: str = "resiliparse"
    markdown: bool = False
    links: bool = False
    pdf: bool = False


@dataclass(slots=True)
class Document:
    """The text of a page, its language, what its head says of it, and its RSL licences.

    ``confidence`` is that of `detected`. ``metas`` are pairs of lower-case name and content.
    Markdown is made of ``source``.
    """

    text: str
    language: str
    confidence: float
    encoding: str
    metas: list[tuple[str, str]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    source: TextSource | None = None
    licences: Licences = field(default_factory=Licences)


def document(page: CapturedPage, reading: Reading) -> Document:
    """Return the document in a page. Whatever the bytes are, some text is found."""
    encoding, html = decoded(page.body, page.charset)
    tree = need("resiliparse.parse.html").HTMLTree.parse(html)
    # Before the text is taken, which changes the tree.
    fields, metas = read_head(tree, html, page.url) if tree.head is not None else ({}, [])
    licences = licences_in(tree, html, page.url)
    if reading.links:
        fields["links"] = links(tree, page.url)
    source = TextSource(tree, html, page.url, reading.extractor)
    text = plain_text(source)
    language, confidence = detected(text)
    made_of = source if reading.markdown else None
    return Document(text, language, confidence, encoding, metas, fields, made_of, licences)


def with_markdown(found: Document) -> Document:
    """Return a document with its text as Markdown, if it is read so."""
    if found.source is None:
        return found
    return replace(found, text=markdown(found.source))


def pdf_document(page: CapturedPage) -> Document:
    """Return the document in a PDF.

    :raises Unreadable: it is no PDF, or needs a password
    """
    pdfium = need("pypdfium2", "pdf")
    try:
        file = pdfium.PdfDocument(page.body)
    except pdfium.PdfiumError as error:
        raise Unreadable("not a readable PDF") from error
    texts, chars = [], 0
    try:
        about = {key: _about(file, key) for key in (*_NAMES.values(), *_DATES.values())}
        for number in range(min(len(file), _PAGES_MAX)):
            pdf_page = file[number]
            text = pdf_page.get_textpage().get_text_bounded()
            pdf_page.close()
            chars += len(text)
            if chars > _CHARS_MAX:
                break
            texts.append(text.replace("\r\n", "\n").strip())
    except pdfium.PdfiumError as error:
        raise Unreadable("not a readable PDF") from error
    finally:
        file.close()
    text = _HYPHEN.sub("", "\n\n".join(filter(None, texts)))
    found = Document(text, *detected(text), "")
    for name, key in _NAMES.items():
        if value := short(about[key]):
            found.fields[name] = value
    for name, key in _DATES.items():
        if date := _PDF_DATE.match(about[key]):
            found.fields[name] = "-".join(filter(None, date.groups()))
    return found


def gemtext_document(page: CapturedPage, reading: Reading) -> Document:
    """Return the document in a page of gemtext. Whatever the bytes are, some text is found."""
    encoding, text = decoded(page.body, page.charset)
    read = gemtext.read(text, page.url)
    fields: dict[str, Any] = {"title": short(read.title)} if read.title else {}
    if reading.links:
        fields["links"] = links_of(
            ((each.url_reference, each.text) for each in read.links),
            page.url,
            normalise_archived,
        )
    return Document(read.text, *detected(read.text), encoding, fields=fields)


def _about(file: Any, key: str) -> str:
    try:
        value: str = file.get_metadata_value(key)
    except UnicodeDecodeError:
        # Half of a surrogate pair.
        return ""
    return value

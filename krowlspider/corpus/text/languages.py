"""Languages: which one a text is in, by CLD2; those written without spaces, and frequent words."""

from __future__ import annotations

import re
from collections import Counter

from krowlspider.errors import need

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
    code = _OLD_CODES.get(code, code)
    if code not in LANGUAGES:
        return UNKNOWN, 0.0
    return code if confidence >= _LEAST else UNKNOWN, round(max(confidence, 0.0), 2)

"""Pure: the languages that are detected, those written without spaces, and frequent words."""

from __future__ import annotations

# Codes of ISO 639-1 and, for WET, those of ISO 639-3.
_CODES = """
af:afr ar:ara as:asm az:aze ba:bak be:bel bg:bul bn:ben bo:bod br:bre ca:cat ce:che cs:ces
cv:chv cy:cym da:dan de:deu dv:div el:ell en:eng eo:epo es:spa et:est eu:eus fa:fas fi:fin
fo:fao fr:fra fy:fry ga:gle gd:gla gl:glg gu:guj ha:hau he:heb hi:hin hr:hrv hu:hun hy:hye
id:ind io:ido is:isl it:ita ja:jpn jv:jav ka:kat kk:kaz km:khm kn:kan ko:kor ku:kur ky:kir
la:lat lb:ltz lt:lit lv:lav mg:mlg mk:mkd ml:mal mn:mon mr:mar mt:mlt my:mya ne:nep nl:nld
no:nor or:ori pa:pan pl:pol ps:pus pt:por rm:roh ro:ron ru:rus sa:san sc:srd sd:snd si:sin
sk:slk sl:slv so:som sq:sqi sr:srp sv:swe sw:swa ta:tam te:tel tg:tgk th:tha tk:tuk tl:tgl
tr:tur tt:tat ug:uig uk:ukr ur:urd uz:uzb vi:vie vo:vol yi:yid zh:zho
"""
LANGUAGES = dict(each.split(":") for each in _CODES.split())
# Those that are written without spaces.
SPACELESS = frozenset({"zh", "ja", "th", "my", "km", "bo"})
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

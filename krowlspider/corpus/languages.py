"""Pure: the languages that are detected, those written without spaces, and frequent words."""

from __future__ import annotations

# Codes of ISO 639-1, or else of 639-3, and, for WET, those of ISO 639-3.
_CODES = """
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
LANGUAGES = dict(each.split(":") for each in _CODES.split())
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

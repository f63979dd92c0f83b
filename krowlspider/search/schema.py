"""The fields of the index, and how their text becomes terms.

What is indexed and what is asked go through the same analysers: whoever opens an index gets them
with it. Scripts without spaces between words, and Korean, are indexed as pairs of characters, in
the field ``body_cjk`` alone.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from krowlspider.errors import need
from krowlspider.urls.canonical import identity

if TYPE_CHECKING:
    from pathlib import Path

# Increase it when a field or an analyser changes: an index of another form is refused.
FORM = 3
# Folders and files of an index.
SEGMENTS, FORMS, LINKS = "tantivy", "forms", "links"
STATE, RANKS = "state.json", "ranks.tsv"
# Bytes of a term: longer ones are no words.
TERM_MAX = 64
# Languages with a stemmer, by the codes that CLD2 gives.
STEMMERS = {
    "ar": "arabic", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "es": "spanish", "fi": "finnish", "fr": "french", "hu": "hungarian", "it": "italian",
    "nl": "dutch", "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian",
    "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip
# The same stemmer for the two written forms of Norwegian.
_SAME = {"nb": "no", "nn": "no"}
# Exact values by which documents are found.
_KEYS = ("id", "url", "host", "domain", "scheme", "lang", "mime")
_TEXTS = ("title", "headings", "anchors", "body")
CJK = "body_cjk"
_DATES = ("fetched", "first_fetched", "changed")
_NUMBERS = ("size", "linking_hosts")
# Those of which a query asks for a range, or by which it sorts.
_RANGES = ("fetched", "size")
# The analysers by the names that fields have.
_RAW, FOLDED, PAIRS = "raw", "folded", "pairs"
# The words that stemmers are given. No field has it.
LOWERED = "lowered"
# The field of forms of words, and its analyser.
ENTRY = "entry"

# Thai to Burmese, Khmer, kana and Chinese, Hangul: each character begins a pair.
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]+"
)
# Bytes of UTF-8 that begin no such character. To look for others is quicker than to search.
_SPACED = bytes(byte for byte in range(256) if byte not in {0xE0, 0xE1, *range(0xE3, 0xF1)})


class CapturePlace(msgspec.Struct, frozen=True):
    """Where the capture of a document is: the number of its JOBDIR in STATE, the path of the WARC
    file below that, and the bytes of the record in it."""

    jobdir: int
    file: str
    offset: int
    length: int

    def dump(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def load(cls, data: bytes) -> CapturePlace:
        """:raises msgspec.DecodeError: it is no place"""
        return msgspec.json.decode(data, type=cls)


def page_id(url: str) -> str:
    """Return the id of a URL in normal form: URLs of the same identity are one document.

    128 bits of BLAKE2, so no site can make a URL with the id of another one.
    """
    return key_of(url).hex()


def key_of(url: str) -> bytes:
    """Return the 16 bytes of `page_id`."""
    return blake2b(identity(url).encode(errors="replace"), digest_size=16).digest()


def stemmer_of(language: str) -> str | None:
    """Return the code of STEMMERS for a language; None if it has no stemmer."""
    code = _SAME.get(language, language)
    return code if code in STEMMERS else None


def split_spaceless(text: str) -> tuple[str, str]:
    """Return a text without its runs of `spaceless` characters, and the pairs of these runs.

    The pairs stand between blanks. A run of one character is a term by itself.
    """
    if text.isascii() or not text.encode(errors="replace").translate(None, _SPACED):
        return text, ""
    if _SPACELESS.search(text) is None:
        return text, ""
    return _SPACELESS.sub(" ", text), pairs_of(text)


def pairs_of(text: str) -> str:
    """Return the pairs of characters in the spaceless runs of a text, between blanks; ask
    ``body_cjk`` for them one behind the other."""
    found: list[str] = []
    for match in _SPACELESS.finditer(text):
        run = match[0]
        found += [run] if len(run) == 1 else [run[at : at + 2] for at in range(len(run) - 1)]
    return " ".join(found)


@cache
def schema() -> Any:
    """Return the tantivy schema.

    :raises KrowlError: the extra is not installed
    """
    builder = tantivy().SchemaBuilder()
    for name in _KEYS:
        builder.add_text_field(name, stored=True, tokenizer_name=_RAW, index_option="basic")
    for name in _TEXTS:
        builder.add_text_field(name, stored=name == "title", tokenizer_name=FOLDED)
    builder.add_text_field(CJK, tokenizer_name=PAIRS)
    for name in _DATES:
        builder.add_date_field(name, stored=True, fast=name in _RANGES)
    for name in _NUMBERS:
        builder.add_unsigned_field(name, stored=True, fast=name in _RANGES)
    for name in ("fingerprint", "place"):
        builder.add_bytes_field(name, stored=True)
    return builder.build()


def analysers() -> dict[str, Any]:
    """Return the analysers by name. Each gives the terms of a text by ``analyze``."""
    module = tantivy()
    filters = module.Filter

    def built(tokenizer: Any, *kept: Any) -> Any:
        builder = module.TextAnalyzerBuilder(tokenizer)
        for each in (filters.remove_long(TERM_MAX), filters.lowercase(), *kept):
            builder = builder.filter(each)
        return builder.build()

    words = module.Tokenizer.simple
    found = {FOLDED: built(words(), filters.ascii_fold())}
    found[PAIRS] = built(module.Tokenizer.whitespace())
    found[LOWERED] = built(words())
    for code, name in STEMMERS.items():
        found[f"stem_{code}"] = built(words(), filters.stemmer(name))
    return found


def open_index(folder: Path, *, make: bool = False) -> Any:
    """Return the tantivy index in the folder INDEX/tantivy, with its analysers.

    :raises ValueError: there is none, or it is damaged
    """
    if make:
        folder.mkdir(parents=True, exist_ok=True)
        index = tantivy().Index(schema(), path=str(folder))
    else:
        index = tantivy().Index.open(str(folder))
    for name, analyser in analysers().items():
        index.register_tokenizer(name, analyser)
    return index


def open_forms(folder: Path, *, make: bool = False) -> Any:
    """Return the tantivy index in the folder INDEX/forms.

    :raises ValueError: there is none, or it is damaged
    """
    module = tantivy()
    if make:
        folder.mkdir(parents=True, exist_ok=True)
        fields = module.SchemaBuilder()
        fields.add_text_field(ENTRY, tokenizer_name=ENTRY, index_option="basic")
        index = module.Index(fields.build(), path=str(folder))
    else:
        index = module.Index.open(str(folder))
    entries = module.TextAnalyzerBuilder(module.Tokenizer.whitespace())
    index.register_tokenizer(ENTRY, entries.build())
    return index


def tantivy() -> Any:
    """Return the module; KrowlError names the extra if it is not installed."""
    return need("tantivy", "search")

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
FORM = 2
# Folders and files of an index.
SEGMENTS, LINKS, STATE, RANKS = "tantivy", "links", "state.json", "ranks.tsv"
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
# Exact values by which documents are filtered and counted, and those that name one.
_KEYS = ("host", "domain", "scheme", "lang", "mime")
_NAMES = ("id", "url")
_TEXTS = ("title", "headings", "anchors", "body")
CJK = "body_cjk"
_DATES = ("fetched", "first_fetched", "changed")
_NUMBERS = ("size", "linking_hosts")
# The analysers by the names that fields have.
_RAW, FOLDED, PAIRS = "raw", "folded", "pairs"
# The words that stemmers are given. No field has it.
LOWERED = "lowered"

# Thai to Burmese, Khmer, kana and Chinese, Hangul: each character begins a pair.
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]+"
)


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


def stemmed_field(language: str) -> str | None:
    """Return the field with the stems of a language; None if it has no stemmer."""
    code = _SAME.get(language, language)
    return f"body_{code}" if code in STEMMERS else None


def split_spaceless(text: str) -> tuple[str, str]:
    """Return a text without its runs of `spaceless` characters, and the pairs of these runs.

    The pairs stand between blanks. A run of one character is a term by itself.
    """
    if text.isascii() or _SPACELESS.search(text) is None:
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
        builder.add_text_field(
            name, stored=True, fast=True, tokenizer_name=_RAW, index_option="basic"
        )
    for name in _NAMES:
        builder.add_text_field(name, stored=True, tokenizer_name=_RAW, index_option="basic")
    for name in _TEXTS:
        builder.add_text_field(name, stored=name == "title", tokenizer_name=FOLDED)
    for code in STEMMERS:
        # Made by krowlspider.search.stems: each stem once, and none that is the word itself.
        builder.add_text_field(f"body_{code}", tokenizer_name=PAIRS, index_option="basic")
    builder.add_text_field(CJK, tokenizer_name=PAIRS)
    for name in _DATES:
        builder.add_date_field(name, stored=True, indexed=True, fast=True)
    for name in _NUMBERS:
        builder.add_unsigned_field(name, stored=True, fast=True)
    builder.add_unsigned_field("fingerprint", stored=True, fast=True)
    builder.add_bytes_field("place", stored=True)
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


def tantivy() -> Any:
    """Return the module; KrowlError names the extra if it is not installed."""
    return need("tantivy", "search")

"""Mask e-mail addresses, phone numbers and IP addresses in the fields of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.corpus.quality.personal import emails, ips, phones

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.corpus.document import Document

# The marks are those of Dolma (Soldaini et al. 2024).
_KINDS: dict[str, tuple[Callable[[str], Iterator[tuple[int, int]]], str]] = {
    "email": (emails.find, "|||EMAIL_ADDRESS|||"),
    "ip": (ips.find, "|||IP_ADDRESS|||"),
    "phone": (phones.find, "|||PHONE_NUMBER|||"),
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

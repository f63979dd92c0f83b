"""Mask e-mail addresses, phone numbers and IP addresses. Each pattern takes linear time."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider.corpus.document import Document

# No match starts within a run of its characters, and ++ does not backtrack: a run is read once.
_EMAIL = re.compile(r"(?<![\w.%+-])[\w.%+-]++@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,63}(?![\w-])")
# With the code of a country; or as in North America, which has no such code.
_PHONE = re.compile(
    r"(?<![\w+.-])(?:\+(?:[ ().-]{0,2}\d){8,15}|\(\d{3}\) ?\d{3}[-. ]\d{4}|\d{3}[-.]\d{3}[-.]\d{4})"
    r"(?![\w-]|\.\d)"
)
# Of IPv6 only the range in use, 2000::/3: other addresses look like names in programs.
_IP = re.compile(
    r"(?<![\w.:-])(?:(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)"
    r"|[23][0-9a-f]{3}:[0-9a-f:]{1,33}(?:[0-9a-f]|::)(?![\w-]|\.\w))",
    re.IGNORECASE,
)
# The marks are those of Dolma (Soldaini et al. 2024).
_KINDS = {
    "email": (_EMAIL, "@", "|||EMAIL_ADDRESS|||"),
    "ip": (_IP, "", "|||IP_ADDRESS|||"),
    "phone": (_PHONE, "", "|||PHONE_NUMBER|||"),
}
KINDS = frozenset(_KINDS)
_FIELDS = ("title", "description", "author")
# Fields of pairs: their values, unless they are URLs.
_PAIRS = ("open_graph", "json_ld_fields")


def mask(document: Document, kinds: Iterable[str]) -> dict[str, int]:
    """Mask the text and the fields that people write; return how many of each kind were masked.

    Of IP addresses only public ones are masked.
    """
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
    pattern, needed, mark = _KINDS[kind]
    if needed not in text:
        return text, 0
    if kind != "ip":
        return pattern.subn(mark, text)
    count = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal count
        if not _is_public(match[0]):
            return match[0]
        count += 1
        return mark

    return pattern.sub(replaced, text), count


def _is_public(address: str) -> bool:
    try:
        return ip_address(address).is_global
    except ValueError:
        return False

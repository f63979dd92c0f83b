"""Check the named fields of a WARC record (ISO 28500:2017, section 5; WARC 1.0 is accepted). Pure.

Extensions are allowed by the standard, so unknown fields and values are at most warned of.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from ipaddress import ip_address
from typing import TYPE_CHECKING

from krowlspider.archive.payloads.digests import is_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastwarc.warc import WarcRecord

_NEEDED = ("WARC-Type", "WARC-Record-ID", "WARC-Date", "Content-Length")
_ABOUT_URIS = ("response", "resource", "request", "revisit", "conversion", "continuation")
# What a type needs besides (6.2 to 6.9).
_NEEDED_BY = {
    **dict.fromkeys(_ABOUT_URIS, ("WARC-Target-URI",)),
    "revisit": ("WARC-Target-URI", "WARC-Profile"),
    "continuation": ("WARC-Target-URI", "WARC-Segment-Number", "WARC-Segment-Origin-ID"),
}
_TYPES = {"warcinfo", "metadata", *_ABOUT_URIS}
_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_ID = re.compile(rf"<(?:urn:uuid:{_UUID}|(?!urn:uuid:)[A-Za-z][A-Za-z0-9+.-]*:[!-;=?-~]+)>")
_IDS = ("WARC-Record-ID", "WARC-Concurrent-To", "WARC-Warcinfo-ID", "WARC-Refers-To")
# A W3C date in UTC, shortened or with fractions of a second (5.4).
_DATE = re.compile(
    r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2})"
    r"(?:T([01][0-9]|2[0-3]):[0-5][0-9](?::(?:[0-5][0-9]|60)(?:\.[0-9]{1,9})?)?Z)?)?)?"
)
_DATES = ("WARC-Date", "WARC-Refers-To-Date")
# Early versions of wget write a target in angle brackets, one reading of WARC 1.0.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]*|<[A-Za-z][A-Za-z0-9+.-]*:[!-~]*>")
_URIS = ("WARC-Target-URI", "WARC-Refers-To-Target-URI", "WARC-Profile")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TRUNCATED = frozenset({"length", "time", "disconnect", "unspecified"})
# The fields that may be repeated (5.7, and an extension of 1.1).
_REPEATED = frozenset({"warc-concurrent-to", "warc-protocol"})
_DIGESTS = ("WARC-Block-Digest", "WARC-Payload-Digest")


def faults_in(record: WarcRecord) -> Iterator[tuple[bool, str]]:
    """Yield what is wrong with the fields of a record, each with whether it breaks the standard."""
    fields = record.headers
    for name in _NEEDED:
        if name not in fields:
            yield True, f"no {name}"
    kind = fields.get("WARC-Type") or ""
    for name in _NEEDED_BY.get(kind, ()):
        if name not in fields:
            yield True, f"no {name}, which a {kind} needs"
    if kind and kind not in _TYPES:
        yield False, f"the type {kind[:80]!r} is not known"
    counts = Counter(name.lower() for name, _ in fields.items())
    for name, count in counts.items():
        if count > 1 and name.startswith(("warc-", "content-")) and name not in _REPEATED:
            yield True, f"{count} fields {name}"
    for is_fault, name, valid in _FORMS:
        if name not in fields:
            continue
        for value in fields.get_multiple(name):
            if not valid(value):
                yield is_fault, f"{name} is {value[:200]!r}"


def _is_date(value: str) -> bool:
    found = _DATE.fullmatch(value)
    if found is None:
        return False
    year, month, day = (int(part or 1) for part in found.groups()[:3])
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def _is_address(value: str) -> bool:
    try:
        ip_address(value)
    except ValueError:
        return False
    return True


# Whether a breach is a fault, the name of the field, and what is true for a valid value.
_FORMS: tuple[tuple[bool, str, Callable[[str], object]], ...] = (
    *((True, name, _ID.fullmatch) for name in _IDS),
    *((True, name, _is_date) for name in _DATES),
    # Other crawlers write URLs as they found them; readers find these all the same.
    *((False, name, _URI.fullmatch) for name in _URIS),
    (True, "WARC-IP-Address", _is_address),
    (True, "WARC-Truncated", _TOKEN.fullmatch),
    # 5.13 allows further reasons.
    (False, "WARC-Truncated", lambda value: value in _TRUNCATED or not _TOKEN.fullmatch(value)),
    *((False, name, is_checkable) for name in _DIGESTS),
)

"""Check WARC records: their named fields, and the ids by which they refer to each other.

The fields are those of ISO 28500:2017, section 5; WARC 1.0 is accepted. Extensions are allowed by
the standard, so unknown fields and values are at most warned of.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import date
from ipaddress import ip_address
from itertools import groupby
from typing import TYPE_CHECKING

import xxhash

from krowlspider.archive.index.indexes import merged
from krowlspider.archive.payloads.digests import is_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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


_REFERENCES = {
    "WARC-Concurrent-To": "the record that it is concurrent to is missing",
    "WARC-Warcinfo-ID": "its warcinfo record is missing",
}
_REPEATED_ID = "another record has the same WARC-Record-ID"


class RecordIds:
    """The record ids of a folder, kept in sorted files in ``scratch``.

    Memory holds about 250 bytes for each record of one file.
    """

    def __init__(self, scratch: Path):
        self._scratch = scratch
        self._lines: list[str] = []
        self._referred: set[tuple[str, str]] = set()
        self._parts: list[Path] = []

    def add(self, record: WarcRecord, file: str, offset: int) -> None:
        if identity := record.headers.get("WARC-Record-ID"):
            self._note(identity, file, offset, "")
        for name, what in _REFERENCES.items():
            for identity in record.headers.get_multiple(name):
                if (identity, name) not in self._referred:
                    self._referred.add((identity, name))
                    self._note(identity, file, offset, what)

    def _note(self, identity: str, file: str, offset: int, what: str) -> None:
        key = xxhash.xxh3_128_hexdigest(identity.encode(errors="replace"))
        self._lines.append(f"{key} {json.dumps([file, offset, what])}\n")

    def end_file(self) -> None:
        """Write what was added since the last call."""
        part = self._scratch / f"ids-{len(self._parts)}"
        part.write_text("".join(sorted(self._lines)), encoding="ascii")
        self._parts.append(part)
        self._lines, self._referred = [], set()

    def faults(self) -> Iterator[tuple[bool, str, int, str]]:
        """Yield repeated ids (True) and missing records (False), each with file and offset."""
        lines = merged(self._parts, self._scratch)
        for _, same in groupby(lines, key=lambda line: line.partition(b" ")[0]):
            places = [json.loads(line.partition(b" ")[2]) for line in same]
            owners = [place for place in places if not place[2]]
            for file, offset, _ in owners[1:]:
                yield True, file, offset, _REPEATED_ID
            if not owners:
                for file, offset, what in places:
                    yield False, file, offset, what

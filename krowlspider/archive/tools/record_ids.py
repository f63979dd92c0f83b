"""Find record ids that several records of a folder have, and references to none of its records."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING

import xxhash

from krowlspider.archive.index.indexes import merged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fastwarc.warc import WarcRecord

_REFERENCES = {
    "WARC-Concurrent-To": "the record that it is concurrent to is missing",
    "WARC-Warcinfo-ID": "its warcinfo record is missing",
}
_REPEATED = "another record has the same WARC-Record-ID"


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
                yield True, file, offset, _REPEATED
            if not owners:
                for file, offset, what in places:
                    yield False, file, offset, what

"""What is in WARC files, read by warcio, and judged by every tool there is."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from base64 import b32encode
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warcio.archiveiterator import ArchiveIterator

from krowlspider.archive.tools.check import check_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

_FASTWARC = Path(sys.executable).with_name("fastwarc")
# It expects another package by the name of brotli, and does without any: digests are of what is
# encoded.
_WARCIO = (
    sys.executable,
    "-c",
    "import sys; sys.modules['brotli'] = None; from warcio.cli import main; main(sys.argv[1:])",
)


@dataclass(frozen=True, eq=False)
class Record:
    """A record: the file it is in, its fields in their order, its block."""

    file: str
    fields: list[tuple[str, str]]
    block: bytes

    def __getitem__(self, name: str) -> str:
        """The value of a field that stands there once."""
        (value,) = self.all(name)
        return value

    def __contains__(self, name: str) -> bool:
        return bool(self.all(name))

    def all(self, name: str) -> list[str]:
        """The values of a field, in their order."""
        return [value for field, value in self.fields if field == name]

    @property
    def kind(self) -> str:
        return self["WARC-Type"]

    @property
    def url(self) -> str:
        return self["WARC-Target-URI"]

    @property
    def told(self) -> list[tuple[str, str]]:
        """The fields in the block of a warcinfo or metadata record."""
        lines = self.block.decode().removesuffix("\r\n").split("\r\n")
        return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]


class Records(list[Record]):
    """The records of a folder's finished files, in the order in which they were written."""

    @classmethod
    def of(cls, folder: Path) -> Records:
        return cls(record for path in sorted(folder.glob("*.warc.gz")) for record in _read(path))

    def of_kind(self, *kinds: str) -> Records:
        return Records(record for record in self if record.kind in kinds)

    def about(self, url: str) -> Records:
        return Records(
            record for record in self if record.fields and url in record.all("WARC-Target-URI")
        )

    @property
    def kinds(self) -> Counter[str]:
        """How many there are of each kind."""
        return Counter(record.kind for record in self)

    @property
    def only(self) -> Record:
        (record,) = self
        return record

    def unresolved(self) -> list[str]:
        """The URLs of revisits for whose payload there is no response with that digest and of that
        URI and date."""
        there = {(record.url, record["WARC-Date"]): record for record in self.of_kind("response")}
        lost = []
        for revisit in self.of_kind("revisit"):
            if "WARC-Refers-To-Target-URI" not in revisit:
                continue
            place = (revisit["WARC-Refers-To-Target-URI"], revisit["WARC-Refers-To-Date"])
            found = there.get(place)
            claimed = revisit["WARC-Payload-Digest"]
            if found is None or found.all("WARC-Payload-Digest") not in ([], [claimed]):
                lost.append(revisit.url)
        return lost


def _read(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        for record in ArchiveIterator(file, no_record_parse=True):
            yield Record(path.name, record.rec_headers.headers, record.content_stream().read())


def valid_records(folder: Path) -> Records:
    """The records in ``folder``, in whose files no tool finds anything wrong."""
    report = check_folder(folder)
    assert (report.open_files, report.problems, report.warnings) == (0, [], [])
    files = sorted(folder.glob("*.warc.gz"))
    subprocess.run(["gzip", "-t", *files], check=True)
    commands: list[list[str | Path]] = [[*_WARCIO, "check", *files]]
    # It takes one file only.
    commands += [[_FASTWARC, "check", path] for path in files]
    for command in commands:
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stdout[-3000:] + said.stderr[-3000:]
    records = Records.of(folder)
    assert len(records) == report.records
    assert records.unresolved() == []
    return records


def sha1(content: bytes) -> str:
    """A digest as fields have it."""
    return f"sha1:{b32encode(hashlib.sha1(content).digest()).decode()}"

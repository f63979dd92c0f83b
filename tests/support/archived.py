"""Read WARC files with warcio, and check them with every tool there is."""

from __future__ import annotations

import hashlib
import subprocess
from base64 import b32encode
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator
from warcio.bufferedreaders import BufferedReader
from warcio.checker import Checker

from krowlspider.archive.tools.check import check_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.mockweb.log import Entry

# warcio expects another package of the name brotli. It needs none: digests are of encoded bodies.
BufferedReader.DECOMPRESSORS.pop("br", None)


@dataclass(frozen=True, eq=False)
class Record:
    """A record: the name of its file, its fields in order, its block."""

    file: str
    fields: list[tuple[str, str]]
    block: bytes

    def __getitem__(self, name: str) -> str:
        """Return the value of a field that occurs once."""
        (value,) = self.all(name)
        return value

    def __contains__(self, name: str) -> bool:
        return bool(self.all(name))

    def all(self, name: str) -> list[str]:
        """Return the values of a field, in order."""
        return [value for field, value in self.fields if field == name]

    @property
    def kind(self) -> str:
        return self["WARC-Type"]

    @property
    def url(self) -> str:
        return self["WARC-Target-URI"]

    @property
    def block_fields(self) -> list[tuple[str, str]]:
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
        """The number of records by kind."""
        return Counter(record.kind for record in self)

    @property
    def only(self) -> Record:
        (record,) = self
        return record

    def unresolved(self) -> list[str]:
        """Return the URLs of revisits without the response they refer to.

        It has the URI, the date and the payload digest that the revisit names.
        """
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
    """Return the records in ``folder``; assert that no tool finds a fault in its files."""
    report = check_folder(folder)
    assert (report.open_files, report.problems, report.warnings) == (0, [], []), report
    _assert_others_agree(folder)
    records = Records.of(folder)
    assert len(records) == report.records
    assert records.unresolved() == []
    return records


def _assert_others_agree(folder: Path) -> None:
    """Assert that gzip, warcio and FastWARC find no fault in the files of a folder."""
    files = [str(path) for path in sorted(folder.glob("*.warc.gz"))]
    subprocess.run(["gzip", "-t", *files], check=True)
    output = StringIO()
    with redirect_stdout(output):
        code = Checker(SimpleNamespace(inputs=files, verbose=False)).process_all()
    assert code == 0, output.getvalue()[-3000:]
    for file in files:
        with Path(file).open("rb") as stream:
            for record in FastIterator(stream, parse_http=False):
                if "WARC-Block-Digest" in record.headers:
                    assert record.verify_block_digest(), record.record_id


def sha1(content: bytes) -> str:
    """Return a digest as in the fields of a record."""
    return f"sha1:{b32encode(hashlib.sha1(content).digest()).decode()}"


def is_archived(entry: Entry) -> bool:
    """Return whether an answer is archived: 429 and 503 only for robots.txt."""
    return entry.status not in {429, 503} or entry.path == "/robots.txt"


def assert_archived(jobdir: Path, entries: list[Entry]) -> None:
    """Assert that the WARC files are valid and hold each answer in the log, byte for byte."""
    report = check_folder(jobdir / "warc")
    assert (report.open_files, report.problems) == (0, [])
    _assert_others_agree(jobdir / "warc")
    assert stored(jobdir) == Counter(
        (entry.url, entry.sha1) for entry in entries if is_archived(entry)
    )


def stored(jobdir: Path) -> Counter[tuple[str, str]]:
    """Return target URI and SHA-1 of each answer in the WARC files, read with warcio.

    Of a revisit, it is the SHA-1 of its head and the body that it refers to.
    """
    records = [record for path in (jobdir / "warc").glob("*.warc.gz") for record in _answers(path)]
    bodies = {
        (fields["WARC-Target-URI"], fields["WARC-Date"]): block.partition(b"\r\n\r\n")[2]
        for fields, block in records
        if fields["WARC-Type"] == "response"
    }
    found: Counter[tuple[str, str]] = Counter()
    for fields, block in records:
        origin = (fields.get("WARC-Refers-To-Target-URI"), fields.get("WARC-Refers-To-Date"))
        whole = block + bodies[origin] if origin[0] else block
        found[fields["WARC-Target-URI"], hashlib.sha1(whole).hexdigest()] += 1
    return found


def _answers(path: Path) -> Iterator[tuple[dict[str, str], bytes]]:
    """Yield fields and blocks of the responses and revisits in a file."""
    with path.open("rb") as file:
        for record in ArchiveIterator(file, no_record_parse=True):
            if record.rec_type in {"response", "revisit"}:
                yield dict(record.rec_headers.headers), record.content_stream().read()

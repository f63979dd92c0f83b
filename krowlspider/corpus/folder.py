"""The folder of a corpus: what is in it, by name, and which slices are final."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
from backports.zstd import ZstdFile

from krowlspider.archive.disk import (
    LOCK,
    ArchiveError,
    is_draft,
    lock_directory,
    make_directory,
    remove_drafts,
    write_durably,
)
from krowlspider.corpus.tallies import Tallies
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

LINES = ".jsonl.zst"
# Of Zstandard. It is low because most files of lines are read once, and removed.
_LEVEL = 1
_MARKER = ".json"
_OPTIONS = "options.json"


class Slice(msgspec.Struct, frozen=True):
    """A stretch of a WARC file, from a record's offset to where the next slice starts."""

    file: str
    start: int

    @property
    def name(self) -> str:
        return f"{self.file}-{self.start:012}"


class Summary(msgspec.Struct):
    """What was found in a slice. ``following`` is None in the last one of its file.

    ``problems`` are offsets with reasons: damage, and pages that killed their process.
    """

    following: int | None = None
    counts: dict[str, int] = {}
    problems: list[tuple[int, str]] = []
    tallies: Tallies = msgspec.field(default_factory=Tallies)

    def after(self, part: Slice) -> Slice | None:
        """Return the slice behind ``part``, of which this is the summary."""
        return None if self.following is None else Slice(part.file, self.following)


class Fatal(msgspec.Struct):
    """A page that killed its worker: response ``number`` in the slice from ``start`` on."""

    file: str
    start: int
    number: int
    offset: int
    reason: str


class Folder:
    """``data`` has the shards, ``state`` what a restart needs. One process has it, by a lock.

    :raises KrowlError: another process has it, or there is something that is no corpus
    """

    def __init__(self, path: Path):
        _refuse_others(path)
        self.path = path
        self.data = path / "data"
        state = path / "state"
        # Folders: lines of slices that are not final, markers of final ones, refusals of these.
        self.work, self.done, self.rejected = state / "work", _done(path), state / "rejected"
        # LevelDBs: fingerprints of accepted pages, and answers of sites.
        self.index, self.answers = state / "index", state / "answers"
        # The answers of sites, published for workers.
        self.sites = state / "sites"
        # The WARC files of a WACZ, while they are read.
        self.unpacked = state / "unpacked"
        self._fatal = state / "fatal.jsonl"
        folders = (self.data, self.work, self.done, self.rejected)
        for each in folders:
            make_directory(each)
        try:
            self._lock = lock_directory(path)
        except ArchiveError as error:
            raise KrowlError(f"another scrapy corpus writes to {path}") from error
        # What a killed process left behind.
        for each in folders:
            remove_drafts(each, "")
        for left in self.work.iterdir():
            name = left.name.removesuffix(LINES).removesuffix(_MARKER)
            if (self.done / (name + _MARKER)).exists():
                left.unlink()

    def close(self) -> None:
        os.close(self._lock)

    def begin(self, options: dict[str, Any]) -> None:
        """Note the options of the corpus.

        :raises KrowlError: it was begun with others
        """
        path = _options(self.path)
        text = msgspec.json.format(msgspec.json.encode(options, order="deterministic"))
        if not path.exists():
            with write_durably(path) as file:
                file.write(text)
        elif path.read_bytes() != text:
            before = read_options(self.path)
            names = [name for name in options if options[name] != before.get(name)]
            if "fingerprints" in names:
                raise KrowlError(
                    f"{self.path} was begun by a version of krowlspider that made other"
                    " fingerprints of texts: give a new folder"
                )
            if "form" in names:
                raise KrowlError(
                    f"{self.path} was begun by a version of krowlspider whose records have other"
                    " fields: give a new folder"
                )
            raise KrowlError(
                f"{self.path} was begun with other options: give the same {', '.join(names)},"
                " or a new folder"
            )

    def finished(self, part: Slice) -> Summary | None:
        """Return the summary of a final slice; None if it is not final."""
        return _read_summary(self.done / (part.name + _MARKER))

    def ready(self, part: Slice) -> Summary | None:
        """Return the summary of a slice that a worker has done; None if none has."""
        return _read_summary(self.work / (part.name + _MARKER))

    def finish(self, part: Slice, summary: Summary) -> None:
        """Make a slice final; its shards are durable already."""
        with write_durably(self.done / (part.name + _MARKER)) as file:
            file.write(msgspec.json.encode(summary))
        for suffix in (_MARKER, LINES):
            (self.work / (part.name + suffix)).unlink(missing_ok=True)

    def hand_over(self, part: Slice, summary: Summary) -> None:
        """Say that the lines of a slice are whole."""
        with write_durably(self.work / (part.name + _MARKER)) as file:
            file.write(msgspec.json.encode(summary))

    def refusals(self) -> Iterator[bytes]:
        """Yield the refused pages of all final slices, each a `Refusal` as JSON."""
        for path in sorted(self.rejected.glob(f"*{LINES}")):
            yield from read_lines(path)

    def note_fatal(self, fatal: Fatal) -> None:
        with self._fatal.open("ab") as file:
            file.write(msgspec.json.encode(fatal) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def fatal(self, part: Slice) -> dict[int, str]:
        """Return the pages of a slice that killed their process, by number, with the reason."""
        if not self._fatal.exists():
            return {}
        # A kill may have left half a line.
        lines = [line for line in self._fatal.read_bytes().splitlines() if line.endswith(b"}")]
        found = [msgspec.json.decode(line, type=Fatal) for line in lines]
        return {f.number: f.reason for f in found if (f.file, f.start) == (part.file, part.start)}


def _done(path: Path) -> Path:
    return path / "state" / "done"


def _refuse_others(path: Path) -> None:
    """:raises KrowlError: there is a file at ``path``, or a folder that holds some and is no corpus

    A process that was killed before it noted its options leaves a lock and empty folders.
    """
    if _options(path).exists():
        return
    held = path.rglob("*") if path.is_dir() else [path]
    if any(
        not each.is_dir() and not _is_left_behind(each) for each in held if os.path.lexists(each)
    ):
        raise KrowlError(f"{path} exists and is no corpus: give a new folder")


def _is_left_behind(path: Path) -> bool:
    return path.name == LOCK or is_draft(path, _OPTIONS)


def _options(path: Path) -> Path:
    return path / "state" / _OPTIONS


def read_options(path: Path) -> dict[str, Any]:
    """Return the options with which the corpus in a folder was begun. Raises OSError."""
    found: dict[str, Any] = msgspec.json.decode(_options(path).read_bytes())
    return found


def read_summaries(path: Path) -> Iterator[tuple[str, Summary]]:
    """Yield the name of the WARC file and the summary of each final slice, by name."""
    for marker in sorted(_done(path).glob(f"*{_MARKER}")):
        summary = _read_summary(marker)
        if summary is not None:
            yield marker.name.removesuffix(_MARKER).rpartition("-")[0], summary


def _read_summary(path: Path) -> Summary | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Summary)
    except FileNotFoundError:
        return None


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file of LINES, without their ends; without lines it is empty."""
    if not path.stat().st_size:
        return
    with ZstdFile(path) as file:
        for line in file:
            yield line.rstrip(b"\n")


def write_lines(path: Path, lines: Iterable[bytes]) -> int:
    """Write lines durably, in the place of ``path``; return how many there were."""
    count = 0
    with write_durably(path) as draft, ZstdFile(draft, "wb", level=_LEVEL) as file:
        for line in lines:
            file.write(line + b"\n")
            count += 1
    return count

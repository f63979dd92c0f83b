"""Captures of an archive in the order in which they were written, from a place in it on.

A place is, for each folder of WARC files, a file and an offset in it. Files are in the order of
their names, which have the time at which they were begun. A file that is being written is read up
to its last whole record; a finished one by its index.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from krowlspider.archive.cdxj import INDEX, WARC, capture_of, index_path, parse
from krowlspider.archive.disk import OPEN, CutOffError, RecordError
from krowlspider.archive.reading import GzipMember, RecordSearch, read_member
from krowlspider.errors import KrowlError
from krowlspider.urls.canonical import name_of
from krowlspider.urls.seeds import ordered_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from fastwarc.warc import WarcRecord

    from krowlspider.archive.cdxj import IndexLine

# Characters of a token: the places in the folders of 64 processes.
_TOKEN_MAX = 16_384
# Characters of the name of a file in a token: file systems take 255 bytes.
_NAME_MAX = 200
# Records that are read at a time, and characters of their URLs.
_AT_ONCE = 100
_URLS_AT_ONCE = 1_000_000


class _At(msgspec.Struct, array_like=True, frozen=True):
    """A place in a folder: the finished name of a file, and the offset of the next record."""

    file: str = ""
    offset: int = 0


class FoundCapture(NamedTuple):
    """A capture, and the process of which it is."""

    process: str
    line: IndexLine


class ArchiveReader:
    """Reads the WARC files in ``folders``, by the names of processes, from the first record on, or
    from another place. Its calls block on the disk."""

    def __init__(self, folders: Mapping[str, Path]):
        self._readers = {process: _Folder(folder) for process, folder in folders.items()}

    @property
    def token(self) -> str:
        """The place in the archive, as text."""
        return msgspec.json.encode({name: each.at for name, each in self._readers.items()}).decode()

    @property
    def missed_files(self) -> int:
        """How many files were removed before they were read, or cannot be read to their end."""
        return sum(each.missed for each in self._readers.values())

    def go_to(self, token: str) -> None:
        """Go to the place of a token. A process that it does not name begins with its first file.

        :raises KrowlError: it is no token of this archive, or of a file later than all that it has
        """
        try:
            if len(token) > _TOKEN_MAX:
                raise ValueError
            found = msgspec.json.decode(token.encode(), type=dict[str, _At])
            if not found.keys() <= self._readers.keys():
                raise ValueError
            for process, at in found.items():
                if not self._readers[process].may_have(at):
                    raise ValueError
        except ValueError as error:
            raise KrowlError(
                f"resume_token {token[:60]!r} is not of this crawl: give the last one that it has"
                " sent, or none"
            ) from error
        for process, at in found.items():
            self._readers[process].at = at

    def go_to_end(self) -> None:
        """Go behind what is there."""
        for each in self._readers.values():
            each.go_to_end()

    def step(self) -> tuple[list[FoundCapture], bool]:
        """Read some records; return the captures of HTTP among them, and whether there was a record
        at all. Raises OSError."""
        for process, reader in self._readers.items():
            before = reader.at
            lines = reader.step()
            if lines or reader.at != before:
                return [FoundCapture(process, line) for line in lines if _is_answer(line)], True
        return [], False

    def behind(self) -> int:
        """Return the bytes of the WARC files behind the place. Raises OSError."""
        return sum(each.behind() for each in self._readers.values())


class _Folder:
    """Reads the WARC files of one folder from the place ``at`` on."""

    def __init__(self, path: Path):
        self._path = path
        self.at = _At()
        self.missed = 0
        # Those that were there at the last look; None before the first one.
        self._known: set[str] | None = None
        # Of the index that is read: its name, and the offsets of records, the last one first, each
        # with the place of its line.
        self._indexed = ""
        self._lines: list[tuple[int, int]] = []

    def may_have(self, at: _At) -> bool:
        """Return whether a place may be of this folder. Nothing would be sent from one behind its
        last file."""
        if not at.file:
            return at.offset == 0
        if "/" in at.file or not at.file.endswith(WARC) or not at.file.isprintable():
            return False
        names = _names(self._path)
        is_behind = bool(names) and at.file > names[-1]
        return at.offset >= 0 and len(at.file.encode()) <= _NAME_MAX and not is_behind

    def go_to_end(self) -> None:
        if names := _names(self._path):
            path = self._file(names[-1])
            self.at = _At(names[-1], 0 if path is None else path.stat().st_size)

    def behind(self) -> int:
        total = 0
        for name in _names(self._path):
            if name >= self.at.file and (path := self._file(name)) is not None:
                begun = self.at.offset if name == self.at.file else 0
                total += max(path.stat().st_size - begun, 0)
        return total

    def step(self) -> list[IndexLine]:
        """Read some records, and go on to the next file behind the last one."""
        # Before the file is read: then another one behind it says that this one is finished.
        names = _names(self._path)
        later = next((name for name in names if name > self.at.file), "")
        if self._known is not None:
            # A clock that was set back has made a file that comes too late.
            self.missed += sum(name < self.at.file for name in {*names} - self._known)
        self._known = {*names}
        before = self.at
        lines = self._read() if self.at.file else []
        if self.at == before and later:
            self.missed += bool(self.at.file) and not self._is_whole()
            self.at = _At(later)
        return lines

    def _is_whole(self) -> bool:
        """Return whether the file that was read has no more."""
        if index_path(self._path / self.at.file).is_file():
            return True
        path = self._file(self.at.file)
        return path is not None and self.at.offset >= path.stat().st_size

    def _read(self) -> list[IndexLine]:
        name, index = self.at.file, index_path(self._path / self.at.file)
        with suppress(FileNotFoundError):
            return self._read_index(index)
        path = self._file(name)
        if path is None:
            return []
        with suppress(FileNotFoundError), path.open("rb") as stream:
            return self._read_records(stream)
        # It was finished just now.
        return []

    def _read_index(self, index: Path) -> list[IndexLine]:
        with index.open("rb") as file:
            if self._indexed != index.name:
                self._lines = _places_in(file)
                self._indexed = index.name
            while self._lines and self._lines[-1][0] < self.at.offset:
                self._lines.pop()
            found: list[IndexLine] = []
            while self._lines and _has_room(found):
                _, place = self._lines.pop()
                file.seek(place)
                found.append(parse(file.readline()))
        if found:
            self.at = _At(self.at.file, found[-1].offset + 1)
        return found

    def _read_records(self, stream: BinaryIO) -> list[IndexLine]:
        found: list[IndexLine] = []
        offset, size = self.at.offset, os.fstat(stream.fileno()).st_size
        for _ in range(_AT_ONCE):
            if offset >= size or not _has_room(found) or (read := _record(stream, offset)) is None:
                break
            member, record = read
            line = capture_of(record, record.reader.read(), member, self.at.file)
            offset = member.offset + member.length
            if line is not None:
                found.append(line)
        self.at = _At(self.at.file, offset)
        return found

    def _file(self, name: str) -> Path | None:
        """Return the path of a WARC file, finished or open; None if it is not there."""
        paths = (self._path / name, self._path / f"{name}{OPEN}")
        return next((path for path in paths if path.is_file()), None)


def _record(stream: BinaryIO, offset: int) -> tuple[GzipMember, WarcRecord] | None:
    """Return the first whole record from ``offset`` on; None if it is not there yet.

    An offset may be within a record, where the file once ended.
    """
    try:
        member = read_member(stream, offset)
        return member, member.record()
    except CutOffError:
        return None
    except RecordError:
        return RecordSearch(stream).next(offset + 1)


def _places_in(index: BinaryIO) -> list[tuple[int, int]]:
    """Return the offsets of the records of an index, the last one first, each with the place of its
    line. A record with the lines of two keys has one."""
    found, place = {}, 0
    for text in index:
        with suppress(ValueError):
            found[parse(text).offset] = place
        place += len(text)
    return sorted(found.items(), reverse=True)


def _has_room(found: list[IndexLine]) -> bool:
    """Return whether there may be more results in a message."""
    return len(found) < _AT_ONCE and sum(len(line.url) for line in found) < _URLS_AT_ONCE


def _is_answer(line: IndexLine) -> bool:
    return line.status.isdigit() and line.url.startswith(("http://", "https://", "gemini://"))


def _names(folder: Path) -> list[str]:
    """Return the finished names of the WARC files in a folder, sorted; also of those that were
    removed and have left their index."""
    try:
        there = os.listdir(folder)  # noqa: PTH208 - paths take several times as long
    except FileNotFoundError:
        return []
    names = {name.removesuffix(OPEN) for name in there}
    indexed = {name.removesuffix(INDEX) + WARC for name in names if name.endswith(INDEX)}
    return sorted({name for name in names if name.endswith(WARC)} | indexed)


class HostFilter:
    """Tells whether a URL is of one of the hosts ``names``, or of one below; without any, each
    is.

    :raises KrowlError: one is no name or address of a host
    """

    def __init__(self, names: Iterable[str]):
        self._names = frozenset(map(_host, names))

    def has(self, url: str) -> bool:
        if not self._names:
            return True
        host = url.partition("://")[2].partition("/")[0].rpartition("@")[2]
        name, colon, port = host.rpartition(":")
        labels = (name if colon and port.isdigit() else host).lower().split(".")
        return any(".".join(labels[at:]) in self._names for at in range(len(labels)))


def _host(given: str) -> str:
    """Return the host that a client names, as it is in URLs."""
    try:
        host = ordered_host(given)
    except ValueError as error:
        raise KrowlError(f"hosts: {error}") from error
    if host != (name := name_of(host)):
        raise KrowlError(f"hosts: {given[:80]!r} has a port: give {name}, which is all its ports")
    return host

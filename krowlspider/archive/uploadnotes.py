"""What is uploaded and verified, noted beside the files so that it outlives the process."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from krowlspider.archive.disk import sync_directory
from krowlspider.archive.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from krowlspider.archive.upload import Destination, LocalFile

NOTES = "uploaded.jsonl"


@dataclass(frozen=True, slots=True)
class Note:
    """One line: which version of a file (bytes, epoch ns) is at ``url`` in the store ``endpoint``, under which ETag.

    Without an ETag it is only on its way there: what is found in its place, where nothing was before, is ours.
    """

    name: str
    size: int
    mtime_ns: int
    etag: str | None
    url: str
    endpoint: str | None


class UploadNotes:
    """The notes of one folder, which one process at a time keeps, from `open` to `close`.

    A line is appended and synced for each file, and none is ever changed: the last of a file counts. A line cut
    by a death says nothing, so the worst is that a file is compared with its object again.
    """

    def __init__(self, folder: Path, destination: Destination) -> None:
        self._folder = folder
        self._destination = destination
        self._notes: dict[str, Note] = {}
        self._descriptor: int | None = None
        # Files are noted from several threads, and a line that finds no room is cut off the end; nor is the file closed
        # under a line.
        self._one_at_a_time = threading.Lock()

    def open(self) -> None:
        """Lock and read them; nothing when they are open.

        :raises ArchiveError: another process keeps them
        :raises OSError: they cannot be read or made
        """
        with self._one_at_a_time:
            if self._descriptor is None:
                self._open()

    def _open(self) -> None:
        path = self._folder / NOTES
        new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            _lock(descriptor, self._folder)
            if new:
                sync_directory(self._folder)
            content = path.read_bytes()
            if content and not content.endswith(b"\n"):
                os.write(descriptor, b"\n")
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._take(content)

    def read(self) -> None:
        """Read them as another process keeps them; none when they are not there. Raises OSError."""
        self._take(_content(self._folder))

    def _take(self, content: bytes) -> None:
        self._notes = {note.name: note for note in _parse(content) if self._is_ours(note)}

    def close(self) -> None:
        """Unlock them, when a line that is being written is durable. Blocks."""
        with self._one_at_a_time:
            if self._descriptor is not None:
                descriptor, self._descriptor = self._descriptor, None
                os.close(descriptor)

    def of(self, file: LocalFile) -> Note | None:
        """The note of this version of a file, when it is uploaded."""
        note = self._notes.get(file.name)
        same = note is not None and (note.size, note.mtime_ns) == (file.size, file.mtime_ns)
        return note if same and note is not None and note.etag is not None else None

    def began(self, file: LocalFile) -> bool:
        """Whether it was on its way there, and has not been seen to arrive."""
        note = self._notes.get(file.name)
        return note is not None and note.etag is None

    def knows(self, name: str) -> bool:
        """Whether a file of this name is there, or was on its way."""
        return name in self._notes

    def add(self, file: LocalFile, etag: str | None) -> None:
        """Note, durably, that a file is there, or without ``etag`` that it is on its way.

        :raises OSError: it could not be written, or the notes are closed, and it is not noted
        """
        url = self._destination.url(file.name)
        note = Note(file.name, file.size, file.mtime_ns, etag, url, self._destination.endpoint)
        with self._one_at_a_time:
            if self._descriptor is None:
                raise OSError(errno.EBADF, "closed", str(self._folder / NOTES))
            _append(self._descriptor, _line(note))
            self._notes[file.name] = note

    def _is_ours(self, note: Note) -> bool:
        there = self._destination
        return (note.url, note.endpoint) == (there.url(note.name), there.endpoint)


def uploaded(folder: Path) -> dict[str, str]:
    """The URL of the object of each file that was uploaded from ``folder``, the last where there are several. Raises
    OSError."""
    return {note.name: note.url for note in _parse(_content(folder)) if note.etag is not None}


def _content(folder: Path) -> bytes:
    try:
        return (folder / NOTES).read_bytes()
    except FileNotFoundError:
        return b""


def _append(descriptor: int, line: bytes) -> None:
    """Write and sync a line, or leave none of it."""
    end = os.fstat(descriptor).st_size
    rest = memoryview(line)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, end)
        raise


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ArchiveError(f"another process uploads the files in {folder}") from error


def _line(note: Note) -> bytes:
    said: dict[str, Any] = {name: getattr(note, name) for name in Note.__slots__}
    said["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return json.dumps(said).encode() + b"\n"


def _parse(content: bytes) -> Iterator[Note]:
    for line in content.splitlines():
        try:
            said = json.loads(line)
            yield Note(**{name: said[name] for name in Note.__slots__})
        except (ValueError, TypeError, KeyError):
            # Cut by a death.
            continue

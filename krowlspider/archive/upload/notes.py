"""Notes of the uploaded and verified files, kept beside them so that they survive a restart."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from krowlspider.archive.disk import sync_directory
from krowlspider.archive.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from krowlspider.archive.upload.plan import Destination, LocalFile

NOTES = "uploaded.jsonl"


@dataclass(frozen=True)
class UploadNote:
    """One note: which version of a file (bytes, epoch ns) is at ``url`` in the store ``endpoint``.

    ``etag`` is None if the upload had only begun: an object found there later is ours.
    """

    name: str
    size: int
    mtime_ns: int
    etag: str | None
    url: str
    endpoint: str | None


class UploadLog:
    """The notes of one folder; one process at a time holds them, from `open` to `close`.

    Each note is a line that is appended and synced. The last line of a file counts. A line that a
    dying process cut is ignored; at worst a file is then compared with its object again.
    """

    def __init__(self, folder: Path, destination: Destination) -> None:
        self._folder = folder
        self._destination = destination
        self._notes: dict[str, UploadNote] = {}
        self._descriptor: int | None = None
        # Several threads add notes, and a failed one is cut off the end of the file.
        # The lock also keeps `close` from closing the file during a write.
        self._one_at_a_time = threading.Lock()

    def open(self) -> None:
        """Lock and read the notes; make the file if it is missing. Idempotent.

        :raises ArchiveError: another process holds them
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
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if new:
                sync_directory(self._folder)
            content = path.read_bytes()
            if content and not content.endswith(b"\n"):
                os.write(descriptor, b"\n")
            self.read()
        except BlockingIOError as error:
            os.close(descriptor)
            raise ArchiveError(f"another process uploads the files in {self._folder}") from error
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def read(self) -> None:
        """Read the notes without locking them; none if the file is missing. Raises OSError."""
        place = self._destination
        self._notes = {
            note.name: note
            for note in _notes_in(self._folder)
            if (note.url, note.endpoint) == (place.url(note.name), place.endpoint)
        }

    def close(self) -> None:
        """Unlock the notes, after a line that is being written is durable. Blocks."""
        with self._one_at_a_time:
            if self._descriptor is not None:
                descriptor, self._descriptor = self._descriptor, None
                os.close(descriptor)

    def of(self, file: LocalFile) -> UploadNote | None:
        """Return the note of this version of a file; None if it is not uploaded."""
        note = self.last(file.name)
        if note is None or note.etag is None:
            return None
        return note if (note.size, note.mtime_ns) == (file.size, file.mtime_ns) else None

    def last(self, name: str) -> UploadNote | None:
        """Return the last note of any version of a file, also of an upload that had only begun."""
        return self._notes.get(name)

    def uploaded(self) -> list[UploadNote]:
        """Return the last note of each file whose upload is complete."""
        return [note for note in self._notes.values() if note.etag is not None]

    def add(self, file: LocalFile, etag: str | None) -> None:
        """Note durably that a file is uploaded, or without ``etag`` that its upload has begun.

        :raises OSError: the line could not be written, or the notes are closed; nothing is noted
        """
        place = self._destination
        url = place.url(file.name)
        note = UploadNote(file.name, file.size, file.mtime_ns, etag, url, place.endpoint)
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps(asdict(note) | {"time": moment}).encode() + b"\n"
        with self._one_at_a_time:
            if self._descriptor is None:
                raise OSError(errno.EBADF, "closed", str(self._folder / NOTES))
            _append(self._descriptor, line)
            self._notes[file.name] = note


def uploaded(folder: Path) -> dict[str, str]:
    """Return the URL of the last object of each file name that was uploaded. Raises OSError."""
    return {note.name: note.url for note in _notes_in(folder) if note.etag is not None}


def _append(descriptor: int, line: bytes) -> None:
    """Write and sync a line, or leave none of it in the file. Raises OSError."""
    end = os.fstat(descriptor).st_size
    rest = memoryview(line)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, end)
        raise


def _notes_in(folder: Path) -> Iterator[UploadNote]:
    try:
        content = (folder / NOTES).read_bytes()
    except FileNotFoundError:
        return
    for line in content.splitlines():
        try:
            values = json.loads(line)
            yield UploadNote(**{name: values[name] for name in UploadNote.__dataclass_fields__})
        except (ValueError, TypeError, KeyError):
            # The process died while it wrote this line.
            continue

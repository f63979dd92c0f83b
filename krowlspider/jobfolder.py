"""The folder of a crawl: who holds it, and which format it has."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from krowlspider import __version__
from krowlspider.errors import JobError
from krowlspider.frontier.poison import MARK
from krowlspider.frontier.schema import FORMAT

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOCK = "lock"
_STATUS = "status.json"
# Bytes of it, the rest being blanks: the figures need some 300.
_STATUS_SIZE = 4096
_HEAD = "job.json"
_HEAD_DRAFT = "job.json.new"


@dataclass(frozen=True, slots=True)
class JobHead:
    """What ``job.json`` says: the folder's format, the seed of its identities, and what ring it belongs to, empty for a
    crawl of one process. ``new`` when it was made now."""

    format: int
    seed: int
    software: str
    ring: str = ""
    new: bool = False


class JobInUseError(JobError):
    """Another process, ``holder``, holds the folder at ``path``."""

    def __init__(self, path: Path, holder: str):
        super().__init__(
            f"JOBDIR {path} is in use by process {holder}: stop it, or give another JOBDIR"
        )
        self.path = path
        self.holder = holder


class JobFolder:
    """A crawl's folder, locked for this process from `take` to `leave`.

    It holds ``job.json`` (format and identity seed), ``lock``, ``status.json`` (figures of the running crawl),
    ``frontier/``, ``seen`` (the filter of the seen set) and, unless set elsewhere, ``warc/``.
    """

    def __init__(self, path: Path, *, temporary: bool = False):
        self.path = path
        self.temporary = temporary
        self.frontier = path / "frontier"
        self.seen = path / "seen"
        # The frontier while it is repaired.
        self.repairing = path / "frontier.repairing"
        self._lock: int | None = None

    @classmethod
    def of(cls, jobdir: str | None) -> JobFolder:
        """The folder named by JOBDIR, or a new temporary one."""
        if jobdir:
            return cls(Path(jobdir))
        return cls(Path(tempfile.mkdtemp(prefix="krowlspider-")), temporary=True)

    @classmethod
    def existing(cls, jobdir: str) -> JobFolder:
        """The folder of a crawl that has been started before.

        :raises JobError: there is none
        """
        path = Path(jobdir)
        if not (path / _HEAD).is_file():
            if (path / "frontier").is_dir():
                raise JobError(_headless(path))
            raise JobError(f"{path} is not a crawl's folder: give the JOBDIR of a crawl")
        return cls(path)

    def take(
        self,
        *,
        to_repair: bool = False,
        seed: int | None = None,
        ring: str | None = None,
        may_begin: bool = True,
    ) -> JobHead:
        """Lock the folder and read its head, making both when the folder is new or empty. ``seed``
        is that of the identities of a cluster; None: a new folder gets one of its own; one that no
        new folder ``may_begin`` with is for those that have it. ``ring`` is the one that it is to
        belong to; None: whatever it is.

        :raises JobError: in use, not writable, of another format, seed or ring, or not a crawl's folder; or, unless it
            is taken ``to_repair``, a repair was cut short in it
        """
        try:
            _make_durably(self.path)
            self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise JobError(f"JOBDIR {self.path} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self._lock, 32).decode(errors="replace").strip() or "unknown"
            self._drop_lock()
            raise JobInUseError(self.path, holder) from error
        try:
            if not (may_begin or (self.path / _HEAD).exists()):
                raise JobError(
                    f"JOBDIR {self.path} is new, and KROWL_RING_SECRET is not set: give all nodes the same, at least 16"
                    " characters, best by KROWL_RING_SECRET_FILE; or none, if the other nodes have begun without"
                )
            head = self._head(seed, ring or "")
            if ring not in {None, head.ring}:
                raise JobError(
                    f"JOBDIR {self.path} belongs to {'another ring' if head.ring else 'a crawl of one process'}: members"
                    " cannot change while a crawl goes on; give the KROWL_RING and KROWL_NODE_ID with which it was begun,"
                    " or a new JOBDIR"
                )
            if seed not in {None, head.seed}:
                raise JobError(
                    f"JOBDIR {self.path} was begun outside this cluster, so its seen marks say nothing in it:"
                    " give a new JOBDIR, or the KROWL_CLUSTER and KROWL_RING_SECRET with which it was begun"
                )
            if not to_repair and self.repairing.exists():
                raise JobError(
                    f"JOBDIR {self.path}: a repair was cut short: run it again:"
                    f" scrapy frontier {quote(str(self.path))} --repair"
                )
        except JobError:
            self.leave()
            raise
        # What an earlier process said of itself.
        (self.path / _STATUS).unlink(missing_ok=True)
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        return head

    @property
    def open_to_others(self) -> str:
        """The mode of the folder, as chmod has it, if others than its owner can get into it; else
        empty."""
        mode = self.path.stat().st_mode & 0o777
        return f"{mode:o}" if mode & 0o077 else ""

    @property
    def untouched(self) -> bool:
        """Whether the first start died before there was anything in the folder but its head."""
        found = self.frontier.iterdir() if self.frontier.exists() else ()
        # What LevelDB makes before it has a database.
        begun = {"LOCK", "LOG", "LOG.old", "MANIFEST-000001", "000001.dbtmp"}
        # What a crawl makes after its frontier: there was one.
        later = any(path.exists() for path in (self.seen, self.path / MARK)) or any(
            self.path.glob("warc/*")
        )
        return not later and all(path.name in begun for path in found)

    def write_status(self, status: Mapping[str, object]) -> None:
        """Leave figures for those who look while the folder is in use.

        They are written over those before, in the place that the first have taken: on a full disk too.

        :raises OSError: the disk failed, or has no room for the first
        """
        text = json.dumps(status).encode().ljust(_STATUS_SIZE)
        try:
            descriptor = os.open(self.path / _STATUS, os.O_WRONLY)
        except FileNotFoundError:
            self._make_status(text)
            return
        try:
            os.pwrite(descriptor, text, 0)
        finally:
            os.close(descriptor)

    def _make_status(self, text: bytes) -> None:
        draft = self.path / f"{_STATUS}.new"
        with draft.open("wb") as file:
            # Else the disk may be full before the kernel chooses a place.
            os.posix_fallocate(file.fileno(), 0, len(text))
            file.write(text)
        draft.replace(self.path / _STATUS)

    def read_status(self) -> dict[str, object] | None:
        """The figures last left, or None."""
        for _ in range(2):
            try:
                status: dict[str, object] = json.loads((self.path / _STATUS).read_bytes())
            except FileNotFoundError:
                return None
            except ValueError:
                # Read while they were written over, if it is not damage.
                continue
            return status
        return None

    def leave(self) -> None:
        """Give the folder up. The lock file stays: removing it would let two processes lock two files."""
        self._drop_lock()

    def _drop_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _head(self, seed: int | None, ring: str) -> JobHead:
        path = self.path / _HEAD
        try:
            said = json.loads(path.read_bytes())
            head = JobHead(
                int(said["format"]),
                int(said["seed"]),
                str(said["software"]),
                str(said.get("ring", "")),
            )
        except FileNotFoundError:
            return self._new_head(path, seed, ring)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise JobError(f"{path} cannot be read as a crawl's head: {error!r}") from error
        if head.format != FORMAT:
            raise JobError(
                f"JOBDIR {self.path} has format {head.format}, made by {head.software};"
                f" this version reads format {FORMAT}: use that version, or another JOBDIR"
            )
        return head

    def _new_head(self, path: Path, seed: int | None, ring: str) -> JobHead:
        ours = {_LOCK, _HEAD_DRAFT}
        if self.frontier.is_dir():
            raise JobError(_headless(self.path))
        strange = [found.name for found in self.path.iterdir() if found.name not in ours]
        if strange:
            raise JobError(
                f"JOBDIR {self.path} is not empty and not a crawl's folder"
                f" (it holds {min(strange)!r}): give a new or empty folder"
            )
        if seed is None:
            seed = secrets.randbits(63)
        head = JobHead(FORMAT, seed, f"krowlspider {__version__}", ring, new=True)
        text = {"format": head.format, "seed": head.seed, "software": head.software}
        text |= {"ring": ring} if ring else {}
        draft = path.with_name(_HEAD_DRAFT)
        try:
            with draft.open("w") as file:
                json.dump(text, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            sync_folder(self.path)
        except OSError as error:
            raise JobError(f"JOBDIR {self.path} cannot be written: {error.strerror}") from error
        return head


def _headless(path: Path) -> str:
    return (
        f"JOBDIR {path} has a frontier but no {_HEAD}, without whose seed its seen marks say nothing:"
        f" put {_HEAD} back from a copy, or give another JOBDIR"
    )


def _make_durably(path: Path) -> None:
    """Make a folder, and those above it, so that a power loss does not take their names."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    # Requests in it may be pickles: who writes to them has them run. One that is there keeps its
    # mode.
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""The folder of a crawl: its lock, its format and its files."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from krowlspider import __version__
from krowlspider.archive.disk import sync_directory
from krowlspider.errors import JobError, scrapy_with
from krowlspider.frontier.store.schema import FORMAT
from krowlspider.frontier.work_mark import MARK

# msgspec reads the annotations of `JobHead` as the program runs.
from krowlspider.politeness.delay import DelayPolicy  # noqa: TC001
from krowlspider.urls.scope import AskedScope, ScopeRules  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOCK = "lock"
_STATUS = "status.json"
# Fixed size of the status file in bytes, padded with blanks; the counters need about 300.
_STATUS_SIZE = 4096
_HEAD = "job.json"
# The file of a snapshot that names the folder of its crawl, and its time.
SNAPSHOT = "snapshot.json"
_HEAD_DRAFT = "job.json.new"
# In the JOBDIR of `scrapy node`: the register of its processes, and the link to the folder of the
# sockets while it runs, of which one has the same name.
REGISTER = "register"
SOCKETS = Path("redis") / "sockets"
_PROCESS = re.compile(r"p[1-9][0-9]*")


class JobHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of ``job.json``: what the folder was begun with, and its scope.

    ``seed`` is that of its identities. ``ring`` is empty for a crawl of one process. ``delays`` is
    the policy of the last start. ``spider`` is empty, and ``scope`` and ``delays`` are None, if no
    crawl has recorded them. ``new`` is true if this start made the file.
    """

    format: int
    seed: int
    software: str
    ring: str = ""
    spider: str = ""
    scope: ScopeRules | None = None
    delays: DelayPolicy | None = None
    new: bool = False


class JobInUseError(JobError):
    """Another process, ``holder``, has locked the folder at ``path``."""

    def __init__(self, path: Path, holder: str):
        super().__init__(
            f"JOBDIR {path} is in use by process {holder}: stop it, or give another JOBDIR"
        )
        self.path = path
        self.holder = holder


def lock_folder(path: Path) -> int:
    """Lock a folder for this process, whose id the lock file then has; close what is returned to
    unlock it.

    :raises JobInUseError: another process has locked it
    :raises OSError: the lock file cannot be written
    """
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise JobInUseError(path, holder) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def holder_of(jobdir: Path) -> int | None:
    """Return the id of the process that uses a folder; None if none does."""
    try:
        with (jobdir / _LOCK).open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                # A process that has just taken it has not written its id yet.
                return int(lock.read() or 0) or None
    except FileNotFoundError:
        pass
    return None


def processes_in(path: Path) -> list[JobFolder]:
    """Return the folders of the processes of a crawl, if ``path`` is the JOBDIR of one that several
    processes have made together. One that has lost its head is among them."""
    if (path / _HEAD).exists():
        return []
    found = [each for each in path.glob("p[1-9]*") if _PROCESS.fullmatch(each.name)]
    found = [each for each in found if (each / _HEAD).exists() or (each / "frontier").is_dir()]
    return [JobFolder(each) for each in sorted(found, key=lambda each: int(each.name[1:]))]


def tree_of(path: Path) -> Path | None:
    """Return the JOBDIR of `scrapy node` that ``path`` is, or in which it is the folder of a
    process; None for the JOBDIR of another crawl."""
    if processes_in(path):
        return path
    # A relative path need not name its parent.
    whole = path.absolute()
    is_process = _PROCESS.fullmatch(whole.name) and (whole.parent / REGISTER).exists()
    return whole.parent if is_process else None


def register_of(path: Path) -> str:
    """Return the URL at which a running `scrapy node` serves its register; ``path`` is its JOBDIR,
    or in it the folder of a process.

    :raises JobError: it is no such folder
    """
    tree = path if (path / REGISTER).is_file() else tree_of(path)
    if tree is None:
        raise JobError(
            f"{path} is no JOBDIR of scrapy node: there is no file {REGISTER!r}. Give that JOBDIR,"
            " or -s KROWL_CONSUL=... for a cluster of machines"
        )
    # The path of a socket is short, and that of a JOBDIR may be long.
    return f"unix://{os.path.realpath(tree / SOCKETS)}/{REGISTER}"


class JobFolder:
    """A crawl's folder, locked for this process from `take` to `leave`.

    docs/jobdir.md lists what is in it.
    """

    def __init__(self, path: Path, *, temporary: bool = False):
        self.path = path
        self.temporary = temporary
        self.frontier = path / "frontier"
        self.seen = path / "seen"
        self.payloads = path / "payloads"
        self.other_crawls = path / "dedup"
        # The frontier while a repair is under way.
        self.repairing = path / "frontier.repairing"
        self._lock: int | None = None

    @classmethod
    def of(cls, jobdir: str | None) -> JobFolder:
        """Return the folder named by JOBDIR, or a new temporary one."""
        if jobdir:
            return cls(Path(jobdir))
        return cls(Path(tempfile.mkdtemp(prefix="krowlspider-")), temporary=True)

    @classmethod
    def existing(cls, jobdir: str) -> JobFolder:
        """Return the folder of a crawl that was started before.

        :raises JobError: there is none
        """
        path = Path(jobdir)
        if not (path / _HEAD).is_file():
            if (path / "frontier").is_dir():
                raise JobError(_headless(path))
            if parts := [found.path for found in processes_in(path)]:
                raise JobError(
                    f"{path} is of a crawl of several processes, each with a folder of its own:"
                    f" give one of them: {', '.join(map(str, parts))}"
                )
            raise JobError(f"{path} is not a crawl's folder: give the JOBDIR of a crawl")
        return cls(path)

    def take(
        self,
        *,
        to_repair: bool = False,
        seed: int | None = None,
        ring: str | None = None,
        spider: str = "",
        scope: AskedScope | None = None,
        delays: DelayPolicy | None = None,
    ) -> JobHead:
        """Lock the folder and return its head. Make both if the folder is new or empty.

        ``spider`` is the spider that the folder must belong to; "" accepts any. ``scope`` is the
        scope that the start asks for; None leaves the kept one. Both are recorded if the folder has
        none, and a scope that replaces the kept one. ``delays`` is recorded if it is not None.

        ``seed`` is the seed of a cluster's identities; with None, a new folder gets its own.
        ``ring`` is the ring that the folder must belong to; None accepts any.

        :raises JobError: the folder is in use, not writable, of another format, seed, ring, spider
            or scope, or not a crawl's folder; or a repair in it was cut short, and it is not taken
            ``to_repair``
        """
        self._take_lock()
        try:
            found = self._head(seed, ring or "")
            self._check(found, seed, ring)
            head = self._of_crawl(found, spider, scope, delays)
            if not to_repair and self.repairing.exists():
                raise JobError(
                    f"JOBDIR {self.path}: a repair was cut short: run it again:"
                    f" {scrapy_with('frontier', self.path, '--repair')}"
                )
            if head.new or head != found:
                self.write_head(head)
        except JobError:
            self.leave()
            raise
        self.forget_status()
        return head

    def head(self) -> JobHead:
        """Return the head of a crawl that was started before; take no lock.

        :raises JobError: it cannot be read, or is of another format
        """
        return self._head(None, "")

    def forget_status(self) -> None:
        """Remove the status that an earlier process has left, if it was killed."""
        (self.path / _STATUS).unlink(missing_ok=True)

    def seed_of(self, ring: str) -> int | None:
        """Return the seed with which the folder was begun, None for a new one; take no lock.

        :raises JobError: it belongs to another ring, or its head cannot be used
        """
        if not self.path.is_dir():
            return None
        head = self._head(None, ring)
        self._check(head, None, ring)
        return None if head.new else head.seed

    def _take_lock(self) -> None:
        if self.path.is_dir() and not (self.path / _LOCK).exists():
            # A folder of others is refused before anything is written in it.
            self._head(None, "")
        try:
            _make_durably(self.path)
            self._lock = lock_folder(self.path)
        except FileExistsError as error:
            raise JobError(
                f"JOBDIR {self.path} cannot be used: it is a file; give a folder"
            ) from error
        except OSError as error:
            raise JobError(f"JOBDIR {self.path} cannot be used: {error.strerror}") from error

    def _check(self, head: JobHead, seed: int | None, ring: str | None) -> None:
        if ring not in {None, head.ring}:
            owner, asked = (
                f"node {each}" if each else "a crawl of one process" for each in (head.ring, ring)
            )
            raise JobError(
                f"JOBDIR {self.path} belongs to {owner}, not to {asked}:"
                " give the KROWL_NODE_ID and the KROWL_CLUSTER with which it was begun, or a new"
                " JOBDIR"
            )
        if seed not in {None, head.seed}:
            raise JobError(
                f"JOBDIR {self.path} was begun outside this cluster, so its seen marks are of no"
                " use in it: give a new JOBDIR, or the KROWL_CLUSTER with which it was begun"
            )

    def _of_crawl(
        self, head: JobHead, spider: str, asked: AskedScope | None, delays: DelayPolicy | None
    ) -> JobHead:
        """Return the head with spider, scope and delays of a crawl that is to start.

        :raises JobError: the folder is a snapshot, belongs to another spider, or keeps another
            scope
        """
        if spider and (self.path / SNAPSHOT).exists():
            way = scrapy_with("frontier", "NEWDIR", "--restore", self.path)
            raise JobError(
                f"JOBDIR {self.path} is a snapshot, which a crawl would change: start the crawl in"
                f" a copy that this command makes: {way}"
            )
        if spider and head.spider not in {"", spider}:
            raise JobError(
                f"JOBDIR {self.path} belongs to the spider {head.spider!r}, not to {spider!r}:"
                " start that one, or give another JOBDIR"
            )
        kept = head.scope
        if asked is None:
            pass
        elif kept is None or asked.replaces:
            kept = asked.rules
        elif asked.given and kept != asked.rules:
            raise JobError(
                f"JOBDIR {self.path} keeps its scope ({'; '.join(kept.differences(asked.rules))}):"
                " leave out the arguments of the scope to go on with it, or add -a scope=new to"
                " change it for the links of pages fetched from now on; those of pages that are"
                " done need a new JOBDIR"
            )
        return msgspec.structs.replace(
            head, spider=head.spider or spider, scope=kept, delays=delays or head.delays
        )

    @property
    def open_to_others(self) -> str:
        """Return the folder's mode in octal if others than its owner have any access, else ""."""
        mode = self.path.stat().st_mode & 0o777
        return f"{mode:o}" if mode & 0o077 else ""

    @property
    def untouched(self) -> bool:
        """Return whether the first start died before it made more in the folder than its head."""
        found = self.frontier.iterdir() if self.frontier.exists() else ()
        # LevelDB makes these before it has a database.
        begun = {"LOCK", "LOG", "LOG.old", "MANIFEST-000001", "000001.dbtmp"}
        # A crawl makes these after its frontier, so a frontier has existed.
        later = any(path.exists() for path in (self.seen, self.path / MARK)) or any(
            self.path.glob("warc/*")
        )
        return not later and all(path.name in begun for path in found)

    def write_status(self, status: Mapping[str, object]) -> None:
        """Write counters for readers outside, while the folder is in use.

        They overwrite the last ones in place, so that this works on a full disk too.

        :raises OSError: the disk failed, or has no room for the first status
        """
        text = json.dumps(status).encode().ljust(_STATUS_SIZE)
        path, draft = self.path / _STATUS, self.path / f"{_STATUS}.new"
        if path.exists():
            with path.open("r+b") as file:
                file.write(text)
            return
        with draft.open("wb") as file:
            # Reserve the place now: later the disk may be full.
            os.posix_fallocate(file.fileno(), 0, len(text))
            file.write(text)
        draft.replace(path)

    def read_status(self) -> dict[str, object] | None:
        """Return the status written last; None if there is none or it cannot be read."""
        # It may be read in the middle of a write: try twice.
        for _ in range(2):
            with suppress(FileNotFoundError, ValueError):
                status: dict[str, object] = json.loads((self.path / _STATUS).read_bytes())
                return status
        return None

    def leave(self) -> None:
        """Unlock the folder.

        The lock file stays: if it were removed, two processes could lock two different files.
        """
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _head(self, seed: int | None, ring: str) -> JobHead:
        path = self.path / _HEAD
        try:
            head = msgspec.json.decode(path.read_bytes(), type=JobHead)
        except FileNotFoundError:
            return self._new_head(seed, ring)
        except (OSError, msgspec.DecodeError) as error:
            raise JobError(
                f"{path} cannot be read as a crawl's head ({error}):"
                " put it back from a copy, or give another JOBDIR"
            ) from error
        if head.format != FORMAT:
            raise JobError(
                f"JOBDIR {self.path} has format {head.format}, made by {head.software};"
                f" this version reads format {FORMAT}: use that version, or another JOBDIR"
            )
        return head

    def _new_head(self, seed: int | None, ring: str) -> JobHead:
        if self.frontier.is_dir():
            raise JobError(_headless(self.path))
        names = {found.name for found in self.path.iterdir()}
        if strange := names - {_LOCK, _HEAD_DRAFT}:
            raise JobError(
                f"JOBDIR {self.path} is not empty and not a crawl's folder"
                f" (it holds {min(strange)!r}): give a new or empty folder"
            )
        if seed is None:
            seed = secrets.randbits(63)
        return JobHead(FORMAT, seed, f"krowlspider {__version__}", ring, new=True)

    def write_head(self, head: JobHead) -> None:
        """Replace the head durably.

        :raises JobError: the folder cannot be written
        """
        draft = self.path / _HEAD_DRAFT
        try:
            with draft.open("wb") as file:
                file.write(msgspec.json.encode(msgspec.structs.replace(head, new=False)))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path / _HEAD)
            sync_directory(self.path)
        except OSError as error:
            raise JobError(f"JOBDIR {self.path} cannot be written: {error.strerror}") from error


def _headless(path: Path) -> str:
    return (
        f"JOBDIR {path} has a frontier but no {_HEAD}, whose seed its seen marks need:"
        f" put {_HEAD} back from a copy, or give another JOBDIR"
    )


def _make_durably(path: Path) -> None:
    """Make a folder and its parents so that their names survive a power loss."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    # Stored requests may be pickles: who can write them can run code. So the folder is private, but
    # one that exists keeps its mode.
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in missing:
        sync_directory(folder.parent)


def write_private(path: Path, text: str) -> None:
    """Write a line to a new file that only its owner can read."""
    # An existing file would keep its mode, and processes may still have it open.
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{text}\n")

"""Take a snapshot of a crawl's folder, as it is at one commit, and make a folder of one.

It has what a start needs: head, frontier, saved seen filter and archive. Whatever is derived from
these, or describes a process, is left out.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.disk import OPEN
from krowlspider.archive.index.cdxj import INDEX, WARC
from krowlspider.archive.upload.notes import NOTES
from krowlspider.crawl.folder import SNAPSHOT
from krowlspider.crawl.snapshots.copier import Copier, Made, check_new, kept_if_whole
from krowlspider.errors import JobError
from krowlspider.frontier.store.disk import sync
from krowlspider.frontier.store.live_copy import LevelCopy

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.archive.reading import Synced
    from krowlspider.crawl.folder import JobFolder
    from krowlspider.frontier.store.store import LevelStore

HEAD = "job.json"
ARCHIVE = "warc"
_DRAFT = ".new"
# Files that no crawl changes: it replaces or removes them.
_LINKED = (".ldb", ".sst", WARC, INDEX, f"{WARC}{OPEN}.damaged")


def take_stopped(folder: JobFolder, store: LevelStore, archive: Path, target: Path) -> Made:
    """Take a snapshot of a crawl that does not run, whose folder is locked and whose store is open.
    Raises the errors of `Snapshot`."""
    snapshot = Snapshot(folder, store, archive, target)
    try:
        snapshot.gather()
        snapshot.note_stopped_archive()
        snapshot.fix()
        return snapshot.complete()
    except BaseException as error:
        snapshot.discard(error)
        raise


class Snapshot:
    """A snapshot of ``folder`` on its way to ``target``.

    Call `gather`, `note_archive`, `fix` and `complete` in this order; all block. From
    `note_archive` to `fix` there is one commit and no more. After an error call `discard`, and
    nothing is left of it.

    :raises JobError: ``target`` cannot be made, the archive is not there, or `stop` was called
    :raises StoreError: the frontier has failed
    :raises OSError: the disk failed or has no room
    """

    def __init__(self, folder: JobFolder, store: LevelStore, archive: Path, target: Path):
        check_new(target)
        if not archive.is_dir():
            raise JobError(
                f"there is no archive in {archive}: give the KROWL_WARC_DIR of the crawl"
            )
        self.target = target
        self._folder = folder
        self._store = store
        self._archive = archive
        self._copier = Copier()
        self._exits = ExitStack()
        self._finished: list[str] = []
        # WARC files that are open now, with the bytes that belong to the commit; None for all.
        self._unfinished: list[tuple[BinaryIO, str, int | None]] = []
        self._archive_failure: OSError | None = None
        # The seen filter, if it cannot be linked.
        self._seen: BinaryIO | None = None

    def stop(self) -> None:
        """Have the step that runs in another thread fail."""
        self._copier.stop()

    def gather(self) -> None:
        """Take most of the frontier, while the crawl goes on."""
        self._draft = self._exits.enter_context(kept_if_whole(self.target))
        copier = self._copier
        self._frontier = LevelCopy(
            self._store, self._draft / "frontier", copier.take, copier.link, copier.copy
        )
        self._exits.callback(self._frontier.close)
        self._frontier.gather()

    def note_archive(self, synced: Synced | None) -> None:
        """Note the WARC files of a commit, right after its sync, which returned ``synced``. An
        error is raised by `fix`."""
        try:
            self._finished = self._names()
            if synced is not None:
                self._note_open(f"{synced.file}{OPEN}", synced.size)
        except OSError as error:
            # Here it would stop the archive.
            self._archive_failure = error

    def note_stopped_archive(self) -> None:
        """Note the WARC files of a crawl that does not run. A start mends those that are open."""
        self._finished = self._names()
        for path in self._archive.glob(f"*{OPEN}"):
            self._note_open(path.name, None)

    def _note_open(self, name: str, size: int | None) -> None:
        # It may be finished, uploaded and removed before it is copied.
        file = self._exits.enter_context((self._archive / name).open("rb"))
        self._unfinished.append((file, name, size))

    def fix(self) -> None:
        """Note what the frontier is now, and the seen filter."""
        if self._archive_failure is not None:
            raise self._archive_failure
        self._frontier.fix()
        seen = self._folder.seen
        if seen.exists() and not self._copier.link(seen, self._draft / seen.name):
            self._seen = self._exits.enter_context(seen.open("rb"))

    def complete(self) -> Made:
        """Take everything else, while the crawl goes on."""
        self._copier.copied += self._frontier.complete()
        self._copier.copy_file(self._folder.path / HEAD, self._draft / HEAD)
        if self._seen is not None:
            self._copier.copy(self._seen, self._draft / self._folder.seen.name)
            self._copier.copied += 1
        self._take_archive()
        about = self._draft / SNAPSHOT
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        about.write_text(json.dumps({"of": str(self._folder.path.resolve()), "taken": moment}))
        sync(about)
        self._exits.close()
        return self._copier.made(self.target)

    def discard(self, error: BaseException) -> None:
        """Remove what there is of it, because of an error."""
        self._exits.__exit__(type(error), error, error.__traceback__)

    def _names(self) -> list[str]:
        """Return the names of the finished WARC files, and what goes with them."""
        return [
            path.name
            for path in self._archive.iterdir()
            if path.is_file()
            and not path.name.startswith(".")
            and not path.name.endswith((OPEN, _DRAFT))
            and path.name != NOTES
        ]

    def _take_archive(self) -> None:
        target = self._draft / ARCHIVE
        target.mkdir()
        for name in self._finished:
            try:
                self._copier.take(self._archive / name, target / name)
            except FileNotFoundError as error:
                # It may have been uploaded and removed meanwhile.
                if not (self._archive / NOTES).exists():
                    raise JobError(
                        f"{self._archive / name} was moved or removed meanwhile: take the snapshot"
                        " again"
                    ) from error
        for file, name, size in self._unfinished:
            self._copier.copy(file, target / name, size)
        if (notes := self._archive / NOTES).exists():
            self._copier.copy_file(notes, target / NOTES)


def restore(snapshot: Path, jobdir: Path) -> Made:
    """Make ``jobdir`` of a snapshot, which stays as it is.

    :raises JobError: it is no snapshot, or ``jobdir`` cannot be made
    :raises OSError: the disk failed or has no room
    """
    if not (snapshot / SNAPSHOT).is_file() or not (snapshot / HEAD).is_file():
        raise JobError(f"{snapshot} is not a snapshot: give a folder that --snapshot has made")
    copier = Copier()
    with kept_if_whole(jobdir) as draft:
        for source in sorted(snapshot.rglob("*")):
            target = draft / source.relative_to(snapshot)
            if source.is_dir():
                target.mkdir()
            elif source.name.endswith(_LINKED):
                copier.take(source, target)
            elif source != snapshot / SNAPSHOT:
                copier.copy_file(source, target)
    return copier.made(jobdir)

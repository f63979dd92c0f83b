"""``python -m tests.powerloss.child OPTIONS crawl ...``: the scrapy command, with a journal of what
has reached the disk.

OPTIONS is a JSON object: ``journal``, the file to append to;
``write_buffer``, LevelDB's, in bytes; ``save_every``, the new keys after which the seen filter is
saved, 0 for the ordinary number; and ``die_between_logs``: whether tables are kept from being
written, so that the old log stays when a new one begins, and the process kills itself when the
first acknowledgement in the new one is durable.

Each line of the journal is an object. A file: ``path``, ``inode`` and the ``size`` that is on the
disk to stay. A folder: ``path`` and the ``names`` it held, with their inodes. They are noted as
they were before an fsync, when that has returned. LevelDB syncs by itself, out of sight: at the
write of a synced batch its newest log, which is noted here; and its tables and its manifest, which
count as durable as they are.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import plyvel
from scrapy.cmdline import execute

from krowlspider.frontier import seen
from krowlspider.frontier.store.schema import QUEUE

OPTIONS: dict[str, Any] = json.loads(sys.argv.pop(1))
_journal = os.open(OPTIONS["journal"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
_fsync = os.fsync
_open_db = plyvel.DB
# Logs with an acknowledgement, that are not the first.
doomed: set[str] = set()


def note(**fact: object) -> None:
    """One write, so that a kill leaves whole lines."""
    os.write(_journal, json.dumps(fact).encode() + b"\n")


def watched_fsync(descriptor: int) -> None:
    path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    found = os.fstat(descriptor)
    names = None
    if stat.S_ISDIR(found.st_mode):
        with os.scandir(descriptor) as entries:
            names = {entry.name: entry.inode() for entry in entries}
    _fsync(descriptor)
    if names is None:
        note_size(path, found)
    else:
        note(path=path, names=names)


def note_size(path: str, found: os.stat_result) -> None:
    note(path=path, inode=found.st_ino, size=found.st_size)
    if OPTIONS["die_between_logs"] and path in doomed:
        os.kill(os.getpid(), signal.SIGKILL)


class WatchedDB:
    """A LevelDB whose synced writes are noted. One write at a time, so that the newest log is the
    one synced."""

    def __init__(self, name: str, **options: Any):
        self.folder = Path(name)
        self._db = _open_db(name, **{**options, "write_buffer_size": OPTIONS["write_buffer"]})
        self.writing = threading.Lock()
        if OPTIONS["die_between_logs"]:
            # LevelDB waits for a reader when it opens a table to write.
            for number in range(1, 100):
                os.mkfifo(self.folder / f"{number:06d}.ldb")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def write_batch(self, *, sync: bool = False) -> WatchedBatch:
        return WatchedBatch(self, self._db.write_batch(sync=sync), sync=sync)

    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"), key=lambda path: int(path.stem))


class WatchedBatch:
    def __init__(self, db: WatchedDB, batch: Any, *, sync: bool):
        self._db = db
        self._batch = batch
        self._sync = sync
        self._acknowledges = False
        self.put = batch.put

    def delete(self, key: bytes) -> None:
        self._acknowledges |= key.startswith(QUEUE)
        self._batch.delete(key)

    def write(self) -> None:
        with self._db.writing:
            self._batch.write()
            logs = self._db.logs()
            if self._acknowledges and len(logs) > 1:
                doomed.add(str(logs[-1]))
            if self._sync:
                note_size(str(logs[-1]), logs[-1].stat())


if __name__ == "__main__":
    os.fsync = watched_fsync  # type: ignore[assignment]
    plyvel.DB = WatchedDB
    if OPTIONS["save_every"]:
        seen._SAVE_EVERY = OPTIONS["save_every"]
    sys.argv[0] = "scrapy"
    execute()

"""Makes a dead crawl's folder what it would be after a power loss."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crawling import Crawl

if TYPE_CHECKING:
    from random import Random

# LevelDB's smallest; a larger value is taken as it is.
SMALL_BUFFER = 64 * 1024
BUFFER = 32 * 1024 * 1024


class Loss(Enum):
    """What becomes of bytes, and of names, that were not synced.

    - CUT: all are lost. A file that was synced keeps its name, as on ext4, XFS and Btrfs.
    - NAMES: all are lost. Only a sync of its folder keeps a name, which is all that POSIX promises.
    - PART: some bytes of each file have reached the disk, by chance, and some of the names.
    - ZEROS: as CUT, but files keep their lengths, with zeros for the lost bytes.
    - TORN: as PART, but files keep their lengths: a record may be half there.
    """

    CUT = "cut"
    NAMES = "names"
    PART = "part"
    ZEROS = "zeros"
    TORN = "torn"


@dataclass
class WatchedCrawl(Crawl):
    """A crawl that notes in ``journal`` what it syncs; the other fields are as `child` says."""

    journal: Path = Path("journal")
    write_buffer: int = BUFFER
    save_every: int = 0
    die_between_logs: bool = False

    def command(self) -> list[str]:
        watch = {
            "journal": str(self.journal),
            "write_buffer": self.write_buffer,
            "save_every": self.save_every,
            "die_between_logs": self.die_between_logs,
        }
        command = super().command()
        at = command.index("scrapy")
        command[at : at + 1] = ["tests.powerloss.child", json.dumps(watch)]
        return command


@dataclass
class Durable:
    """What a journal says is on the disk to stay: bytes of each file, and what each folder held
    when last synced.

    A file is known by its inode and its name without the marks of one not finished, because inodes
    are used again and files renamed.
    """

    sizes: dict[tuple[int, str], int] = field(default_factory=dict)
    names: dict[Path, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def read(cls, journal: Path) -> Durable:
        durable = cls()
        for line in journal.read_text().splitlines():
            fact = json.loads(line)
            path = Path(fact["path"])
            if "names" in fact:
                durable.names[path] = fact["names"]
            else:
                durable.sizes[fact["inode"], _lasting(path.name)] = fact["size"]
        return durable

    def held(self, folder: Path) -> dict[str, int]:
        return self.names.get(folder.resolve(), {})

    def size(self, path: Path) -> int:
        return self.sizes.get((path.stat().st_ino, _lasting(path.name)), 0)


def _lasting(name: str) -> str:
    return re.sub(r"(?:\.open|(?:\.\d+)?\.new)$", "", name)


def lose_power(job: Path, journal: Path, loss: Loss, chance: Random) -> None:
    """Take away what was not synced in the folder of a dead crawl.

    Of LevelDB's files only the logs are touched. A name that was written over by a rename cannot be
    had back, nor can a file that was removed; both may have reached the disk.
    """
    durable = Durable.read(journal)
    _lift_the_barrier(job)
    _lose_in(job, durable, loss, chance)
    for folder in [path for path in job.iterdir() if path.is_dir()]:
        _lose_in(folder, durable, loss, chance)
        if folder.name not in durable.held(job):
            shutil.rmtree(folder)


def _lose_in(folder: Path, durable: Durable, loss: Loss, chance: Random) -> None:
    for path in sorted(found for found in folder.iterdir() if _at_stake(found)):
        size, keep = path.stat().st_size, durable.size(path)
        assert keep <= size, f"{path} has {size} bytes of which {keep} were synced"
        _lose_bytes(path, keep, size, loss, chance)
        if loss is not Loss.PART or chance.random() < 0.5:
            held = durable.held(folder)
            synced = keep > 0 and loss is not Loss.NAMES
            _lose_name(path, held, synced=synced or _outlives_a_log(path, held))


def _lift_the_barrier(job: Path) -> None:
    """Remove what kept LevelDB from writing tables."""
    for path in (job / "frontier").glob("*.ldb"):
        if path.is_fifo():
            path.unlink()


def _at_stake(path: Path) -> bool:
    return path.is_file() and (path.parent.name != "frontier" or path.suffix == ".log")


def _lose_bytes(path: Path, keep: int, size: int, loss: Loss, chance: Random) -> None:
    some = loss is Loss.PART or loss is Loss.TORN
    os.truncate(path, chance.randint(keep, size) if some else keep)
    if loss is Loss.ZEROS or loss is Loss.TORN:
        os.truncate(path, size)


def _outlives_a_log(path: Path, held: dict[str, int]) -> bool:
    """Whether LevelDB has removed an older log: before that it syncs its folder, with its manifest
    (its util/env_posix.cc, ``SyncDirIfManifest``), and the newer log was there by then."""
    logs = [name for name in held if name.endswith(".log") and name < path.name]
    return path.suffix == ".log" and not all((path.parent / name).exists() for name in logs)


def _lose_name(path: Path, held: dict[str, int], *, synced: bool) -> None:
    """Undo the file's last renaming, if its folder was not synced since, or its making, if it was
    not ``synced`` either."""
    if path.name in held:
        return
    inode = path.stat().st_ino
    before = [
        name
        for name, other in held.items()
        if other == inode and _lasting(name) == _lasting(path.name)
    ]
    if before:
        path.rename(path.with_name(before[0]))
    elif not synced:
        path.unlink()

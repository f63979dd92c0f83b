"""What a dead crawl has left on the disk, read from a copy, so that its next start finds it as it
is."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.archive.tools.check import CheckReport, check_folder
from krowlspider.archive.tools.mend import mend_folder
from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.hosts.host_record import Tally
from krowlspider.frontier.stopped import dropped_in, fetched_in, read_counters
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import LevelStore, Store, all_entries
from krowlspider.urls.canonical import IdentityHasher
from tests.frontier.conftest import counted
from tests.support.archived import stored

if TYPE_CHECKING:
    from collections.abc import Iterable


# Where a redirect leads that leads in a circle.
_NEVER_QUEUED = "dropped/redirect_loop"


@dataclass(frozen=True, slots=True, eq=False)
class Survivors:
    """Keys of the identities that are seen, queued and archived; the URLs counted as ``done``, of
    any kind, and those ``dropped``; the check of the archive, mended; and where the tally of the
    host records is not what they say."""

    seen: frozenset[bytes]
    queued: Counter[bytes]
    archived: frozenset[bytes]
    done: int
    dropped: int
    report: CheckReport
    tally_faults: list[str]
    hasher: IdentityHasher

    @classmethod
    def of(cls, job: Path) -> Survivors:
        """:raises StoreError: the frontier cannot be opened"""
        with tempfile.TemporaryDirectory(prefix="survivors-") as scratch:
            copy = Path(scratch) / "job"
            shutil.copytree(job, copy)
            return cls._read(copy)

    @classmethod
    def _read(cls, job: Path) -> Survivors:
        hasher = IdentityHasher(json.loads((job / "job.json").read_bytes())["seed"])
        mend_folder(job / "warc")
        archived = frozenset(hasher.key(url) for url, _ in stored(job))
        store = LevelStore(job / "frontier")
        try:
            counters = read_counters(store)
            return cls(
                seen=frozenset(schema.marked_by(store.items(schema.SEEN))),
                queued=Counter(
                    hasher.key(entry_of(key, entry).url) for key, entry in all_entries(store)
                ),
                archived=archived,
                done=_of_the_queue(fetched_in(counters)),
                dropped=sum(dropped_in(counters).values()) - counters[_NEVER_QUEUED],
                report=check_folder(job / "warc"),
                tally_faults=tally_faults(store),
                hasher=hasher,
            )
        finally:
            store.close()

    def faults(self, pages: Iterable[str], refused: Iterable[str] = ()) -> list[str]:
        """What is against the invariants, one line each.

        ``pages`` are the URLs a whole crawl fetches, ``refused`` those that robots.txt drops: no
        others are known.
        """
        names = {self.hasher.key(url): url for url in pages}
        exempt = {self.hasher.key(url) for url in refused}
        names |= {self.hasher.key(url): url for url in refused}
        faults = [f"{problem}" for problem in self.report.problems] + self.tally_faults
        faults += [
            f"nobody's key: {key.hex()}" for key in (self.seen | self.queued.keys()) - names.keys()
        ]
        for key, url in names.items():
            if key in self.seen and not self.queued[key] and key not in self.archived | exempt:
                faults.append(f"seen, not queued, without a record: {url}")
            if self.queued[key] and key not in self.seen:
                faults.append(f"queued and not seen: {url}")
            if self.queued[key] > 1:
                faults.append(f"queued {self.queued[key]} times: {url}")
        over = len(self.seen) - self.queued.total()
        if over != self.done + self.dropped:
            faults.append(f"{over} acknowledged, but {self.done} done and {self.dropped} dropped")
        return faults


def tally_faults(store: Store) -> list[str]:
    """What a start after a death goes by is what the host records say."""
    said, is_so = Tally.read(store), counted(store)
    return [] if said == is_so else [f"the records say {is_so}, and it is kept {said}"]


def _of_the_queue(fetched: dict[str, int]) -> int:
    """No fetch of a robots.txt was ever queued."""
    return sum(number for kind, number in fetched.items() if kind != "robots")


def done_on_disk(job: Path) -> int:
    """URLs counted as done in the frontier of a dead crawl; 0 before it was made."""
    with tempfile.TemporaryDirectory(prefix="survivors-") as scratch:
        copy = Path(scratch) / "frontier"
        if not (job / "frontier" / "CURRENT").exists():
            return 0
        shutil.copytree(job / "frontier", copy)
        store = LevelStore(copy)
        try:
            assert tally_faults(store) == []
            return _of_the_queue(fetched_in(read_counters(store)))
        finally:
            store.close()

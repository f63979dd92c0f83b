"""Runs of `archiving` with a fault at one point, and the files that they leave."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from krowlspider.archive.cdxj import index_file, index_path, write_index
from krowlspider.archive.disk import DAMAGED
from krowlspider.archive.indexes import indexes_in
from krowlspider.archive.reading import read_members
from krowlspider.archive.tools.check import check_folder
from krowlspider.archive.tools.mend import mend_folder
from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import LevelStore, all_entries

from .archiving import FILE_SIZE, PAGE_SIZE, url_of
from .captures import ROOT, finished
from .syscalls import Act, Call, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PAGES = 7
# What is in the name of a file in the archive, the first that fits.
_ROLES = {
    ".warc.gz.open": "open file",
    ".warc.gz": "finished file",
    ".cdxj": "index",
    ".lock": "lock",
}


def role_of(path: Path, folder: Path) -> str:
    """Return what a path is in the job in ``folder``; empty if it does not belong to the job."""
    if not path.is_relative_to(folder):
        return ""
    room, _, name = str(path.relative_to(folder)).partition("/")
    if room == "frontier":
        return "frontier log" if name.endswith(".log") else "frontier"
    if room != "warc":
        return "payloads" if room.startswith("payloads") else "job"
    if not name:
        return "archive"
    for part, role in _ROLES.items():
        if part in name:
            return role
    raise AssertionError(f"{path} has no role")


class Plan:
    """Makes ``fault`` happen at the first call that ``chosen`` picks.

    ``chosen`` gets the name of the call (``write open file``) and whether the start is over. From
    then on ``fault`` decides each call; it gets the call and whether it is the picked one.

    ``point`` is the name of the picked call, or None. ``closed`` is the content of the finished
    files at that time. ``began`` is whether a file had been begun, which ends the start."""

    def __init__(
        self,
        folder: Path,
        chosen: Callable[[str, bool], bool],
        fault: Callable[[Call, bool], Act | int],
    ):
        self._folder = folder
        self._chosen = chosen
        self._fault = fault
        self.point: str | None = None
        self.closed: dict[str, bytes] = {}
        self.began = False

    def __call__(self, call: Call) -> Act | int:
        role = role_of(call.path, self._folder)
        if not role:
            return Act.PASS
        if self.point is not None:
            return self._fault(call, False)
        name = f"{'create' if call.creates else call.name} {role}"
        self.began |= name == "create open file"
        if not self._chosen(name, self.began):
            return Act.PASS
        self.point = name
        self.closed = contents(self._folder / "warc")
        return self._fault(call, True)


class EachName:
    """Picks, run by run, the first call of each name that ``wanted`` accepts: in the start, and
    after it."""

    def __init__(self, wanted: Callable[[str], bool]):
        self._wanted = wanted
        self._picked: set[tuple[str, bool]] = set()
        self.done: list[str] = []

    def __call__(self, name: str, began: bool) -> bool:
        if (name, began) in self._picked or not self._wanted(name):
            return False
        self._picked.add((name, began))
        self.done.append(name)
        return True


class EachCall:
    """Picks, run by run, the next call that ``wanted`` accepts, ``most`` calls in all."""

    def __init__(self, wanted: Callable[[str], bool], most: float = inf):
        self._wanted = wanted
        self._most = most
        self.done: list[str] = []
        self._seen = 0

    def __call__(self, name: str, began: bool) -> bool:
        if len(self.done) == self._most or not self._wanted(name):
            return False
        self._seen += 1
        if self._seen <= len(self.done):
            return False
        self.done.append(name)
        self._seen = 0
        return True


class Archiving:
    """The process that forks the others."""

    def __init__(self, log: Path) -> None:
        self._watch = Watch()
        self.log_path = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.archive.archiving"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )

    def run(
        self,
        folder: Path,
        decide: Callable[[Call], Act | int] | None = None,
        file_size: int = FILE_SIZE,
    ) -> int:
        """Archive in a folder; return the exit code. Without ``decide``, no call is watched."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {
            "folder": str(folder),
            "pages": PAGES,
            "file_size": file_size,
            "watch": self._watch.address if decide else "",
        }
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        if decide is not None:
            self._watch.serve(decide)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._watch.close()
        self._process.communicate()


def contents(directory: Path) -> dict[str, bytes]:
    """Return the content of the finished files in a folder, by name."""
    return {path.name: path.read_bytes() for path in finished(directory)}


@dataclass(frozen=True)
class Left:
    """The files that a dead process left, read in a copy that was mended: how often each page is
    archived, the pages ``acknowledged``, what is ``wrong``, and the finished files."""

    archived: Counter[int]
    acknowledged: set[int]
    wrong: list[str]
    closed: dict[str, bytes]

    @classmethod
    def in_(cls, folder: Path, scratch: Path) -> Left:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(folder, scratch)
        warc = scratch / "warc"
        mend_folder(warc)
        # A mend that dies, or has no room, leaves it to be made by hand.
        for path in indexes_in(warc).missing:
            write_index(path, sorted(index_file(path)))
        report = check_folder(warc)
        # A damaged file is kept, and `check` warns of it.
        warnings = [each for each in report.warnings if not each.file.endswith(DAMAGED)]
        wrong = [str(problem) for problem in (*report.problems, *warnings)]
        wrong += [f"{path.name} is there yet" for path in warc.iterdir() if _is_draft(path)]
        wrong += [
            f"the index of {path.name} is not what is in it"
            for path in finished(warc)
            if index_path(path).read_text().splitlines(keepends=True) != sorted(index_file(path))
        ]
        return cls(archived_in(warc), _acknowledged(scratch), wrong, contents(warc))


def _is_draft(path: Path) -> bool:
    return path.suffix in {".open", ".new"}


def _acknowledged(folder: Path) -> set[int]:
    store = LevelStore(folder / "frontier")
    try:
        queued = {entry_of(key, value).url for key, value in all_entries(store)}
        known = sum(1 for _ in schema.marked_by(store.items(schema.SEEN)))
    finally:
        store.close()
    return {number for number in range(PAGES) if url_of(number) not in queued} if known else set()


def archived_in(directory: Path) -> Counter[int]:
    """Return how often each page is archived in the finished files."""
    found: Counter[int] = Counter()
    for path in finished(directory):
        with path.open("rb") as stream:
            for member in read_members(stream):
                fields = member.record().headers
                if fields["WARC-Type"] in {"response", "revisit"}:
                    found[int(fields["WARC-Target-URI"].rpartition("/")[2])] += 1
    return found


def dead_job(archiving: Archiving, folder: Path) -> Path:
    """Return a job that was killed within the first page of its second file, so that its next start
    has to mend."""
    pages = iter(range(100))

    def die(call: Call) -> Act:
        if role_of(call.path, folder) != "open file" or call.size < PAGE_SIZE:
            return Act.PASS
        # Three are in the first file.
        return Act.KILL_HALF if next(pages) == 3 else Act.PASS

    assert archiving.run(folder, die) == -9
    return folder


def assert_goes_on(archiving: Archiving, folder: Path, plan: Plan, scratch: Path) -> Left:
    """Assert that the archive is whole after a fault and that the next start completes the job.
    Return what the fault left."""
    left = Left.in_(folder, scratch)
    assert left.wrong == []
    assert left.acknowledged <= left.archived.keys()
    assert left.closed.items() >= plan.closed.items()
    assert archiving.run(folder) == 0
    assert [path.name for path in (folder / "warc").iterdir() if _is_draft(path)] == []
    end = Left.in_(folder, scratch)
    assert end.wrong == []
    assert end.acknowledged == end.archived.keys() == set(range(PAGES))
    assert end.closed.items() >= left.closed.items()
    # What was acknowledged is not fetched again.
    for page in left.acknowledged:
        assert end.archived[page] == left.archived[page]
    return left


@dataclass
class Outcome:
    """One run with a fault: its exit code, its plan and the files it left, which were whole and
    could be continued."""

    code: int
    plan: Plan
    left: Left


def outcomes(
    archiving: Archiving,
    dead: Path,
    chosen: EachName | EachCall,
    fault: Callable[[], Callable[[Call, bool], Act | int]],
) -> Iterator[Outcome]:
    """Yield a run for each chosen call; each run continues the same dead job."""
    folder = dead.with_name("again")
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(dead, folder)
        plan = Plan(folder, chosen, fault())
        code = archiving.run(folder, plan)
        if plan.point is None:
            assert code == 0
            return
        try:
            left = assert_goes_on(archiving, folder, plan, dead.with_name("copy"))
            yield Outcome(code, plan, left)
        except (AssertionError, OSError) as error:
            error.add_note(f"at step {len(chosen.done)}: {plan.point}; exit code {code}")
            raise

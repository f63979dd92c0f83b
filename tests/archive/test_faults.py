"""The disk refuses any one system call of the archive: finished files stay unchanged to the byte,
and no page is acknowledged that is not archived.

After a failed write a full disk is waited for. Any other failure, and any failed sync, ends the
crawl, and the next start mends the files."""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.tools.check import check_folder
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.mockweb.oracle import reachable
from tests.support.archived import stored
from tests.support.crawling import Crawl, frontier_view, write_seeds
from tests.support.crawls import QUICK

from .faultpoints import (
    PAGES,
    Archiving,
    EachCall,
    EachName,
    Left,
    Outcome,
    Plan,
    contents,
    outcomes,
)
from .syscalls import Act, Call, Watch, takes_room

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# What `job` does and the archive does not is not looked at here.
ROLES = ("open file", "finished file", "index", "archive", "lock")
STEPS = {
    "create open file",
    "write open file",
    "fsync open file",
    "ftruncate open file",
    "rename open file",
    "create index",
    "write index",
    "fsync index",
    "rename index",
    "openat archive",
    "fsync archive",
}
# Exit codes: the disk has failed, and the folder could not be opened.
FAILED, NOT_OPENED = 3, 2
# Tries that find the disk full.
TRIES = 3


def needs_room(name: str) -> bool:
    return name.startswith(("create", "write", "rename"))


def of_archive(name: str) -> bool:
    """Return whether a call is the archive's, and a disk can refuse it. Folders are also closed
    after they were only listed."""
    return name.endswith(ROLES) and not name.startswith("lseek") and name != "close archive"


class FullDisk:
    """Refuses the first call, or the second half of a write, and then some calls that need room;
    then there is room.

    The first call after that with the name ``also`` fails too: the disk is not only full."""

    def __init__(self, also: str = ""):
        self._left = TRIES
        self._also = also

    def __call__(self, call: Call, first: bool) -> Act | int:
        if first and call.size:
            return Act.HALF
        if call.name == self._also and call.path.suffix == ".open" and self._left < TRIES:
            self._also = ""
            return errno.EIO
        # The frontier is on another disk: without room there, a crawl ends.
        of_frontier = "frontier" in call.path.parts
        if self._left and (first or (takes_room(call) and not of_frontier)):
            self._left -= 1
            return errno.ENOSPC
        return Act.PASS


def can_lack_room(name: str) -> bool:
    return of_archive(name) and not name.startswith(("openat", "close"))


def broken_disk(call: Call, first: bool) -> Act | int:
    return errno.EIO if first else Act.PASS


def expected_codes(run: Outcome, error: int) -> set[int]:
    """Return the exit codes with which a run may end after this error."""
    point, began = run.plan.point, run.plan.began
    assert point is not None
    if error == errno.EIO:
        return {FAILED} if began else {NOT_OPENED}
    # At its end a crawl waits for room no longer.
    waited_for = {FAILED, 0} if run.left.acknowledged == set(range(PAGES)) else {0}
    if point.endswith("index"):
        # A mend leaves it out; else all of it is written anew, even after a failed sync.
        return waited_for
    if point == "fsync archive":
        # By which the name of an index is made to last, or that of a file.
        return {FAILED, 0}
    return waited_for if began and needs_room(point) else {FAILED}


def assert_each_ends_in_order(
    archiving: Archiving, dead: Path, chosen: EachName | EachCall, error: int
) -> None:
    before = Left.in_(dead, dead.with_name("copy"))
    once = Counter(set(range(PAGES)) - before.acknowledged)
    fault = FullDisk if error == errno.ENOSPC else lambda: broken_disk
    for each in outcomes(archiving, dead, chosen, fault):
        code, point = each.code, each.plan.point
        assert point is not None
        expected = expected_codes(each, error)
        assert code in expected, f"{point}: {code}, and not {expected}"
        if not code:
            assert each.left.archived == before.archived + once, f"{point}: not each page once"


def test_disk_that_fails_at_a_sync_ends_the_crawl(archiving: Archiving, dead: Path) -> None:
    """The next start mends the file. A slow test has each call fail."""
    steps = EachName("fsync open file".__eq__)
    assert_each_ends_in_order(archiving, dead, steps, errno.EIO)
    assert steps.done


def test_full_disk_is_waited_for(archiving: Archiving, dead: Path) -> None:
    """A slow test has each call fail."""
    few = {"create open file", "write open file"}
    steps = EachName(few.__contains__)
    assert_each_ends_in_order(archiving, dead, steps, errno.ENOSPC)
    assert set(steps.done) == few


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_disk_that_fails_at_any_call_ends_the_crawl(archiving: Archiving, dead: Path) -> None:
    calls = EachCall(of_archive)
    assert_each_ends_in_order(archiving, dead, calls, errno.EIO)
    assert set(calls.done) >= STEPS


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_full_disk_is_waited_for_unless_a_sync_failed(archiving: Archiving, dead: Path) -> None:
    calls = EachCall(can_lack_room)
    assert_each_ends_in_order(archiving, dead, calls, errno.ENOSPC)
    assert set(calls.done) >= STEPS - {"openat archive"}


# What the archive does when a record found no room, and when the first record of a file did.
@pytest.mark.parametrize(
    "also",
    [
        "ftruncate",
        *(pytest.param(step, marks=pytest.mark.slow) for step in ("lseek", "close", "unlink")),
    ],
)
def test_full_disk_that_fails_to_cut_back_ends_the_crawl(
    archiving: Archiving, dead: Path, also: str
) -> None:
    calls = EachCall("write open file".__eq__, most=2)
    found = list(outcomes(archiving, dead, calls, lambda: FullDisk(also)))
    codes = {each.code for each in found}
    assert FAILED in codes, codes
    # A file that already has records is neither closed nor removed.
    assert codes == ({FAILED, 0} if also in {"close", "unlink"} else {FAILED})


# --- whole crawls ---


@dataclass
class FaultyCrawl(Crawl):
    """A crawl whose system calls the `Watch` at ``address`` serves."""

    address: str = ""

    def command(self) -> list[str]:
        command = super().command()
        place = command.index("scrapy")
        return [*command[:place], "tests.archive.archiving", self.address, *command[place + 1 :]]


GRAPH = Graph(hosts=6, pages=6, seed=5, features=QUICK)
FAST = {"KROWL_DELAY_MIN": 0.02, "KROWL_DELAY_FACTOR": 0, "KROWL_WARC_MAX_SIZE": 20_000}


def faulty_crawl(
    web: MockWeb, folder: Path, step: str, fault: Callable[[Call, bool], Act | int], code: int
) -> tuple[Crawl, Plan]:
    """Run a crawl with a fault at the first such step after the first file is finished."""
    seeds = write_seeds(folder / "seeds.txt", web.seeds())
    watch = Watch()
    crawl = FaultyCrawl(
        folder / "job", arguments={"seeds": seeds}, settings=FAST, address=watch.address
    )
    later = False

    def chosen(name: str, began: bool) -> bool:
        nonlocal later
        later |= name == "rename open file"
        return later and name == step

    plan = Plan(crawl.jobdir, chosen, fault)
    crawl.start()
    watch.serve(plan)
    watch.close()
    crawl.wait(code=code)
    assert plan.point == step
    return crawl, plan


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        *("create open file", "write open file", "fsync open file", "rename open file"),
        "fsync archive",
    ],
)
def test_crawl_with_a_failing_disk_exits_with_3(tmp_path: Path, step: str) -> None:
    with MockWeb(graph=GRAPH) as web:
        crawl, plan = faulty_crawl(web, tmp_path, step, broken_disk, code=FAILED)
        why = crawl.log.splitlines()[-1]
        assert why.startswith("krowlspider: the crawl could not be saved to disk: ")
        assert "Input/output error" in why
        assert contents(crawl.jobdir / "warc").items() >= plan.closed.items()
        assert frontier_view(crawl.jobdir)["queued"] > 0
        again = Crawl(crawl.jobdir, settings=FAST).run()
        assert_whole(web, again, plan)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["write open file", "rename open file", "create open file"])
def test_crawl_with_a_full_disk_archives_each_page_once(tmp_path: Path, step: str) -> None:
    with MockWeb(graph=GRAPH) as web:
        crawl, plan = faulty_crawl(web, tmp_path, step, FullDisk(), code=0)
        assert_whole(web, crawl, plan)
        assert reachable(web.graph, web.seeds()).differences(web.log()) == []
        assert stored(crawl.jobdir) == Counter((entry.url, entry.sha1) for entry in web.log())
        assert "krowl/archive/failed_count" not in crawl.stats


def assert_whole(web: MockWeb, crawl: Crawl, plan: Plan) -> None:
    """Assert that everything is fetched and archived, and that files finished before the fault are
    unchanged."""
    assert reachable(web.graph, web.seeds()).differences(web.log(), at_least=True) == []
    warc = crawl.jobdir / "warc"
    assert contents(warc).items() >= plan.closed.items()
    report = check_folder(warc)
    assert (report.open_files, report.problems) == (0, [])
    assert {url for url, _ in stored(crawl.jobdir)} == {entry.url for entry in web.log()}
    view = frontier_view(crawl.jobdir)
    assert view["queued"] == 0

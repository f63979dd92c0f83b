"""Hosts move between the folders of processes that do not run, and a kill loses none."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.transport.message import Message, encode
from krowlspider.config.validation import offline
from krowlspider.crawl.nodes.static import place_of
from krowlspider.crawl.parts import delay_policy, frontier_limits
from krowlspider.crawl.report.joined import seeds_of_all
from krowlspider.errors import JobError
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.entry_queues import Answer, Candidate
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.seed_table import ELSEWHERE, SeedLine
from krowlspider.frontier.seen.seen_set import SeenSet
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.owner import check_owner
from krowlspider.frontier.store.queues import entries
from krowlspider.frontier.store.store import LevelStore
from krowlspider.node.handover import FolderHandover
from krowlspider.node.tree import Tree, ids, process_folders, ring_of
from krowlspider.urls.canonical import IdentityHasher
from krowlspider.urls.host import domain_of, host_of
from tests.support.settings import project_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOSTS = [f"site{number}.test" for number in range(12)]
URLS = [f"http://{host}/{page}" for host in HOSTS for page in range(3)]
# A request of a spider, whose callback only a pickle can hold.
PICKLED = Entry("http://site0.test/pickled", request=b"P\x80")


@contextmanager
def opened(tree: Tree, process: str, count: int) -> Iterator[Frontier]:
    """The frontier in a process' folder, as the process of a ring of so many opens it."""
    folder = tree.folder(process)
    head = folder.take(seed=tree.seed, ring=place_of(process, ring_of(ids(count))))
    store = LevelStore(folder.frontier, create=head.new)
    settings = project_settings()
    frontier = Frontier(
        store,
        SeenSet(store, 1000),
        frontier_limits(settings),
        delay_policy(settings),
        monotonic=time.monotonic,
        wall=time.time,
    )
    try:
        yield frontier
    finally:
        frontier.close()
        folder.leave()


def made(path: Path, *more: Entry) -> Tree:
    """The folder of a crawl of one process, with everything queued."""
    tree = Tree(path, "krowlspider")
    tree.take()
    hasher = IdentityHasher(tree.seed)
    with opened(tree, "p1", 1) as frontier:
        found = [*map(Entry, URLS), *more]
        frontier.add([Candidate(host_of(e.url), hasher.key(e.url), e, 0) for e in found])
    return tree


def hand_over(tree: Tree, count: int, is_stopped: Callable[[], bool] = lambda: False) -> None:
    FolderHandover(
        tree,
        ring_of(ids(count)),
        offline(project_settings()),
        is_stopped=is_stopped,
        together=1,
    ).run(tree.heads())


def killed_while_handing_over(tree: Tree, count: int, after: int) -> None:
    """As `hand_over`, in a process that SIGKILL ends after so many hosts."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        return
    try:
        left = iter(range(after))

        def die() -> bool:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return False

        hand_over(tree, count, die)
    finally:
        os._exit(1)


def assert_each_at_its_owner(tree: Tree, count: int) -> None:
    ring, found = ring_of(ids(count)), []
    for process in ids(count):
        with opened(tree, process, count) as frontier:
            for host in HOSTS:
                urls = [entry_of(*each).url for each in entries(frontier.store, host)]
                assert not urls or ring.owner(domain_of(host)) == process
                hasher = IdentityHasher(tree.seed)
                assert all(frontier.seen.known(host, hasher.key(url)) for url in urls)
                found += urls
    assert sorted(found) == sorted(URLS)


@pytest.mark.slow
def test_killed_hand_over_loses_no_url(tmp_path: Path) -> None:
    tree = made(tmp_path / "job")
    killed_while_handing_over(tree, 2, after=2)
    # Another number than that of the start that was killed.
    killed_while_handing_over(tree, 3, after=3)
    hand_over(tree, 3)
    assert_each_at_its_owner(tree, 3)


def test_requests_that_stay_refuse_another_number(tmp_path: Path) -> None:
    tree = made(tmp_path / "job", PICKLED)
    other = next(n for n in range(2, 9) if ring_of(ids(n)).owner("site0.test") != "p1")
    with pytest.raises(JobError, match=r"1 request in .*p1 with objects that only their process"):
        hand_over(tree, other)
    with opened(tree, "p1", 1) as frontier:
        assert frontier.queued > 0


def seeds_table(tree: Tree) -> list[tuple[object, ...]]:
    """Line, seed, outcome, status and final URL of each row of the joined table."""
    frontiers = [each / "frontier" for each in process_folders(tree.path)]
    with seeds_of_all(frontiers, tree.path) as table:
        return [row[:5] for row in table.rows]


def finish(tree: Tree, process: str, count: int, ends: dict[str, Answer]) -> None:
    """Answer these URLs, which are queued at a process."""
    with opened(tree, process, count) as frontier:
        for host in HOSTS:
            while lease := frontier.queues.pop(frontier.schedule.cache.get(host)):
                if (answer := ends.get(lease.entry.url)) is None:
                    continue
                lease.answer = answer
                frontier.acknowledge(lease)
        frontier.begin_commit().write()


def plant(tree: Tree, count: int, urls: list[str]) -> None:
    """Have each process read the seeds, as at a start."""
    ring = ring_of(ids(count))
    lines = [SeedLine(number, url, url) for number, url in enumerate(urls, 1)]
    for process in ids(count):
        with opened(tree, process, count) as frontier:
            for url in urls:
                if ring.owner(domain_of(host_of(url))) != process:
                    frontier.seeds.refused([url], ELSEWHERE)
            frontier.seeds.begin("seeds")
            frontier.seeds.add("seeds", lines, after=0)
            frontier.seeds.end("seeds", after=len(lines))


@pytest.mark.parametrize("counts", [(2, 3), (2, 1), (3, 1, 3)])
def test_rows_of_seeds_go_on_at_the_new_owners(tmp_path: Path, counts: tuple[int, ...]) -> None:
    """Also of seeds that end in a later start, and go on at another host; and of lines that were
    given by hand at a process that is no more."""
    tree = made(tmp_path / "job")
    urls = [*URLS, f"{URLS[0]}?utm_source=x"]
    with opened(tree, "p1", 1) as frontier:
        first = [Candidate(host_of(url), None, Entry(url), 0) for url in URLS]
        batch = frontier.store.batch()
        frontier.seeds.queued(first, batch, has_lines=True)
        batch.write()
    plant(tree, 1, urls)
    gone, found = Answer(404, None, None, 0, 0.1), Answer(200, None, None, 0, 0.1)
    moved = Answer(301, None, URLS[3].encode(), 0, 0.1)
    finish(tree, "p1", 1, {URLS[0]: gone, URLS[6]: moved})
    last = ids(max(counts))[-1]
    for count in counts:
        hand_over(tree, count)
        plant(tree, count, urls)
        if last in ids(count):
            with opened(tree, last, count) as frontier:
                frontier.seeds.give([URLS[0]])
    for process in ids(counts[-1]):
        finish(tree, process, counts[-1], {URLS[3]: found})
    ends = {URLS[0]: ("done", 404, ""), URLS[3]: ("done", 200, "")}
    ends |= {urls[-1]: ends[URLS[0]], URLS[6]: ("done", 200, URLS[3])}
    wanted = [
        (number, url, *ends.get(url, ("queued", "", ""))) for number, url in enumerate(urls, 1)
    ]
    rows = seeds_table(tree)
    assert rows[: len(urls)] == wanted
    assert {row[1:] for row in rows[len(urls) :]} == {(URLS[0], "done", 404, "")}
    assert len(rows) > len(urls)


@pytest.mark.slow
def test_messages_of_a_process_that_is_no_more_reach_the_others(tmp_path: Path) -> None:
    """Those in its outbox go to that of another one, which gives them to their owners."""
    tree = made(tmp_path / "job")
    hand_over(tree, 2)
    by_p1, by_p2 = (encode(Message(f"http://{host}/new")) for host in HOSTS[:2])
    for process, owner, message in (("p1", "p2", by_p1), ("p2", "p1", by_p2)):
        with opened(tree, process, 2) as frontier:
            batch = frontier.store.batch()
            frontier.outbox.put(owner, HOSTS[0], message, batch)
            batch.write()
    hand_over(tree, 1)
    assert_each_at_its_owner(tree, 1)
    left = []
    for process in ids(2):
        place = place_of(process, ring_of(ids(1)))
        store = LevelStore(tree.folder(process).frontier)
        check_owner(store, tree.seed, place)
        left.append([value.partition(b"\0")[2] for _, value in store.items(schema.OUTBOX)])
        store.close()
    assert (sorted(left[0]), left[1]) == (sorted([by_p1, by_p2]), [])

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
from krowlspider.errors import JobError
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.seen.seen_set import SeenSet
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.owner import check_owner
from krowlspider.frontier.store.queues import entries
from krowlspider.frontier.store.store import LevelStore
from krowlspider.node.handover import FolderHandover
from krowlspider.node.tree import Tree, ids, ring_of
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

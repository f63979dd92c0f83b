"""The outbox keeps messages for other nodes in order, loses none and counts them exactly."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from krowlspider.frontier.outbox import Foreign
from krowlspider.frontier.store.schema import OUTBOX, outbox_key, outbox_prefix
from krowlspider.frontier.store.store import Batch, LevelStore, Store
from krowlspider.urls.canonical import IdentityHasher, domain_of, host_of
from tests.frontier.conftest import LIMITS, KeptMemoryStore, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


KEY = IdentityHasher(1).key
ROOT = Path(__file__).parents[2]


def foreign(url: str, owner: str = "x", *, known: bool = True) -> Foreign:
    return Foreign(owner, host_of(url), KEY(url) if known else None, url.encode())


def urls(count: int, host: str = "a.test", start: int = 0) -> list[str]:
    return [f"http://{host}/{number}" for number in range(start, start + count)]


def messages(world: World, owner: str = "x", most: int = 10_000) -> list[str]:
    return [message.decode() for _, message in world.frontier.outbox.after(owner, -1, most)]


def send(world: World, most: int, owner: str = "x") -> list[str]:
    """Send the first messages of an owner, which acknowledges them; return their URLs."""
    outbox = world.frontier.outbox
    lot = outbox.after(owner, -1, most)
    if lot:
        assert sum(outbox.acknowledge(owner, lot[-1][0])) == len(lot)
    return [message.decode() for _, message in lot]


def test_messages_leave_in_the_order_of_arrival(world: World) -> None:
    for start in range(0, 300, 100):
        assert world.forward(map(foreign, urls(100, start=start))) == 100
    sent = send(world, 120)
    world.restart()
    world.forward(map(foreign, urls(50, start=300)))
    while lot := send(world, 70):
        sent += lot
    assert sent == urls(350)


def test_a_message_in_the_outbox_is_known(world: World) -> None:
    lot = [foreign(url) for url in urls(3)]
    assert world.forward([*lot, lot[0]]) == 3
    assert world.forward(lot) == 0
    world.crash()
    assert world.forward([*lot, foreign("http://a.test/new")]) == 1
    assert world.frontier.counters["known"] == 3
    assert messages(world) == [*urls(3), "http://a.test/new"]


def test_a_message_is_put_once_in_a_batch(open_store: Callable[[], Store]) -> None:
    """Verify reads the disk, where the mark is not written yet."""
    world = World(open_store, verify=True)
    first, second = map(foreign, urls(2))
    assert world.forward([first, second, first]) == 2


def test_known_messages_of_a_batch_are_those_of_their_owner(
    open_store: Callable[[], Store],
) -> None:
    """Verify reads the disk by the name of each owner."""
    world = World(open_store, verify=True)
    first, second = urls(2)
    nameless = foreign(first, known=False)
    assert world.forward([nameless, foreign(first), foreign(second, "y")]) == 3
    world.crash()
    batch = [nameless, foreign(first, "y"), foreign(first), foreign(second, "y"), foreign(second)]
    assert world.forward(batch) == 3
    assert messages(world)[-2:] == [first, second]


def test_a_message_without_an_identity_is_put_each_time(world: World) -> None:
    item = foreign("http://a.test/", known=False)
    assert world.forward([item, item]) == 2
    assert world.forward([item]) == 1


def test_a_sent_url_is_unknown_when_its_owner_changes(
    world: World,
) -> None:
    world.forward([foreign("http://a.test/0", "x")])
    assert world.add("http://a.test/0") == 1
    assert world.forward([foreign("http://a.test/0", "y")]) == 1
    world.crash()
    assert world.add("http://a.test/0") == 0
    assert world.forward([foreign("http://a.test/0", "y")]) == 0
    world.crash()
    assert world.frontier.seen.rebuilt


class RecordingStore(KeptMemoryStore):
    """Counts the batches, and records where each iteration begins."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0
        self.begun: list[bytes] = []

    def batch(self, *, sync: bool = False) -> Batch:
        self.batches += 1
        return super().batch(sync=sync)

    def items(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        self.begun.append(after)
        return super().items(prefix, after)


def test_links_and_messages_of_a_page_are_one_batch() -> None:
    store = RecordingStore()
    world = World(lambda: store)
    before = store.batches
    ours = [world.candidate("http://b.test/")]
    assert world.frontier.queue(ours, [foreign(url) for url in urls(2)]) == 1
    assert store.batches == before + 1
    assert world.frontier.counters["foreign"] == 2
    assert messages(world) == urls(2)


def test_a_message_without_identity_enters_a_full_outbox(
    open_store: Callable[[], Store],
) -> None:
    world = World(open_store, limits=replace(LIMITS, outbox=3))
    assert world.forward(foreign(url, known=False) for url in urls(5)) == 5
    assert world.frontier.outbox.full
    assert messages(world) == urls(5)


def test_a_refused_message_is_counted_and_not_marked(
    open_store: Callable[[], Store],
) -> None:
    world = World(open_store, limits=replace(LIMITS, outbox=3))
    assert world.forward(map(foreign, urls(5))) == 3
    assert world.frontier.counters["dropped/outbox"] == 2
    assert world.frontier.refused.hosts("outbox") == {"a.test": 2}
    assert send(world, 2) == urls(2)
    assert world.forward(map(foreign, urls(5))) == 2
    assert messages(world) == urls(3, start=2)
    world.crash()
    assert world.forward([foreign("http://a.test/more")]) == 0


def test_entries_under_way_do_not_hold_up_the_inbox(open_store: Callable[[], Store]) -> None:
    """Two nodes with a full outbox would else wait for each other."""
    world = World(open_store, limits=replace(LIMITS, outbox=3))
    world.forward(map(foreign, urls(3)))
    outbox = world.frontier.outbox
    assert outbox.full
    assert outbox.is_full_of_unsent
    outbox.note_sent("x", 0)
    assert outbox.full
    assert not outbox.is_full_of_unsent
    # They were lost.
    outbox.note_sent("x", -1)
    assert outbox.is_full_of_unsent


@pytest.mark.parametrize("end", [World.restart, World.crash])
def test_depths_are_exact_after_any_end(world: World, end: Callable[[World], object]) -> None:
    world.forward([*map(foreign, urls(7)), foreign("http://b.test/", "y")])
    send(world, 3)
    end(world)
    assert world.frontier.outbox.depths() == {"x": 4, "y": 1}
    assert world.frontier.outbox.depth == 5
    assert sorted(world.frontier.outbox.owners()) == ["x", "y"]
    send(world, 1, "y")
    end(world)
    assert world.frontier.outbox.owners() == ["x"]
    assert world.frontier.outbox.depth == 4


def test_an_entry_acknowledged_twice_counts_once(world: World) -> None:
    world.forward(map(foreign, urls(3)))
    outbox = world.frontier.outbox
    assert sum(outbox.acknowledge("x", 1)) == 2
    assert sum(outbox.acknowledge("x", 1)) == 0
    assert outbox.depth == 1
    # More than it was ever sent: anybody may have written that.
    assert sum(outbox.acknowledge("x", 999)) == 1
    assert world.forward([foreign("http://a.test/new")]) == 1
    assert messages(world) == ["http://a.test/new"]


def test_many_entries_are_acknowledged_in_steps(world: World) -> None:
    """Also where the ring has changed, and moved every second one."""
    lots = [url for n in range(1200) for url in (f"http://a.test/{n}", f"http://b.test/{n}")]
    world.forward(map(foreign, lots))
    outbox = world.frontier.outbox
    assert sum(len(lot) for lot in outbox.rebucket(lambda host: "xy"[host == "b.test"])) == 0
    assert list(outbox.acknowledge("x", 1999)) == [500, 500]
    assert messages(world, most=1) == ["http://a.test/1000"]
    assert list(outbox.acknowledge("y", 1199)) == [500, 500, 200]
    assert outbox.depths() == {"x": 200}


def test_rebucket_moves_each_message_to_its_new_owner(world: World) -> None:
    lots = [*urls(3), *urls(3, "b.test"), *urls(3, "c.test")]
    world.forward(map(foreign, lots))
    owners = {"a.test": "x", "b.test": "y", "c.test": None}
    ours = [item for lot in world.frontier.outbox.rebucket(owners.get) for item in lot]
    assert [message.decode() for _, message in ours] == urls(3, "c.test")
    assert messages(world, "y") == urls(3, "b.test")
    world.crash()
    ours = [item for lot in world.frontier.outbox.rebucket(owners.get) for item in lot]
    candidates = [world.candidate(message.decode()) for _, message in ours]
    assert world.frontier.queue(candidates, decided=[key for key, _ in ours]) == 3
    world.crash()
    assert messages(world) == urls(3)
    assert world.frontier.outbox.depths() == {"x": 3, "y": 3}
    assert world.frontier.queued == 3


def test_a_message_moved_while_it_is_sent_counts_once(world: World) -> None:
    world.forward(map(foreign, urls(3)))
    outbox = world.frontier.outbox
    assert [lot for lot in outbox.rebucket(lambda _: "y") if lot] == []
    assert sum(outbox.acknowledge("x", 1)) == 0
    assert outbox.depths() == {"y": 3}
    assert messages(world, "y") == urls(3)


def test_a_message_sent_while_it_becomes_ours_counts_once(world: World) -> None:
    world.forward(map(foreign, urls(1)))
    outbox = world.frontier.outbox
    ((key, _),) = next(outbox.rebucket(lambda _: None))
    assert sum(outbox.acknowledge("x", 0)) == 1
    world.frontier.queue([world.candidate("http://a.test/0")], decided=[key])
    assert outbox.depth == 0


def test_the_head_does_not_walk_over_removed_keys() -> None:
    store = RecordingStore()
    world = World(lambda: store)
    world.forward(map(foreign, urls(30)))
    store.begun.clear()
    for _ in range(3):
        send(world, 10)
    # Each iteration begins behind the keys removed before.
    prefix = outbox_prefix("x")
    assert store.begun == [b"", outbox_key(prefix, 9), outbox_key(prefix, 19)]


WRITER = """
import sys
from pathlib import Path
from krowlspider.frontier.outbox import Foreign
from krowlspider.frontier.store.store import LevelStore
from tests.frontier.conftest import World
from tests.frontier.test_outbox import foreign

world = World(lambda: LevelStore(Path(sys.argv[1]), create=True))
for page in range(1_000_000):
    lot = [foreign(f"http://a.test/{page}/{link}") for link in range(7)]
    world.frontier.queue([world.candidate(f"http://b.test/{page}")], lot)
    if page % 3 == 2:
        head = world.frontier.outbox.after("x", -1, 10)
        print(*(message.decode() for _, message in head), sep="\\n")
        list(world.frontier.outbox.acknowledge("x", head[-1][0]))
    print("page", page, flush=True)
"""


def test_a_kill_repeats_only_messages_being_sent(tmp_path: Path) -> None:
    """Links, messages and marks of a page are all on disk, or none of them."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "db")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if line == "page 100\n":
                process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    sent = [line for line in lines if line.startswith("http")]
    pages = sum(line.startswith("page") for line in lines)
    world = World(lambda: LevelStore(tmp_path / "db"))
    left = messages(world)
    assert world.frontier.outbox.depths() == {"x": len(left)}
    found = list(dict.fromkeys(sent + left))
    assert len(found) % 7 == 0
    assert len(found) // 7 >= pages
    assert found == [f"http://a.test/{n // 7}/{n % 7}" for n in range(len(found))]
    assert world.frontier.queued == len(found) // 7
    assert world.forward([foreign(url) for url in found]) == 0
    # Only the last messages may be printed and not removed.
    assert len(sent) + len(left) - len(found) <= 10
    world.store.close()


class OutboxModel(RuleBasedStateMachine):
    """Compares the outbox with lists of messages by owner, with crashes at any step."""

    open_store: Callable[[], Store]

    @initialize()
    def start(self) -> None:
        self.world = World(self.open_store)
        self.lists: dict[str, list[str]] = {}
        self.marks: set[tuple[str, str]] = set()
        self.ring: dict[str, str | None] = {f"h{n}.test": "xy"[n % 2] for n in range(4)}
        self.queued: set[str] = set()

    @rule(numbers=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=6))
    def forward(self, numbers: list[tuple[int, int]]) -> None:
        lot = []
        put = 0
        for host, page in numbers:
            url = f"http://h{host}.test/{page}"
            owner = self.ring[f"h{host}.test"]
            if owner is None:
                continue
            lot.append(foreign(url, owner))
            if (owner, url) not in self.marks:
                self.marks.add((owner, url))
                self.lists.setdefault(owner, []).append(url)
                put += 1
        assert self.world.forward(lot) == put

    @rule(owner=st.sampled_from("xyz"), most=st.integers(1, 5), lost=st.booleans())
    def send(self, owner: str, most: int, lost: bool) -> None:
        waiting = self.lists.get(owner, [])
        head = self.world.frontier.outbox.after(owner, -1, most)
        assert [message.decode() for _, message in head] == waiting[:most]
        if lost:
            self.crash()
            return
        if head:
            assert sum(self.world.frontier.outbox.acknowledge(owner, head[-1][0])) == len(head)
        self.lists[owner] = waiting[most:]

    @rule(host=st.integers(0, 3), owner=st.sampled_from(["x", "y", "z", None]))
    def change(self, host: int, owner: str | None) -> None:
        """Give a host another owner: its messages move in one step, or are queued here."""
        self.ring[f"h{host}.test"] = owner
        for lot in self.world.frontier.outbox.rebucket(self.ring.get):
            found = [self.world.candidate(message.decode()) for _, message in lot]
            keys = [each.key for each in found]
            assert None not in keys
            # A URL that was queued here and then sent to two owners is known, as in the traffic of
            # a cluster.
            known = self.world.frontier.knows(keys, lambda at, found=found: found[at].host)
            candidates = [each for each, is_known in zip(found, known, strict=True) if not is_known]
            self.world.frontier.queue(candidates, decided=[key for key, _ in lot])
            self.queued |= {message.decode() for _, message in lot}
        for old, waiting in list(self.lists.items()):
            self.lists[old] = []
            for url in waiting:
                new = self.ring[domain_of(host_of(url))]
                if new is not None:
                    self.lists.setdefault(new, []).append(url)

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @invariant()
    def every_message_is_there_once(self) -> None:
        if not hasattr(self, "lists"):
            return
        outbox = self.world.frontier.outbox
        assert outbox.depths() == {owner: len(lot) for owner, lot in self.lists.items() if lot}
        assert outbox.depth == sum(map(len, self.lists.values()))
        assert len(list(self.world.store.keys(OUTBOX))) == outbox.depth
        assert self.world.frontier.queued == len(self.queued)
        for owner, lot in self.lists.items():
            there = [message.decode() for _, message in outbox.after(owner, -1, 1000)]
            assert sorted(there) == sorted(lot)
            self.lists[owner] = there


def test_a_url_that_comes_back_twice_is_queued_once() -> None:
    model = MemoryOutbox()
    model.start()
    for owner in (None, "x", "z"):
        model.change(host=1, owner=owner)
        model.forward(numbers=[(1, 1)])
        model.change(host=1, owner=None)
        model.every_message_is_there_once()


class MemoryOutbox(OutboxModel):
    def __init__(self) -> None:
        super().__init__()
        kept = KeptMemoryStore()
        self.open_store = lambda: kept


class LevelOutbox(OutboxModel):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="krowl-outbox-"))
        self.open_store = lambda: LevelStore(self.folder / "db", create=True)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.store.close()
        shutil.rmtree(self.folder)


TestMemoryOutbox = MemoryOutbox.TestCase
TestMemoryOutbox.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestLevelOutbox = LevelOutbox.TestCase
TestLevelOutbox.settings = settings(max_examples=8, stateful_step_count=30, deadline=None)

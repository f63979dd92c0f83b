"""A hand-over loses nothing and doubles nothing if its process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from krowlspider.frontier.store.schema import ARRIVING
from krowlspider.frontier.store.store import LevelStore, all_entries
from tests.frontier.conftest import World

ROOT = Path(__file__).parents[3]


SENDER = """
import sys
from pathlib import Path
from krowlspider.frontier.store.store import LevelStore
from tests.frontier.conftest import World

folder = Path(sys.argv[1])
here = World(lambda: LevelStore(folder / "here", create=True), node="here")
there = World(lambda: LevelStore(folder / "there", create=True), node="there")
if not here.frontier.counters["queued"]:
    here.add(*(f"http://h{host}.test/{page}" for host in range(200) for page in range(7)))
for host in range(200):
    if here.frontier.schedule.cache.get(f"h{host}.test").queue.queued:
        here.hand_over(f"h{host}.test", there)
        print(host, flush=True)
print("all", flush=True)
"""


def run_sender(folder: Path, kill_after: int) -> int:
    """Return how many lines the child printed before it was killed, or ended."""
    count = 0
    with subprocess.Popen(
        [sys.executable, "-c", SENDER, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            count += 1
            if line == "all\n":
                break
            if count == kill_after:
                process.send_signal(signal.SIGKILL)
    return count


def test_kills_during_hand_overs_lose_and_double_nothing(tmp_path: Path) -> None:
    pages = sorted(f"http://h{host}.test/{page}" for host in range(200) for page in range(7))
    for kill_after in (3, 50):
        run_sender(tmp_path, kill_after)
        here = World(lambda: LevelStore(tmp_path / "here"), node="here")
        there = World(lambda: LevelStore(tmp_path / "there"), node="there")
        # A host in both is being handed over: the receiver fetches nothing of it yet.
        queues: dict[str, list[str]] = {}
        for host in range(200):
            name = f"h{host}.test"
            queues[name] = here.queued(name) or there.queued(name)
        assert sorted(page for queue in queues.values() for page in queue) == pages
        assert here.frontier.queued == len(list(all_entries(here.store)))
        assert there.frontier.queued == len(list(all_entries(there.store)))
        here.store.close()
        there.store.close()
    run_sender(tmp_path, 10_000)
    here = World(lambda: LevelStore(tmp_path / "here"), node="here")
    there = World(lambda: LevelStore(tmp_path / "there"), node="there")
    queued = [page for host in range(200) for page in there.queued(f"h{host}.test")]
    assert sorted(queued) == pages
    assert (there.frontier.queued, there.frontier.schedule.host_count) == (1400, 200)
    assert here.frontier.queued == 0
    assert list(here.store.keys(ARRIVING)) == []
    here.store.close()
    there.store.close()

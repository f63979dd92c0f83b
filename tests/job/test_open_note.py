from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from krowlspider.archive.reading import Synced
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Lease
from krowlspider.frontier.frontier import Commit
from krowlspider.frontier.hosts.host import Host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import LevelStore
from krowlspider.job.commits import OpenWarcNote

if TYPE_CHECKING:
    from pathlib import Path


def test_note_keeps_only_the_entries_of_the_open_file(tmp_path: Path) -> None:
    store = LevelStore(tmp_path / "store", create=True)
    note = OpenWarcNote(store)
    lease = Lease(Host("a.test"), 0, 1, Entry("http://a.test/"))
    kept = []
    for file in ("1", "1", "2", None, "3"):
        commit = Commit(
            store,
            store.batch(),
            [(lease, None), (lease, "dns")],
            Counter(),
            Counter(),
            [],
        )
        note.put(commit, None if file is None else Synced(file, 10, 1))
        commit.write()
        kept.append(len(list(store.keys(schema.OPEN_WARC_ENTRIES))))
    assert kept == [1, 2, 1, 0, 1]
    assert OpenWarcNote(store).last == note.last == Synced("3", 10, 1)
    store.close()

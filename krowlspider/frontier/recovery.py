"""Recovery of the host records, after a process that died without closing the frontier."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import LANE_AT, level_of
from krowlspider.frontier.hosts.record import decode_host, encode_host, place_in
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import entry_keys
from krowlspider.frontier.store.schema import split_queue_key

if TYPE_CHECKING:
    from krowlspider.frontier.hosts.tally import Tally
    from krowlspider.frontier.store.store import Store

# Bytes of a key that number an entry within its level.
_IN_LEVEL = LANE_AT // 8


def catch_up(store: Store, tally: Tally) -> None:
    """Correct the records of the last commit's hosts from their queues on disk: the process may
    have died before it wrote the records."""
    batch = store.batch()
    for name in json.loads(store.get(schema.ACKNOWLEDGED) or b"[]"):
        record = store.get(schema.host_key(name))
        if record is None:
            # The host was forgotten by hand since.
            continue
        host = decode_host(name, record)
        heads: dict[int, int] = {}
        host.queue.queued = 0
        before = b""
        for key in entry_keys(store, name):
            # The keys of a level differ in their last bytes only: the queue may be long.
            if key[:-_IN_LEVEL] != before:
                before = key[:-_IN_LEVEL]
                priority, sequence = split_queue_key(key)
                heads[level_of(priority, sequence)] = sequence
            host.queue.queued += 1
        for number, level in host.queue.levels.items():
            level.head = heads.get(number, level.tail)
        placed = place_in(record)
        if not host.queue.queued and placed is not None:
            batch.delete(schema.due_key(placed, name))
        batch.put(schema.host_key(name), caught_up := encode_host(host))
        tally.replace(record, caught_up)
    tally.put(batch)
    batch.write()

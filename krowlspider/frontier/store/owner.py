"""Whose frontier a store is: it says of which job, as a folder may be put back in the wrong place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import StoreError

if TYPE_CHECKING:
    from krowlspider.frontier.store.store import Store


def check_owner(store: Store, seed: int, ring: str) -> None:
    """``seed`` is that of the job's identities, ``ring`` its place in a cluster, as in `JobHead`.

    :raises StoreError: the store is another job's, or no frontier
    """
    said = store.get(schema.OWNER)
    if said == _told(seed, ring):
        return
    if said is not None:
        raise StoreError(
            "its frontier/ is of another job, whose seen marks say nothing here: put back the one that belongs to it"
        )
    known = (schema.COUNTERS, schema.QUEUE, schema.JOINED)
    if _is_there(store, b"") and not any(_is_there(store, prefix) for prefix in known):
        raise StoreError(
            "its frontier/ is a LevelDB folder of another program: put the frontier back, or give another JOBDIR"
        )


def put_owner(store: Store, seed: int, ring: str) -> None:
    """Have the store say whose it is."""
    if store.get(schema.OWNER) is None:
        batch = store.batch()
        batch.put(schema.OWNER, _told(seed, ring))
        batch.write()


def _told(seed: int, ring: str) -> bytes:
    return seed.to_bytes(8, "big") + ring.encode()


def _is_there(store: Store, prefix: bytes) -> bool:
    return any(True for _ in store.items(prefix))

"""The job that a store belongs to: a folder restored in the wrong place is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import StoreError, put

if TYPE_CHECKING:
    from krowlspider.frontier.store.store import Store


def check_owner(store: Store, seed: int, ring: str) -> None:
    """Check that a store belongs to a job, given the job's ``seed`` and ``ring`` as in `JobHead`.

    :raises StoreError: the store belongs to another job, or is not a frontier
    """
    owner = store.get(schema.OWNER)
    if owner not in {None, _owner(seed, ring)}:
        raise StoreError(
            "its frontier/ is of another job, with other identities:"
            " put back the frontier that belongs to it"
        )
    kinds = (schema.OWNER, schema.COUNTERS, schema.QUEUE, schema.JOINED)
    if _has(store, b"") and not any(_has(store, kind) for kind in kinds):
        raise StoreError(
            "its frontier/ is a LevelDB folder of another program:"
            " put the frontier back, or give another JOBDIR"
        )


def put_owner(store: Store, seed: int, ring: str) -> None:
    """Write the job into a store that names none."""
    if store.get(schema.OWNER) is None:
        put(store, schema.OWNER, _owner(seed, ring))


def _owner(seed: int, ring: str) -> bytes:
    return seed.to_bytes(8, "big") + ring.encode()


def _has(store: Store, prefix: bytes) -> bool:
    return next(store.items(prefix), None) is not None

"""The seen marks on disk, by host."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from xxhash import xxh3_64_digest

from krowlspider.frontier.seen.seen_filter import SeenFilter
from krowlspider.frontier.store.schema import (
    GONE,
    JOINED,
    KEY_SIZE,
    SEEN,
    gone_key,
    marked_by,
    seen_prefix,
)
from krowlspider.frontier.store.store import delete, put

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from krowlspider.frontier.store.store import Batch, Store

# Capacity of the filter of hosts that were handed over, at first: 4 kB.
_GONE_CAPACITY = 1000
# The most identities that one mark stands for.
_JOINED_MAX = 64
# Marks removed or split in one batch, about 5 ms of work.
_STEP = 100
# The value of a handed-over host whose marks are being removed.
_REMOVING = b"\1"


class SeenMarks:
    """The seen marks of a store.

    What a batch marks of one host is one mark. Where single identities are looked up, each has a
    mark of its own: with ``verify``, and for hosts that were handed over. So a start with
    ``verify`` splits the joined marks.

    The seen filter still has the identities of a host that was handed over. So its positives count
    only with a mark on disk: the host may come back without its URLs.
    """

    def __init__(self, store: Store, *, verify: bool):
        self._store = store
        self._verify = verify
        self._gone = SeenFilter(_GONE_CAPACITY)
        for key, value in store.items(GONE):
            if value == _REMOVING:
                for _ in self.remove(key[1:].decode()):
                    pass
        self._gone.update(xxh3_64_digest(key[1:]) for key in store.keys(GONE))
        self._join_or_split()

    def _join_or_split(self) -> None:
        """Record that marks may be joined, or split those that are."""
        joined = self._store.get(JOINED) is not None
        if not self._verify and not joined:
            put(self._store, JOINED, b"")
        if not self._verify or not joined:
            return
        marks = ((key, others) for key, others in self._store.items(SEEN) if others)
        while some := list(islice(marks, _STEP)):
            batch = self._store.batch()
            for key, others in some:
                for identity in marked_by([(key, others)]):
                    batch.put(key[:-KEY_SIZE] + identity, b"")
            batch.write()
        delete(self._store, [JOINED])

    def identities(self) -> Iterator[bytes]:
        """Yield the identities of all hosts."""
        return marked_by(self._store.items(SEEN))

    def among(self, host: str, keys: set[bytes]) -> set[bytes]:
        """Return those of some identities that are marked for a host."""
        if self._is_single(host):
            return {key for key in keys if self.has(host, key)}
        return keys.intersection(marked_by(self._store.items(seen_prefix(host))))

    def has(self, host: str, key: bytes) -> bool:
        """Return whether an identity has a mark of its own."""
        return self._store.read((seen_prefix(host) + key,)) != [None]

    def put(self, host: str, keys: Sequence[bytes], batch: Batch) -> None:
        """Put the marks of identities into a batch."""
        prefix = seen_prefix(host)
        most = 1 if len(keys) > 1 and self._is_single(host) else _JOINED_MAX
        for at in range(0, len(keys), most):
            batch.put(prefix + keys[at], b"".join(keys[at + 1 : at + most]))

    def _is_single(self, host: str) -> bool:
        """Return whether each identity of a host has a mark of its own."""
        return self._verify or self.is_gone(host)

    @property
    def any_gone(self) -> bool:
        """Return whether any host was handed over since the filter was last rebuilt."""
        return self._gone.count > 0

    def is_gone(self, host: str) -> bool:
        """Return whether a host was handed over since the filter was last rebuilt."""
        return (
            self.any_gone
            and xxh3_64_digest(host.encode()) in self._gone
            and self._store.get(gone_key(host)) is not None
        )

    def forget(self, host: str, batch: Batch) -> Iterator[list[bytes]]:
        """Count a host as handed over, with the batch, which removes its marks if they are few.

        Then take all steps of the returned iterator, as of `remove`; a restart does.
        """
        marks = list(islice(self._store.items(seen_prefix(host)), _STEP))
        is_small = len(marks) < _STEP
        for key, _ in marks if is_small else ():
            batch.delete(key)
        batch.put(gone_key(host), b"" if is_small else _REMOVING)
        if not self.is_gone(host):
            self._gone.update([xxh3_64_digest(host.encode())])
        return iter([list(marked_by(marks))]) if is_small else self.remove(host)

    def remove(self, host: str) -> Iterator[list[bytes]]:
        """Remove the marks of a host step by step; yield the identities of each step."""
        prefix = after = seen_prefix(host)
        while marks := list(islice(self._store.items(prefix, after), _STEP)):
            delete(self._store, [key for key, _ in marks])
            after = marks[-1][0]
            yield list(marked_by(marks))
        put(self._store, gone_key(host), b"")

    def filter_rebuilt(self) -> None:
        """Forget which hosts were handed over: a rebuilt filter has nothing of them."""
        self._gone = SeenFilter(_GONE_CAPACITY)
        delete(self._store, self._store.keys(GONE))

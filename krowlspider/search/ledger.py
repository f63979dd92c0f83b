"""What is known of all pages, on disk, and which of them have to be written to the index.

The ledger is the truth, and the segments follow it: a page is marked in the batch that changes it,
and the mark is removed once the segments with its document are durable. So a kill costs repeated
work, and nothing else. It shares the LevelDB of the links.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from krowlspider.corpus.sites.terms import SiteTerms  # noqa: TC001 (msgspec reads it)
from krowlspider.politeness.gemini import PrefixRules
from krowlspider.search.link_store import PAGE, LinkStore, StoredPage, host_hash, pack

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILE, _SCANNED, _DIRTY, _ANCHORS, _LATER = b"F", b"f", b"d", b"a", b"A"
_SITE, _OF_HOST, _PAYLOAD = b"s", b"h", b"g"
_EXACT, _COPY = b"x", b"c"
_SYNC = b"m"
_ID = 16
_PART = 10_000
# Names of files that are kept.
_FILES_KEPT = 64


class IndexedState(IntEnum):
    """What the index has of a page. The value is stored."""

    WAITING = 0
    KEPT = 1
    COPY = 2
    REFUSED = 3
    ABSENT = 4


class File(msgspec.Struct, array_like=True, frozen=True):
    """A WARC file: the number of its JOBDIR, and its path below that."""

    jobdir: int
    name: str


class Payload(NamedTuple):
    """Where the capture is that has a payload."""

    file: int
    offset: int
    length: int


class SiteRecord(msgspec.Struct, array_like=True):
    """The newest robots.txt of a host, and the capture that it is of.

    ``prefixes`` are those of paths that a Gemini server disallows for indexers.
    """

    latest: tuple[str, int, int]
    site: SiteTerms
    prefixes: list[str] = []

    def allows(self, url: str) -> bool:
        """Return whether the page may be in an index, as far as the prefixes go."""
        return not self.prefixes or PrefixRules(self.prefixes).allowed(url) is True


class Dirty(NamedTuple):
    """A page whose document has to be made, in the order of the captures; ``mark`` is its key."""

    mark: bytes
    key: bytes


_file = msgspec.msgpack.Decoder(File).decode
_site = msgspec.msgpack.Decoder(SiteRecord).decode
_payload = msgspec.msgpack.Decoder(Payload).decode


class Ledger:
    """The pages of an index. ``links`` is the store of links with which it shares a LevelDB."""

    def __init__(self, links: LinkStore):
        self.links = links
        self.db = links.db
        self.file = lru_cache(_FILES_KEPT)(self._file)

    # Files

    def number_of(self, file: File) -> int:
        """Return the number of a file, a new one if it is not known yet."""
        key = _SCANNED + pack(file)
        known = self.db.get(key)
        if known is not None:
            return int.from_bytes(known[:4], "big")
        last = next(self.db.iterator(prefix=_FILE, reverse=True, include_value=False), None)
        number = 0 if last is None else int.from_bytes(last[1:], "big") + 1
        with self.db.write_batch(transaction=True) as batch:
            batch.put(key, number.to_bytes(4, "big") + b"\0")
            batch.put(_FILE + number.to_bytes(4, "big"), pack(file))
        return number

    def _file(self, number: int) -> File:
        return _file(self.db.get(_FILE + number.to_bytes(4, "big")))

    def is_scanned(self, file: File) -> bool:
        return (self.db.get(_SCANNED + pack(file)) or b"\0")[-1:] == b"\1"

    def scanned(self, file: File) -> None:
        """Note durably that all captures of a file are in the ledger."""
        number = self.number_of(file).to_bytes(4, "big")
        self.db.put(_SCANNED + pack(file), number + b"\1", sync=True)

    # Pages

    def page(self, key: bytes) -> StoredPage | None:
        return self.links.page(key)

    def put(self, batch: Any, key: bytes, page: StoredPage) -> None:
        batch.put(PAGE + key, pack(page))

    def mark(self, batch: Any, key: bytes, page: StoredPage) -> None:
        """Have the document of a page made again."""
        batch.put(_dirty_key(key, page), b"")

    def mark_of(self, key: bytes, page: StoredPage) -> bytes:
        """Return the key of the mark of a page, whether it is there or not."""
        return _dirty_key(key, page)

    def dirty(self) -> Iterator[Dirty]:
        """Yield the pages that are marked, in the order of their captures."""
        for key in self.db.iterator(prefix=_DIRTY, include_value=False):
            yield Dirty(key, key[-_ID:])

    def done(self, marks: list[bytes]) -> None:
        """Remove marks: what they asked for is durable in the segments."""
        with self.db.write_batch() as batch:
            for each in marks:
                batch.delete(each)

    def sync(self) -> None:
        self.db.put(_SYNC, b"", sync=True)

    # Payloads

    def payload(self, digest: str) -> Payload | None:
        value = self.db.get(_PAYLOAD + digest.encode())
        return None if value is None else _payload(value)

    def put_payload(self, batch: Any, digest: str, payload: Payload) -> None:
        batch.put(_PAYLOAD + digest.encode(), pack(payload))

    # Sites

    def site(self, host: str) -> SiteRecord | None:
        value = self.db.get(_SITE + host_hash(host))
        return None if value is None else _site(value)

    def put_site(self, batch: Any, host: str, record: SiteRecord) -> None:
        batch.put(_SITE + host_hash(host), pack(record))

    def put_host(self, batch: Any, host: str, key: bytes) -> None:
        batch.put(_OF_HOST + host_hash(host) + key, b"")

    def pages_of(self, host: str) -> Iterator[bytes]:
        for key in self.db.iterator(prefix=_OF_HOST + host_hash(host), include_value=False):
            yield key[-_ID:]

    # Anchors

    def anchors_changed(self, batch: Any, key: bytes) -> None:
        batch.put(_ANCHORS + key, b"")

    def anchors_read(self, batch: Any, key: bytes) -> None:
        batch.delete(_ANCHORS + key)
        batch.delete(_LATER + key)

    def later(self, batch: Any, key: bytes) -> None:
        """Have the anchors of a page looked at at the end of the run."""
        batch.delete(_ANCHORS + key)
        batch.put(_LATER + key, b"")

    def with_anchors(self, *, later: bool) -> Iterator[list[bytes]]:
        """Yield parts of the pages whose anchors have changed, and with ``later`` of those too that
        were put off."""
        for prefix in (_ANCHORS, _LATER) if later else (_ANCHORS,):
            with self.db.iterator(prefix=prefix, include_value=False) as keys:
                while part := [key[1:] for key in islice(keys, _PART)]:
                    yield part

    # Copies

    def copy_of(self, key: bytes, page: StoredPage) -> tuple[bytes, StoredPage] | None:
        """Return the page in the index that has the same words as a page, with its key."""
        other_key = self.db.get(_EXACT + page.exact)
        if other_key is None or other_key == key:
            return None
        other = self.page(other_key)
        is_same = (
            other is not None and other.state == IndexedState.KEPT and other.exact == page.exact
        )
        return (other_key, other) if other is not None and is_same else None

    def remember(self, batch: Any, key: bytes, page: StoredPage) -> None:
        """Have later pages compared with this one, which is in the index."""
        batch.put(_EXACT + page.exact, key)

    def put_copy(self, batch: Any, original: bytes, key: bytes) -> None:
        batch.put(_COPY + original + key, b"")

    def release_copies(self, batch: Any, original: bytes) -> None:
        """Have the pages made again for which this one stood in the index."""
        found = self.db.iterator(prefix=_COPY + original, include_value=False)
        for at in found:
            key = at[-_ID:]
            batch.delete(at)
            page = self.page(key)
            if page is not None and page.state == IndexedState.COPY and page.original == original:
                self.mark(batch, key, page)


def _dirty_key(key: bytes, page: StoredPage) -> bytes:
    file, offset = page.at
    place = (file + 1).to_bytes(4, "big") + max(offset, 0).to_bytes(8, "big")
    return _DIRTY + place + key

"""Which records a capture becomes, by the payloads that this crawl has stored before.

Find the record that holds a payload by its digest, so that a repeated payload is stored once. It is
a cache: a lost entry costs one more whole record. So nothing here is fsynced but the note of the
files that it refers to, as no revisit may refer to one that is gone. No disk failure of it reaches
the caller.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import plyvel
import xxhash
from msgspec import Struct

from krowlspider.archive.payload import Original, header, label, raw_digest
from krowlspider.archive.surt import is_plain_request
from krowlspider.archive.write.records import (
    Capture,
    Receipt,
    RecordIds,
    RecordMaker,
    epoch_of,
    warc_date,
)
from krowlspider.errors import error_text, lacks_room

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from krowlspider.archive.dedup import OtherCrawls

# Identifies the archive folder in its first line. The others are names of its WARC files.
_PLACE = "of"


def forget_others(folder: Path, archive: Path, uploaded: Collection[str]) -> None:
    """Remove a closed index unless all its WARC files are in ``archive`` or among the ``uploaded``.

    An entry does not say in which file its record is, so one missing file is enough.
    """
    try:
        known, *names = (folder / _PLACE).read_text().splitlines()
    except (OSError, ValueError):
        known, names = "", []
    here = _files_in(archive)
    complete = here | set(uploaded)
    if not complete or known != _identity(archive) or not complete.issuperset(names):
        # Remains do no harm; the next start tries to remove them again.
        shutil.rmtree(folder, ignore_errors=True)


def note_place(folder: Path, archive: Path, uploaded: Collection[str]) -> None:
    """Note that the records of an index are in the folder ``archive``, or were ``uploaded``.

    If the note cannot be written, the next start begins an empty index.
    """
    names = sorted(_files_in(archive) | set(uploaded))
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _PLACE).write_text("".join(f"{each}\n" for each in (_identity(archive), *names)))


def note_file(folder: Path, name: str) -> None:
    """Add a WARC file that was begun to the note, durably. Without it there is no note."""
    path = folder / _PLACE
    try:
        with path.open("r+") as file:
            file.seek(0, os.SEEK_END)
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            path.unlink()


def _files_in(archive: Path) -> set[str]:
    """Return the final names of the WARC files in a folder."""
    return {path.name.removesuffix(".open") for path in archive.glob("*.warc.gz*")}


def _identity(archive: Path) -> str:
    found = archive.stat()
    return f"{found.st_dev} {found.st_ino}"


# Payloads remembered, at 90 bytes of disk each: 0.9 GB. At least half of them are the newest.
MOST = 10_000_000
# Bytes. LevelDB holds two such buffers while it writes one out; its tables are mapped files.
WRITE_BUFFER = 4 * 1024 * 1024
BLOCK_CACHE = 2 * 1024 * 1024
# Bits a key of the Bloom filter: most look-ups of a new payload, as most are, then read no table.
FILTER_BITS = 10
# Bytes. One thread of LevelDB merges all tables, the frontier's too: small ones occupy it shortly.
TABLE_SIZE = 2 * 1024 * 1024

# Names of generations: numbers with leading zeros, so that they sort by age.
_NAME = re.compile(r"[0-9]{8}")
# The key of the count; digests are longer.
_COUNT = b"count"
_ERRORS = (plyvel.Error, OSError)


class _Generation:
    """Entries that are removed together: one LevelDB. Each method raises plyvel.Error or OSError.

    ``count`` is at least the number of entries: a digest that is put again counts again.
    """

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder = folder
        # Without `create`, a folder that has lost its CURRENT raises instead of becoming empty.
        self._db = plyvel.DB(
            str(folder),
            create_if_missing=create,
            paranoid_checks=True,
            write_buffer_size=WRITE_BUFFER,
            lru_cache_size=BLOCK_CACHE,
            bloom_filter_bits=FILTER_BITS,
            max_file_size=TABLE_SIZE,
            compression="snappy",
        )
        self.count = int(self._db.get(_COUNT, b"0", verify_checksums=True))

    def get(self, digest: bytes) -> Original | None:
        value: bytes | None = self._db.get(digest, verify_checksums=True)
        if value is None:
            return None
        date, _, url = value.decode().partition(" ")
        return Original(url, date)

    def put(self, entries: list[tuple[bytes, Original]]) -> None:
        count = self.count + len(entries)
        batch = self._db.write_batch()
        for digest, original in entries:
            batch.put(digest, f"{original.date} {original.url}".encode())
        batch.put(_COUNT, b"%d" % count)
        batch.write()
        self.count = count

    def close(self) -> None:
        self._db.close()

    def destroy(self) -> None:
        self.close()
        _remove(self.folder)


class PayloadIndex:
    """An index of at most ``most`` payloads, 2 or more, in ``folder``. Calls block.

    One thread of one process at a time may use the folder. A digest, or the key that stands for it,
    has 8 bytes or more.

    There are two generations. New entries go into the newer one. When that holds half of ``most``,
    the older is destroyed and a new one begun. An entry found in the older generation is copied
    into the newer, so payloads that keep coming are not forgotten. A ``most`` lower than at the
    last start holds once the old generations are gone.

    The first failure is passed to ``warn`` as a message. A damaged generation is destroyed. When
    the disk is full, or no generation can be begun, `find` finds only what was added since the last
    `sync`, and added entries are lost, until a `sync` at which the disk takes them.

    ``others`` are the payloads of other crawls, None without them. `find` does not look there.
    """

    def __init__(
        self,
        folder: Path,
        *,
        most: int = MOST,
        warn: Callable[[str], object],
        others: OtherCrawls | None = None,
    ) -> None:
        self.others = others
        self._folder = folder
        self._half = most // 2
        self._warn = warn
        self.failed_count = 0
        self._added: dict[bytes, Original] = {}
        # The newest first.
        self._generations: list[_Generation] = []
        # Whether the generations are closed, because the disk is full or none can be begun.
        self._stalled = False
        self._open()

    def find(self, digest: bytes) -> Original | None:
        """Return the record that holds the payload with this digest; None if it is not known."""
        original = self._added.get(digest)
        if original is not None:
            return original
        for generation in self._generations.copy():
            try:
                original = generation.get(digest)
            except _ERRORS as error:
                self._lose(generation, error)
                continue
            if original is not None:
                if generation is not self._generations[0]:
                    self._added[digest] = original
                return original
        return None

    def add(self, digest: bytes, original: Original) -> None:
        """Add a payload; `find` finds it from now on. It is kept in memory until `sync`."""
        self._added[digest] = original

    def sync(self) -> None:
        """Write the added entries. Their records must be durable, so that no entry outlives one."""
        if self._stalled:
            self._open()
        entries = list(self._added.items())
        self._added = {}
        while entries and not self._stalled:
            room = self._half - self._generations[0].count if self._generations else 0
            if room > 0:
                self._put(entries[:room])
                entries = entries[room:]
            else:
                self._begin()

    def note_file(self, name: str) -> None:
        """Note that entries may refer to a WARC file, which was just begun."""
        note_file(self._folder, name)

    def clear(self) -> None:
        self._added = {}
        while self._generations:
            self._generations.pop().destroy()

    def close(self) -> None:
        """Close the files without a `sync`, those of ``others`` too."""
        self._close_own()
        if self.others is not None:
            self.others.close()

    def _close_own(self) -> None:
        for generation in self._generations:
            generation.close()
        self._generations = []

    def _put(self, entries: list[tuple[bytes, Original]]) -> None:
        newest = self._generations[0]
        try:
            newest.put(entries)
        except _ERRORS as error:
            # LevelDB would append to half a record: write nothing before it is opened again.
            if lacks_room(error):
                self._stall(newest.folder, error)
            else:
                self._lose(newest, error)

    def _begin(self) -> None:
        """Begin a generation; destroy the older one first if there are two."""
        while len(self._generations) > 1:
            self._generations.pop().destroy()
        try:
            taken = [int(path.name) for path in _paths(self._folder)]
            folder = self._folder / f"{max(taken, default=0) + 1:08}"
            folder.mkdir(parents=True)
            self._generations.insert(0, _Generation(folder, create=True))
        except _ERRORS as error:
            # The next `_open` removes its remains as a damaged generation.
            self._stall(self._folder, error)

    def _open(self) -> None:
        """Open the two newest generations; remove an older one that a killed process left."""
        self._stalled = False
        try:
            paths = _paths(self._folder)
        except OSError as error:
            self._stall(self._folder, error)
            return
        for folder in reversed(paths):
            if len(self._generations) == 2:
                _remove(folder)
                continue
            try:
                self._generations.append(_Generation(folder))
            except _ERRORS as error:
                # Opening needs room: LevelDB writes the log that it finds as a table.
                if lacks_room(error):
                    self._stall(folder, error)
                    return
                self._count_failure(folder, error)
                _remove(folder)

    def _stall(self, folder: Path, error: Exception) -> None:
        self._count_failure(folder, error)
        self._close_own()
        self._stalled = True

    def _lose(self, generation: _Generation, error: Exception) -> None:
        self._count_failure(generation.folder, error)
        self._generations.remove(generation)
        generation.destroy()

    def _count_failure(self, folder: Path, error: Exception) -> None:
        self.failed_count += 1
        if self.failed_count == 1:
            self._warn(
                f"Payloads seen before may be archived whole again: {folder}: {error_text(error)}"
            )


def _paths(folder: Path) -> list[Path]:
    """Return the paths of the generations, oldest first. Raises OSError."""
    entries = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in entries if _NAME.fullmatch(path.name))


def _remove(folder: Path) -> None:
    # Remains do no harm; the next start tries to remove them again.
    shutil.rmtree(folder, ignore_errors=True)


_NOT_MODIFIED = 304


class Composed(Struct, eq=False):
    """The gzip members of a capture: ``first``, a response or revisit record, and ``request``.

    A certificate is a third one, behind ``request``. The record of a mapped response is in pieces,
    not compressed yet. ``payload`` is its labelled digest, ``raw`` that of the payload itself.
    ``new`` is the key to add to the payload index, or None. ``original`` is the record to which a
    revisit refers.
    """

    first: bytes | Iterator[bytes | memoryview]
    request: bytes
    revisit: bool
    payload: str
    raw: bytes
    new: bytes | None
    original: Original | None


class Composer:
    """Makes the records of captures, with digests of ``algorithm``, compressed by ``compress``.

    ``payloads`` is the index of the payloads already stored, and knows those of other crawls; with
    None every capture is stored whole. ``seed`` is a secret that goes into the keys of that index.
    """

    def __init__(
        self,
        algorithm: str,
        compress: Callable[[bytes], bytes],
        payloads: PayloadIndex | None,
        seed: int,
    ):
        self._algorithm = algorithm
        self._compress = compress
        self._payloads = payloads
        self._others = None if payloads is None else payloads.others
        self._seed = seed
        self._ids = RecordIds()

    def compose(self, capture: Capture, maker: RecordMaker) -> Composed:
        """Return the compressed records of a capture. Raises ValueError if it cannot be one."""
        raw = raw_digest(capture.payload, self._algorithm)
        payload = label(raw, self._algorithm)
        key = original = None
        unchanged = False
        if self._payloads is not None:
            unchanged = capture.status == _NOT_MODIFIED and _is_conditional(capture)
            # No key for a truncated payload, which no other equals, nor for an empty one. None for
            # the answer to a POST: a revisit names only the URL, which does not find it in replay.
            if (
                capture.payload
                and not capture.truncated
                and (capture.protocol or is_plain_request(capture.request_bytes))
            ):
                key = self._key(capture, raw)
                original = self._payloads.find(key) or self._in_other_crawl(capture, raw)
        first: bytes | Iterator[bytes | memoryview]
        if original is not None:
            # pywb finds the original by the text of its digest.
            payload = original.digest or payload
            first = self._compress(maker.revisit(capture, payload, original))
        elif unchanged:
            original = capture.original or self._unmodified(capture)
            if original is not None:
                payload = original.digest or payload
            first = self._compress(maker.not_modified(capture, original))
        elif isinstance(capture.response_bytes, memoryview):
            first = maker.response_pieces(capture, payload)
        else:
            first = self._compress(maker.response(capture, payload))
        revisit = unchanged or original is not None
        request = self._compress(maker.request(capture, self._ids.new()))
        if capture.certificate:
            request += self._compress(maker.certificate(capture, self._ids.new()))
        new = None if revisit else key
        return Composed(first, request, revisit, payload, raw, new, original)

    def _key(self, capture: Capture, raw: bytes) -> bytes:
        """Return the key of a payload in the index.

        The key adds a hash with a secret seed, because payloads with equal SHA-1 can be made on
        purpose. A chunked payload and a plain one have different keys. Readers put the head of a
        revisit before the original's body as stored, so both must have the same transfer coding.
        SHA-256 was spelt otherwise once: pywb finds no original whose digest is spelt otherwise.
        A payload of Gemini has another key too: a reader that knows HTTP alone cannot follow it.
        """
        kind = b"h" * (len(raw) == 32) + b"c" * _in_chunks(capture) + b"g" * bool(capture.protocol)
        return raw + xxhash.xxh3_64_digest(capture.payload, self._seed) + kind

    def _in_other_crawl(self, capture: Capture, raw: bytes) -> Original | None:
        if self._others is None or capture.protocol:
            return None
        return self._others.find(raw, capture.url, capture.started, chunked=_in_chunks(capture))

    def _unmodified(self, capture: Capture) -> Original | None:
        """Return the response that the conditions of a request named; None if it is not known."""
        if self._others is None:
            return None
        tags = header(capture.request_bytes, "If-None-Match")
        # Of several tags, the answer says which one holds.
        head = bytes(capture.response_bytes[: capture.head])
        validator = header(head, "ETag") if "," in tags else tags
        validator = validator or header(capture.request_bytes, "If-Modified-Since")
        if not validator:
            return None
        return self._others.find_unchanged(capture.url, validator, capture.started)

    def written(self, capture: Capture, composed: Composed) -> None:
        """Add a capture whose records were written to the payload index."""
        if capture.receipt is not None:
            _fill(capture.receipt, capture, composed)
        if self._payloads is not None and composed.new is not None:
            original = Original(capture.url, warc_date(capture.started))
            self._payloads.add(composed.new, original)

    def synced(self) -> None:
        """Write the payload index, after all written records have become durable."""
        if self._payloads is not None:
            self._payloads.sync()


def _fill(receipt: Receipt, capture: Capture, composed: Composed) -> None:
    original = composed.original
    receipt.payload = composed.raw
    if original is None:
        receipt.url, receipt.date = capture.url, capture.started
    else:
        receipt.url, receipt.date = original.url, epoch_of(original.date)


def _is_conditional(capture: Capture) -> bool:
    """Return whether a 304 is the answer to what was asked."""
    request = capture.request_bytes
    return not capture.says_nothing and bool(
        header(request, "If-None-Match") or header(request, "If-Modified-Since")
    )


def _in_chunks(capture: Capture) -> bool:
    return len(capture.response_bytes) != capture.head + len(capture.payload)

"""Put an object into the bucket, read its metadata, compare it with its file.

The client is obstore; it works outside the event loop.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from krowlspider.archive.upload.upload import PARTS_AT_ONCE, REQUEST, etag_of, md5, part_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from obstore.store import S3Config

    from krowlspider.archive.upload.upload import Destination

_CONNECT = timedelta(seconds=10)
# The client retries a short failure itself; the caller waits through an outage.
_TRIES = 2
_TRY_TIME = timedelta(seconds=10)
# S3's name of the error, in the XML of its answer.
_CODE = re.compile(r"<Code>(\w+)</Code>")
# Characters of the client's message that are kept.
_WORDS = 300


class BucketError(Exception):
    """A request to the store failed; a later one may succeed. The message is one line."""


class Stored(NamedTuple):
    """An object in the bucket: its size in bytes, and its ETag without the quotes."""

    size: int
    etag: str


class Bucket:
    """The objects under a destination, by the names of their files.

    The client takes credentials and region from its environment variables (AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION ...) or from the machine's role. It signs
    the SHA-256 of every body, so a store can refuse one that was changed in transit.
    """

    def __init__(self, destination: Destination) -> None:
        config: S3Config = {}
        if destination.endpoint is not None:
            config["endpoint"] = destination.endpoint
        self._store = S3Store(
            destination.bucket,
            prefix=destination.prefix or None,
            config=config,
            client_options={
                "allow_http": (destination.endpoint or "").startswith("http://"),
                "connect_timeout": _CONNECT,
                "timeout": timedelta(seconds=REQUEST),
            },
            retry_config={"max_retries": _TRIES, "retry_timeout": _TRY_TIME},
        )

    async def check(self) -> None:
        """List the bucket once.

        :raises BucketError: it does not exist, cannot be reached, or may not be listed
        """
        with _told():
            async for _ in obstore.list(self._store, chunk_size=1):
                break

    async def head(self, name: str) -> Stored | None:
        """Return size and ETag of a file's object, None if there is none. Raises BucketError."""
        try:
            with _told():
                meta = await obstore.head_async(self._store, name)
        except FileNotFoundError:
            return None
        return Stored(meta["size"], (meta["e_tag"] or "").strip('"'))

    async def put(self, path: Path, size: int, moved: Callable[[], None]) -> str:
        """Upload a file and return the ETag computed from the bytes read from the disk.

        A large file is sent in parts, of which at most four are in memory. ``moved`` is called, in
        any thread, when the store has taken a part. For the last two parts it is called once, when
        the store has the whole object.

        :raises BucketError: the store failed
        :raises OSError: the file cannot be read
        """
        part = part_size(size)
        with path.open("rb") as stream:
            if size <= part:
                data = await asyncio.to_thread(stream.read)
                await self._put(path.name, data, use_multipart=False)
                moved()
                return etag_of([md5(data)], whole=True)
            parts = _Parts(_pieces(stream, part), moved)
            how = {"chunk_size": part, "max_concurrency": PARTS_AT_ONCE}
            await self._put(path.name, parts, use_multipart=True, **how)
            moved()
            return etag_of(parts.digests, whole=False)

    async def _put(self, name: str, data: bytes | _Parts, **how: Any) -> None:
        try:
            with _told():
                await obstore.put_async(self._store, name, data, **how)
        except FileNotFoundError as error:
            # While an object is written, only the bucket can be missing.
            raise BucketError(_words(error)) from error

    async def equals(self, path: Path, size: int, moved: Callable[[], None]) -> bool:
        """Read the object back and return whether its bytes equal those of the file.

        Both must have ``size`` bytes. ``moved`` is called after each equal part.

        :raises BucketError: the store failed
        :raises OSError: the file cannot be read
        """
        part = part_size(size)
        with path.open("rb") as stream:
            for start in range(0, size, part):
                here = await asyncio.to_thread(stream.read, part)
                with _told():
                    there = await obstore.get_range_async(
                        self._store, path.name, start=start, length=len(here)
                    )
                if memoryview(there) != memoryview(here):
                    return False
                moved()
        return True


def local_etag(path: Path, size: int) -> str:
    """Return the ETag that a file's object should have. Blocks while it reads the whole file.

    Raises OSError.
    """
    part = part_size(size)
    with path.open("rb") as stream:
        digests = [md5(piece) for piece in _pieces(stream, part)]
    return etag_of(digests or [md5(b"")], whole=size <= part)


class _Parts:
    """The parts of a file, which the client requests in its own thread, and their MD5s."""

    def __init__(self, pieces: Iterator[bytes], moved: Callable[[], None]) -> None:
        self._pieces = pieces
        self._moved = moved
        self.digests: list[bytes] = []

    def __iter__(self) -> _Parts:
        return self

    def __next__(self) -> bytes:
        # The previous part could only start when an earlier one had arrived: all places were taken.
        if len(self.digests) > PARTS_AT_ONCE:
            self._moved()
        piece = next(self._pieces)
        self.digests.append(md5(piece))
        return piece


def _pieces(stream: BinaryIO, size: int) -> Iterator[bytes]:
    return iter(partial(stream.read, size), b"")


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BaseError as error:
        raise BucketError(_words(error)) from error


def _words(error: Exception) -> str:
    """Return the first line of the client's error, and S3's name of the error if it holds one.

    The whole text of such an error may be pages long.
    """
    text = str(error)
    line = text.partition("\n")[0].partition("<?xml")[0].rstrip(": ")
    code = _CODE.search(text)
    return line[:_WORDS] + (f" ({code[1]})" if code else "")

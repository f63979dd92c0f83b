"""The bucket: one object put, looked at, or compared with its file. By obstore, whose work is off the event loop."""

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

from krowlspider.archive.upload import PARTS_AT_ONCE, REQUEST, etag_of, md5, part_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from obstore.store import S3Config

    from krowlspider.archive.upload import Destination

_CONNECT = timedelta(seconds=10)
# A slip is mended at once, an outage by whoever waits longer.
_TRIES = 2
_TRY_TIME = timedelta(seconds=10)
# S3's own name for what is wrong, in the XML of its answer.
_CODE = re.compile(r"<Code>(\w+)</Code>")
# Characters of a message that are told.
_WORDS = 300


class BucketError(Exception):
    """The store did not do what it was asked; it may later. The message is one line."""


class Stored(NamedTuple):
    """An object: bytes, and the ETag without its quotes."""

    size: int
    etag: str


class Bucket:
    """Objects under a destination, by the names of their files.

    Credentials and region come from the client's environment variables (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN, AWS_REGION ...) or the machine's role. The client signs the SHA-256 of all that it sends, so that
    a store can refuse what has changed on the way.
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
        """Ask whether the bucket is there, and may be listed. Raises BucketError."""
        with _told():
            async for _ in obstore.list(self._store, chunk_size=1):
                break

    async def head(self, name: str) -> Stored | None:
        """The object of a file, None when there is none. Raises BucketError."""
        try:
            with _told():
                meta = await obstore.head_async(self._store, name)
        except FileNotFoundError:
            return None
        return Stored(meta["size"], (meta["e_tag"] or "").strip('"'))

    async def put(self, path: Path, size: int, moved: Callable[[], None]) -> str:
        """Upload a file, in parts if it is large; no more than four parts are in memory.

        ``moved`` is called, in any thread, when the store has taken a part, but of the last two only when it has the
        whole. Returns the ETag of what was read from the disk. Raises BucketError; OSError when the file cannot be
        read.
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
            # An object that is written can miss nothing but its bucket.
            raise BucketError(_words(error)) from error

    async def equals(self, path: Path, size: int, moved: Callable[[], None]) -> bool:
        """Whether the object, read back, has the bytes that the file has. Raises BucketError or OSError.

        Both must have ``size`` bytes. ``moved`` is called for each part.
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
    """The ETag that the object of a file should have. Blocks, for some 2 s a gigabyte. Raises OSError."""
    part = part_size(size)
    with path.open("rb") as stream:
        digests = [md5(piece) for piece in _pieces(stream, part)]
    return etag_of(digests or [md5(b"")], whole=size <= part)


class _Parts:
    """The parts of a file as the client asks for them, in a thread of its own, and their MD5s."""

    def __init__(self, pieces: Iterator[bytes], moved: Callable[[], None]) -> None:
        self._pieces = pieces
        self._moved = moved
        self.digests: list[bytes] = []

    def __iter__(self) -> _Parts:
        return self

    def __next__(self) -> bytes:
        # The one before this was begun in the place of one that had arrived, once all places were taken.
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
    """The first line of what the client says, which goes on for pages, and the store's own word for it."""
    text = str(error)
    line = text.partition("\n")[0].partition("<?xml")[0].rstrip(": ")
    code = _CODE.search(text)
    return line[:_WORDS] + (f" ({code[1]})" if code else "")

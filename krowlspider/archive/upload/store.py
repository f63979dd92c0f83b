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

from krowlspider.archive.upload.plan import PARTS_AT_ONCE, REQUEST, etag_of, md5, part_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from obstore.store import S3Config

    from krowlspider.archive.upload.plan import Destination

_CONNECT = timedelta(seconds=10)
# The client retries a short failure itself; the caller waits through an outage.
_TRIES = 2
_TRY_TIME = timedelta(seconds=10)
# S3's name of the error, in the XML of its answer.
_CODE = re.compile(r"<Code>(\w+)</Code>")
# Characters of the client's message that are kept.
_MESSAGE_MAX = 300


class BucketError(Exception):
    """A request to the store failed; a later one may succeed. The message is one line."""


class Stored(NamedTuple):
    """An object in the bucket: its size in bytes, and its ETag without the quotes."""

    size: int
    etag: str


class Bucket:
    """The objects under a destination, by the names of their files.

    The client takes credentials and region from the environment (AWS_ACCESS_KEY_ID ...) or from the
    machine's role. It signs the SHA-256 of every body, so a store can refuse a changed one.
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
        with _bucket_errors():
            async for _ in obstore.list(self._store, chunk_size=1):
                break

    async def head(self, name: str) -> Stored | None:
        """Return size and ETag of a file's object, None if there is none. Raises BucketError."""
        try:
            with _bucket_errors():
                meta = await obstore.head_async(self._store, name)
        except FileNotFoundError:
            return None
        return Stored(meta["size"], (meta["e_tag"] or "").strip('"'))

    async def put(self, path: Path, size: int, on_part: Callable[[], None]) -> str:
        """Upload a file and return the ETag computed from the bytes read from the disk.

        A large file is sent in parts, of which at most four are in memory. ``on_part`` is called,
        in any thread, when the store has taken a part, for the last two parts once. Raises
        BucketError and OSError.
        """
        part = part_size(size)
        digests: list[bytes] = []
        with path.open("rb") as stream:
            data: bytes | Iterator[bytes]
            if size > part:
                data = _parts(stream, part, digests, on_part)
            else:
                data = whole = await asyncio.to_thread(stream.read)
                digests.append(md5(whole))
            try:
                with _bucket_errors():
                    await obstore.put_async(
                        self._store,
                        path.name,
                        data,
                        use_multipart=size > part,
                        chunk_size=part,
                        max_concurrency=PARTS_AT_ONCE,
                    )
            except FileNotFoundError as error:
                # While an object is written, only the bucket can be missing.
                raise BucketError(_message(error)) from error
        on_part()
        return etag_of(digests, whole=size <= part)

    async def equals(self, path: Path, size: int, on_part: Callable[[], None]) -> bool:
        """Read the object back; return whether it equals the file, which has as many bytes.

        ``on_part`` is called after each equal part. Raises BucketError and OSError.
        """
        part = part_size(size)
        with path.open("rb") as stream:
            for start in range(0, size, part):
                here = await asyncio.to_thread(stream.read, part)
                with _bucket_errors():
                    there = await obstore.get_range_async(
                        self._store, path.name, start=start, length=len(here)
                    )
                if memoryview(there) != memoryview(here):
                    return False
                on_part()
        return True


def local_etag(path: Path, size: int) -> str:
    """Return the ETag that a file's object should have. Blocks. Raises OSError."""
    part = part_size(size)
    with path.open("rb") as stream:
        digests = [md5(piece) for piece in _pieces(stream, part)]
    return etag_of(digests or [md5(b"")], whole=size <= part)


def _parts(
    stream: BinaryIO, size: int, digests: list[bytes], on_part: Callable[[], None]
) -> Iterator[bytes]:
    """Yield the parts of a file to the client, which runs this in its own thread."""
    for piece in _pieces(stream, size):
        # The previous part could only start when an earlier one had arrived: all places were taken.
        if len(digests) > PARTS_AT_ONCE:
            on_part()
        digests.append(md5(piece))
        yield piece


def _pieces(stream: BinaryIO, size: int) -> Iterator[bytes]:
    return iter(partial(stream.read, size), b"")


@contextmanager
def _bucket_errors() -> Iterator[None]:
    try:
        yield
    except BaseError as error:
        raise BucketError(_message(error)) from error


def _message(error: Exception) -> str:
    """Return the first line of the client's error, which may have pages, and S3's name of it."""
    text = str(error)
    line = text.partition("\n")[0].partition("<?xml")[0].rstrip(": ")
    code = _CODE.search(text)
    return line[:_MESSAGE_MAX] + (f" ({code[1]})" if code else "")

"""Results of a crawl as a stream: a client gets what the archive has, as fast as it reads.

Nothing waits in memory for a slow client. It is behind then, and each message says how far.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from krowlspider.errors import KrowlError, counted
from krowlspider.rpc.generated import krowl_pb2 as pb
from krowlspider.rpc.results import ArchiveReader, HostFilter
from krowlspider.rpc.sending import send

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping
    from pathlib import Path

    from krowlspider.rpc.results import FoundCapture

# Names of hosts in a request.
_HOSTS_MAX = 1000
# Seconds between two looks for new records, and between two messages without results.
_LOOK = 0.5
_QUIET = 10.0
# Seconds for which it is not measured again how far a stream is behind.
_FRESH = 1.0
# Streams that read the archive at a time: one record is in memory, and it may be large.
_reading = asyncio.Semaphore(1)


async def stream_results(
    folders: Mapping[str, Path], request: Any, context: Any, counts: Counter[str]
) -> None:
    """Send the captures that a request asks for until its client goes. ``counts`` is as in `send`.

    :raises KrowlError: it asks for something that is not there
    """
    if not folders:
        raise KrowlError("the crawl has no archive (KROWL_ARCHIVE=False): there are no results")
    if len(request.hosts) > _HOSTS_MAX:
        raise KrowlError(f"{counted(len(request.hosts), 'host')}: give {_HOSTS_MAX:,} or fewer")
    archive, hosts = ArchiveReader(folders), HostFilter(request.hosts)
    if request.resume_token:
        await asyncio.to_thread(archive.go_to, request.resume_token)
    elif not request.from_start:
        await asyncio.to_thread(archive.go_to_end)
    sent = told = float("-inf")
    while True:
        try:
            async with _reading:
                # The first message says only where it begins.
                found, is_on = await asyncio.to_thread(archive.step) if sent > 0 else ([], True)
                wanted = [each for each in found if hosts.has(each.line.url)]
                now = time.monotonic()
                is_quiet = now - sent >= _QUIET
                if (wanted or is_quiet) and now - told >= _FRESH:
                    behind, told = await asyncio.to_thread(archive.behind), now
        except OSError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the archive cannot be read: {error}")
        if wanted or is_quiet:
            message = pb.StreamResultsResponse(
                results=map(_result, wanted),
                resume_token=archive.token,
                missed_files=archive.missed_files,
                behind_bytes=behind,
            )
            await send(message, context, counts, "come back with the last resume_token")
            sent = time.monotonic()
        if not is_on:
            await asyncio.sleep(_LOOK)


def _result(found: FoundCapture) -> Any:
    line = found.line
    return pb.Result(
        url=line.url,
        timestamp=line.timestamp,
        status=int(line.status),
        mime_type=line.mime,
        digest=line.digest,
        warc_filename=line.filename,
        warc_offset=line.offset,
        warc_length=line.length,
        process=found.process,
    )

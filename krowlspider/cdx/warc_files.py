"""Serve WARC files by ranges of bytes, for waybacks without the folder (``archive_paths: http://``).

Only files of the archives are served: a name has no folder, and is that of a WARC file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from aiohttp import web

from krowlspider.archive.cdxj import WARC
from krowlspider.archive.disk import OPEN
from krowlspider.job.monitoring.endpoint import MORE_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from krowlspider.job.monitoring.endpoint import Route

_BELOW = "/warc/"
# Files that are sent at a time.
SENT_MAX = 64
# Bytes that are read and sent at a time.
_PIECE = 256 * 1024


class WithFiles(Mapping[str, "Route"]):
    """The ``routes``, and one for each WARC file that is in ``folders`` now, below ``/warc/``.

    An open file is found by its name with OPEN, and so it is once it is finished.
    """

    def __init__(self, routes: Mapping[str, Route], folders: Sequence[Path], origin: str):
        self._routes = routes
        self._folders = folders
        self._headers = {"Access-Control-Allow-Origin": origin} if origin else {}
        self._sent = 0

    def __getitem__(self, path: str) -> Route:
        if (found := _file_of(self._folders, path)) is not None:
            return partial(self._send, found)
        return self._routes[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._routes)

    def __len__(self) -> int:
        return len(self._routes)

    async def _send(self, path: Path, request: web.BaseRequest) -> web.StreamResponse:
        if self._sent >= SENT_MAX:
            return web.Response(status=503, text=f"{SENT_MAX} files are being sent: ask again\n")
        self._sent += 1
        try:
            return await _send(path, self._headers, request)
        finally:
            self._sent -= 1


def _file_of(folders: Sequence[Path], path: str) -> Path | None:
    name = path.removeprefix(_BELOW)
    final = name.removesuffix(OPEN)
    if name == path or "/" in name or "\0" in name or not final.endswith(WARC):
        return None
    files = (folder / each for folder in folders for each in (name, final))
    return next((each for each in files if each.is_file()), None)


async def _send(
    path: Path, headers: Mapping[str, str], request: web.BaseRequest
) -> web.StreamResponse:
    """Send a file, or the range of it that is asked for (RFC 9110, section 14)."""
    try:
        file = await asyncio.to_thread(path.open, "rb")
    except FileNotFoundError:
        return web.Response(status=404, text=f"{path.name} has been moved away\n")
    with file:
        size = await asyncio.to_thread(file.seek, 0, 2)
        try:
            begin, end, _ = request.http_range.indices(size)
        except ValueError:
            begin = end = 0
        if "Range" in request.headers and begin >= end:
            refusal = {"Content-Range": f"bytes */{size}", **headers}
            return web.Response(status=416, headers=refusal)
        sent = web.StreamResponse(status=206 if "Range" in request.headers else 200)
        sent.headers.update(headers)
        sent.headers.update({"Content-Type": "application/warc", "Accept-Ranges": "bytes"})
        if sent.status == 206:
            sent.headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        sent.content_length = end - begin
        sent.force_close()
        await sent.prepare(request)
        if request.method != "HEAD":
            await _copy(file, begin, end, sent, request[MORE_TIME])
        await sent.write_eof()
    return sent


async def _copy(
    file: BinaryIO,
    begin: int,
    end: int,
    sent: web.StreamResponse,
    give_time: Callable[[], None],
) -> None:
    file.seek(begin)
    while begin < end:
        piece = await asyncio.to_thread(file.read, min(_PIECE, end - begin))
        if not piece:
            # It was cut back meanwhile: fewer bytes than said end the connection.
            break
        await sent.write(piece)
        give_time()
        begin += len(piece)

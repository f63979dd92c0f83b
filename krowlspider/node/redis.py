"""The private Redis of the processes: snapshots in JOBDIR, and a Unix socket."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from krowlspider.cluster.transport.redis_connection import redis_client
from krowlspider.crawl.folder import REGISTER, SOCKETS
from krowlspider.errors import KrowlError
from krowlspider.node.tree import PROCESSES_MAX, number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Its forks have the same protocol and options.
_NAMES = ("redis-server", "valkey-server")
# Servers are in /usr/sbin, which some users do not have on PATH.
_SERVERS = "/usr/sbin"
# Where the tests unpack Debian's package.
_PACKAGED = (
    Path(__file__).resolve().parents[2] / ".cache" / "debian" / "redis-server" / "redis-server"
)
# Bytes of the folder of a socket: the path of a socket may have no more than 107.
_FOLDER_MAX = 97
# Its log, in its folder.
LOG = "log"
# Seconds to read its file at the start, and between two looks.
_PATIENCE = 300.0
_LOOK = 0.05


def find_redis(packaged: Path = _PACKAGED, servers: str = _SERVERS) -> Path:
    """Return the program.

    :raises KrowlError: there is none
    """
    path = f"{os.environ.get('PATH', os.defpath)}:{servers}"
    for name in _NAMES:
        if found := shutil.which(name, path=path):
            return Path(found)
    if packaged.exists():
        return packaged
    raise KrowlError(
        "there is no redis-server on PATH, by which the processes send URLs to each other: install"
        " it (Debian and Ubuntu: apt install redis-server), or crawl with one process by scrapy"
        " crawl"
    )


class PrivateRedis:
    """The server of one start, with its socket in a new folder that only its user can enter. The
    socket of the ``register`` is there too."""

    def __init__(self, program: Path, folder: Path):
        self._program = program
        self._folder = folder
        self._sockets = Path(tempfile.mkdtemp(prefix="krowl-"))
        if len(os.fsencode(self._sockets)) > _FOLDER_MAX:
            self._sockets.rmdir()
            self._sockets = Path(tempfile.mkdtemp(prefix="krowl-", dir="/tmp"))
        self._socket = self._sockets / "redis"
        self.register = self._sockets / REGISTER
        # The next start removes the folder if this one is killed.
        link = folder / SOCKETS.name
        if link.is_symlink():
            shutil.rmtree(link.readlink(), ignore_errors=True)
            link.unlink()
        link.symlink_to(self._sockets)

    def command(self) -> Sequence[str]:
        return [
            *(str(self._program), "--port", "0", "--unixsocket", str(self._socket)),
            *("--unixsocketperm", "700", "--dir", str(self._folder.resolve())),
            # A URL that it loses is sent again. A snapshot, each minute and at the end, keeps those
            # that a person has pushed.
            *("--appendonly", "no", "--save", "60 1"),
            *("--databases", str(PROCESSES_MAX)),
            *("--maxmemory-policy", "noeviction", "--loglevel", "warning"),
        ]

    def url_of(self, process: str) -> str:
        """Return the URL of the database of a process."""
        return f"unix://{self._socket}?db={number_of(process) - 1}"

    async def wait(self, is_over: Callable[[], bool]) -> None:
        """Wait until the server answers, or ``is_over`` returns true.

        :raises KrowlError: it does not answer in time, or it is over
        """
        client = redis_client(self.url_of("p1"))
        end = time.monotonic() + _PATIENCE
        async with client:
            while True:
                try:
                    await client.ping()
                except (RedisError, OSError) as error:
                    if is_over() or time.monotonic() >= end:
                        raise KrowlError(
                            f"the private Redis does not answer ({error}):"
                            f" {self._folder / LOG} has the reason"
                        ) from error
                    await asyncio.sleep(_LOOK)
                else:
                    return

    def remove_sockets(self) -> None:
        shutil.rmtree(self._sockets, ignore_errors=True)

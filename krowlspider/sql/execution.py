"""Run a query with limits: of its time, its memory, and the batches that wait to be written. Its
temporary folder goes with it; a later query removes that of a killed one."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from krowlspider.errors import KrowlError, data_size, duration, need
from krowlspider.sql.statement import error_line
from krowlspider.sql.tables import identifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Rows of a batch, and batches that wait to be written.
_BATCH = 2048
_WAITING = 4
# Seconds between two looks at time and memory.
_LOOK = 0.05
# Seconds that a query has to end once it is interrupted. DuckDB does not look up within one call of
# a function, as of repeat('x', 2000000000).
_GRACE = 2.0
# Bytes that the process may take besides what DuckDB counts.
_BESIDES = 300_000_000
_NO_MEMORY = "Out of Memory Error"
# What DuckDB says of a column that is not there.
_NO_COLUMN = re.compile(
    r"(?i)\bcolumns?\b.*(not found|does not exist|found that match)|does not have a column"
)
_STATM = Path("/proc/self/statm")
_PAGE = 4096
_PREFIX = "krowlspider-sql-"
# Seconds in which a process locks the folder that it has made.
_NEW = 60.0


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Most seconds of computing, without those in which the reader of the output makes it wait; and
    most bytes of memory."""

    seconds: float
    memory: int


def resident() -> int:
    """Return how many bytes of this process are in memory; 0 where that is not known."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE
    except OSError:
        return 0


class Run:
    """A query in a thread of its own, so that the thread that waits for it can end it."""

    def __init__(
        self,
        connection: Any,
        text: str,
        limits: QueryLimits,
        tables: Iterable[str] = (),
        used: float = 0.0,
        *,
        views: Iterable[tuple[str, str]] = (),
    ):
        """``tables`` are those of the query, ``views`` pairs of name and query that it needs, and
        ``used`` seconds of the limit that are over."""
        self._connection = connection
        self._text = text
        self._limits = limits
        self._tables = sorted(tables)
        self._views = views
        self._ready: Queue[Any] = Queue(_WAITING)
        self._stopping = Event()
        self._used = used
        self._most = resident() + limits.memory + _BESIDES
        # A daemon: the interpreter does not wait for one that is stuck.
        self._thread = Thread(target=self._work, name="query", daemon=True)

    def each(self, begin: Callable[[Any], None], take: Callable[[Any], None]) -> None:
        """Call ``begin`` with the schema of the result, then ``take`` with each batch.

        :raises KrowlError: the query is wrong, or reaches a limit
        """
        self._thread.start()
        try:
            begin(self._next())
            while (batch := self._next()) is not None:
                take(batch)
        except BaseException:
            self._stop()
            raise
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Return whether it runs still: after `each`, only the end of the process ends it."""
        return self._thread.is_alive()

    def _next(self) -> Any:
        """Return what the thread has made next, once it is there."""
        begun = time.monotonic()
        while True:
            with suppress(Empty):
                found = self._ready.get(timeout=_LOOK)
                break
            self._used += time.monotonic() - begun
            begun = time.monotonic()
            self._check()
        self._used += time.monotonic() - begun
        if isinstance(found, Exception):
            raise self._error(found) from found
        return found

    def _error(self, error: Exception) -> KrowlError:
        """Return what a person is told of an error. Arrow hands on those of DuckDB as its own."""
        if _NO_MEMORY in str(error) or isinstance(error, MemoryError):
            return self._too_much()
        said = error_line(error, self._text)
        if _NO_COLUMN.search(said):
            said += "".join(map(self._columns, self._tables))
        return KrowlError(said)

    def _columns(self, table: str) -> str:
        """Return what columns a table has, as the end of a message."""
        found = self._connection.execute(f"DESCRIBE {identifier(table)}").fetchall()
        return f"; {table} has {', '.join(row[0] for row in found)}"

    def _too_much(self) -> KrowlError:
        return KrowlError(
            f"the query was ended as it needs more than {data_size(self._limits.memory)} of memory:"
            " ask for less, or give more with --memory"
        )

    def _check(self) -> None:
        limits = self._limits
        if self._used > limits.seconds:
            raise KrowlError(
                f"the query was ended after {duration(limits.seconds)}: ask for less, or give more"
                " time with --timeout"
            )
        if resident() > self._most:
            raise self._too_much()

    def _work(self) -> None:
        try:
            for name, query in self._views:
                # To bind a view may take as long as a query.
                self._connection.execute(f"CREATE TEMP VIEW {identifier(name)} AS {query}")
            reader = self._relation().to_arrow_reader(_BATCH)
            self._put(reader.schema)
            for batch in reader:
                self._put(batch)
                if self._stopping.is_set():
                    return
            self._put(None)
        except Exception as error:  # noqa: BLE001 - the other thread raises it
            self._put(error)

    def _relation(self) -> Any:
        """Return the result, whose rows are made as they are read."""
        duckdb = need("duckdb", "sql")
        try:
            return self._connection.sql(self._text)
        except (duckdb.BinderException, duckdb.CatalogException):
            # This way has the place in its message, and holds a whole result.
            self._connection.execute(self._text)
            raise

    def _put(self, made: Any) -> None:
        while not self._stopping.is_set():
            with suppress(Full):
                self._ready.put(made, timeout=_LOOK)
                return

    def _stop(self) -> None:
        """End the query, if it can be ended."""
        self._stopping.set()
        end = time.monotonic() + _GRACE
        while self._thread.is_alive() and time.monotonic() < end:
            # One that comes before the query has begun is lost.
            self._connection.interrupt()
            self._thread.join(_LOOK)
            if resident() > self._most + self._limits.memory:
                break


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a new folder, which is locked, and removed at the end. Raises OSError."""
    remove_left()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as made:
        lock = os.open(made, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(made)
        finally:
            os.close(lock)


def remove_left(wall: Callable[[], float] = time.time) -> None:
    """Remove the folders of this user whose process is gone. What cannot be removed stays. ``wall``
    returns epoch seconds."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            _remove_if_left(path, wall())


def _remove_if_left(path: Path, now: float) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(folder)
        is_private = found.st_uid == os.getuid() and not found.st_mode & (
            stat.S_IRWXG | stat.S_IRWXO
        )
        if not is_private or now - found.st_ctime < _NEW:
            return
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    finally:
        os.close(folder)

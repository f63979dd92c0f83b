"""A connection to PostgreSQL that is made again when it is lost.

Every wait has a bound and is told of. No message has the password.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Any, TypeVar

from krowlspider.errors import KrowlError, need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import ModuleType

    from psycopg import Connection

_T = TypeVar("_T")

# Seconds: for a connection; for a lock; for an answer; between two tries, doubled up to the most.
CONNECT_MAX, LOCK_MAX, ANSWER_MAX = 10, 60, 600
WAIT_FIRST, WAIT_MAX = 1.0, 30.0
# Classes of SQLSTATE: a login that is refused, and a database that is not there.
_REFUSED = ("28", "3D")
# What libpq says of them, and of others that no waiting mends, where it has no SQLSTATE.
_HOPELESS = ("password authentication failed", "no password supplied", "does not exist")
_FORM = "postgresql://USER@HOST:PORT/DATABASE"
_NETWORK = {
    "connect_timeout": CONNECT_MAX,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    # Milliseconds.
    "tcp_user_timeout": 60_000,
    "application_name": "krowlspider",
    "client_encoding": "utf8",
}


class Database:
    """A database, by its URL. ``place`` names it, without user and password. ``say`` takes a line
    about each wait.

    :raises KrowlError: psycopg is not installed, the URL is none, or there is no such database
    """

    def __init__(
        self,
        url: str,
        say: Callable[[str], None],
        *,
        sleep: Callable[[float], None] = time.sleep,
        answer_max: float = ANSWER_MAX,
    ) -> None:
        self._psycopg = need("psycopg", "postgresql")
        self._say = say
        self._sleep = sleep
        self._answer_max = answer_max
        self._options = _options_of(url, self._psycopg)
        self.place = _place(self._options)
        self._connection: Connection | None = None
        try:
            self._connect()
        except self._psycopg.Error as error:
            raise self._refusal(error) from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def persist(self, act: Callable[[], _T]) -> _T:
        """Return what ``act`` returns: it is done again whenever its connection is lost.

        :raises KrowlError: it fails for a reason that no waiting mends
        """
        wait = WAIT_FIRST
        while True:
            try:
                if self._connection is None or self._connection.closed:
                    self._connect()
                return act()
            except self._psycopg.Error as error:
                if not self._may_pass(error):
                    raise self._refusal(error) from error
                self.close()
                why = f"{self.place} failed ({_reason(error)})"
                self._say(f"{why}: trying again in {wait:g} s; Ctrl-C ends it")
            self._sleep(wait)
            wait = min(2 * wait, WAIT_MAX)

    @contextmanager
    def transaction(self, schema: str) -> Iterator[None]:
        """Make a transaction in which names without a schema are those of ``schema``.

        The settings end with it, so that a pool of connections gets its own back.
        """
        self.ask("BEGIN")
        try:
            self.ask(f"SET LOCAL search_path = {schema}, pg_temp")
            self.ask(f"SET LOCAL statement_timeout = {int(1000 * self._answer_max)}")
            self.ask(f"SET LOCAL lock_timeout = {1000 * LOCK_MAX}")
            yield
            self.ask("COMMIT")
        except BaseException:
            # The transaction is gone with the connection.
            self.close()
            raise

    def ask(self, query: str, values: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        """Return the rows that a statement yields."""
        with self._in_time() as connection:
            cursor = connection.execute(query.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def table(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the names of the columns that a statement yields, and its rows."""
        with self._in_time() as connection:
            cursor = connection.execute(query.encode())
            return [each.name for each in cursor.description or ()], cursor.fetchall()

    def copy(self, statement: str, blocks: Iterable[bytes]) -> None:
        """Send blocks of text by a COPY."""
        with self._in_time() as connection, connection.cursor().copy(statement.encode()) as copy:
            for block in blocks:
                copy.write(block)

    def _connect(self) -> None:
        self._connection = self._psycopg.connect(**self._options, autocommit=True)
        # A pool of connections may give each transaction another one.
        self._connection.prepare_threshold = None

    @contextmanager
    def _in_time(self) -> Iterator[Connection]:
        """Lose the connection if the block takes too long."""
        assert self._connection is not None
        if self._connection.closed:
            raise self._psycopg.OperationalError("the connection is closed")
        line = socket.socket(fileno=os.dup(self._connection.fileno()))
        timer = Timer(self._answer_max, line.shutdown, [socket.SHUT_RDWR])
        timer.daemon = True
        timer.start()
        try:
            yield self._connection
        finally:
            timer.cancel()
            timer.join()
            line.close()

    def _may_pass(self, error: Exception) -> bool:
        """Return whether waiting may mend an error."""
        if not isinstance(error, (self._psycopg.OperationalError, self._psycopg.InterfaceError)):
            return False
        state = getattr(error, "sqlstate", None)
        if state is not None:
            return not state.startswith(_REFUSED)
        return not any(each in str(error) for each in _HOPELESS)

    def _refusal(self, error: Exception) -> KrowlError:
        reason = _reason(error)
        if isinstance(error, self._psycopg.errors.InsufficientPrivilege):
            reason += ": grant it to the user, or give another one"
        return KrowlError(f"{self.place} cannot be used: {reason}")


def _options_of(url: str, psycopg: ModuleType) -> dict[str, Any]:
    """:raises KrowlError: the URL is none; what it is stays unsaid, for it may be the password"""
    # libpq would take a password with a slash for a host and a port.
    place = url.partition("://")[2].partition("?")[0]
    hidden = "@" in place.partition("/")[2] or "@" in url.partition("?")[2] or "#" in url
    try:
        options = {} if hidden else psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        options = {}
    if not options:
        raise KrowlError(
            f"not a URL of PostgreSQL: give {_FORM}; in a password, write / as %2F, @ as %40,"
            " % as %25, or leave it to PGPASSWORD or ~/.pgpass"
        )
    return {**_NETWORK, **options}


def _place(options: dict[str, Any]) -> str:
    host, port = options.get("host"), options.get("port")
    where = f" at {host or 'its default host'}{f':{port}' if port else ''}"
    return f"PostgreSQL{where}/{options.get('dbname', '')}"


def _reason(error: Exception) -> str:
    """Return what went wrong in one line: libpq's others are hints."""
    message: str | None = getattr(getattr(error, "diag", None), "message_primary", None)
    lines = (message or str(error)).splitlines()
    return lines[0] if lines else type(error).__name__

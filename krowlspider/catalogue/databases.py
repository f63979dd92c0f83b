"""The databases that a catalogue can be written into, by URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from krowlspider.catalogue.postgresql import PostgresqlSink
from krowlspider.catalogue.server import Database
from krowlspider.catalogue.sqlite import SqliteSink, read
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.catalogue.sinks import Sink

_FORMS = "postgresql://USER@HOST:PORT/DATABASE or sqlite:///PATH"


# The table from which policies are read.
POLICIES = "krowl.policy"


def sink_at(url: str, tables: frozenset[str], say: Callable[[str], None]) -> Sink:
    """Return the sink of these tables at a URL. ``say`` takes a line about each wait.

    :raises KrowlError: it is none, or the database cannot be used; no message has a password
    """
    if (path := _file(url)) is not None:
        return SqliteSink(path, tables)
    return PostgresqlSink(Database(url, say), tables, say)


def read_table(
    url: str, name: str, limit: int, say: Callable[[str], None]
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns of a table and its rows, ``limit`` at most. Nothing is written.

    ``name`` may begin with a schema, which a file of SQLite has not.

    :raises KrowlError: as of `sink_at`; or there is no such table
    """
    path = _file(url)
    parts = name.split(".")[-1:] if path is not None else name.split(".")
    quoted = ".".join('"{}"'.format(each.replace('"', '""')) for each in parts)
    query = f"SELECT * FROM {quoted} LIMIT {limit}"  # noqa: S608 - quoted
    if path is not None:
        return read(path, query)
    server = Database(url, say)
    try:
        return server.persist(lambda: server.table(query))
    finally:
        server.close()


def _file(url: str) -> Path | None:
    """Return the file of a URL of SQLite; None for one of PostgreSQL.

    :raises KrowlError: it is neither
    """
    scheme, separator, rest = url.partition("://")
    if scheme in {"postgresql", "postgres"} and separator:
        return None
    if scheme == "sqlite" and rest.startswith("/") and rest != "/":
        # As SQLAlchemy has it: a fourth slash begins an absolute path.
        return Path(rest[1:])
    if separator and scheme.isalnum():
        raise KrowlError(f"{scheme}://... is not a URL of PostgreSQL or SQLite: give {_FORMS}")
    raise KrowlError(f"not the URL of a database: give {_FORMS}")

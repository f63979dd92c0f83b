"""The databases that a catalogue can be written into, by URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.catalogue.postgresql import PostgresqlSink
from krowlspider.catalogue.server import Server
from krowlspider.catalogue.sqlite import SqliteSink
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.catalogue.sinks import Sink

_FORMS = "postgresql://USER@HOST:PORT/DATABASE or sqlite:///PATH"


def database(url: str, say: Callable[[str], None]) -> Sink:
    """Return the sink of a URL. ``say`` takes a line about each wait.

    :raises KrowlError: it is none, or the database cannot be used; no message has a password
    """
    scheme, separator, rest = url.partition("://")
    if scheme in {"postgresql", "postgres"}:
        return PostgresqlSink(Server(url, say), say)
    if scheme == "sqlite" and rest.startswith("/") and rest != "/":
        # As SQLAlchemy has it: a fourth slash begins an absolute path.
        return SqliteSink(Path(rest[1:]))
    if separator and scheme.isalnum():
        raise KrowlError(f"{scheme}:// is the URL of no database here: give {_FORMS}")
    raise KrowlError(f"not the URL of a database: give {_FORMS}")

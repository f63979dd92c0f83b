"""The numbered migrations of a catalogue's database, and which of them it lacks.

A file is never changed once it was released: what changes is a new one. PostgreSQL and SQLite take
the same statements.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The table that says which migrations a database has.
OWN = "migration"
OWN_COLUMNS = ("number", "name", "applied_at")
MAKE_OWN = (
    f"CREATE TABLE {OWN} (number bigint NOT NULL PRIMARY KEY, name text NOT NULL,"
    " applied_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP)"
)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_MADE = re.compile(r"^CREATE (?:TABLE|VIEW|INDEX) \"?(\w+)", re.MULTILINE)


class Migration(NamedTuple):
    """A file of statements; ``makes`` are the names of its tables, views and indexes."""

    number: int
    name: str
    statements: tuple[str, ...]
    makes: frozenset[str]


def _read() -> tuple[Migration, ...]:
    found = []
    for file in sorted(files(__name__).iterdir(), key=lambda each: each.name):
        if file.name.endswith(".sql"):
            text = _COMMENT.sub("", file.read_text("utf-8"))
            statements = tuple(each.strip() for each in text.split(";\n") if each.strip())
            name = file.name.removesuffix(".sql")
            found.append(Migration(int(name[:4]), name, statements, frozenset(_MADE.findall(text))))
    return tuple(found)


MIGRATIONS = _read()
# All that this version makes in a database.
NAMES = frozenset({OWN}).union(*(each.makes for each in MIGRATIONS))


def view(name: str) -> str:
    """Return the statement that makes a view."""
    made = (text for each in MIGRATIONS for text in each.statements)
    return next(text for text in made if text.startswith(f"CREATE VIEW {name} AS"))


def pending(
    place: str, there: Iterable[str], columns: Sequence[str], applied: Sequence[tuple[int, str]]
) -> tuple[Migration, ...]:
    """Return the migrations that a database lacks, in their order.

    ``there`` are those of `NAMES` that it has, ``columns`` the columns of its table `OWN`,
    ``applied`` number and name of each row of that. ``place`` is the database, for messages.

    :raises KrowlError: a table of another program has a name of ours; or the database is of another
        version
    """
    if OWN in there and tuple(columns) != OWN_COLUMNS:
        raise KrowlError(_foreign(place, OWN))
    newest = max((number for number, _ in applied), default=0)
    if newest > len(MIGRATIONS):
        raise KrowlError(
            f"{place} was made by a newer krowlspider: it has migration {newest}, and this version"
            f" knows {len(MIGRATIONS)}; update krowlspider, or give another database"
        )
    known = [(each.number, each.name) for each in MIGRATIONS[: len(applied)]]
    if sorted(applied) != known:
        raise KrowlError(
            f"{place} has migrations that are not of this krowlspider: give another database"
        )
    lacking = MIGRATIONS[len(applied) :]
    if taken := {name for each in lacking for name in each.makes}.intersection(there):
        raise KrowlError(_foreign(place, min(taken)))
    return lacking


def _foreign(place: str, name: str) -> str:
    return (
        f"{place} has a table {name} that scrapy catalogue has not made: rename it, or give another"
        " database"
    )

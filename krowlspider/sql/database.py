"""A database in memory whose tables are views over Parquet files, locked against all else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from krowlspider.catalogue.columns import TABLES
from krowlspider.catalogue.migrations import view
from krowlspider.errors import KrowlError, need
from krowlspider.sql.tables import (
    ALIASES,
    LIVE,
    MACROS,
    SUMS,
    columns_of,
    empty,
    identifier,
    literal,
    of_files,
    of_frontier,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

# Bytes that a query may write to the disk for each byte of its memory.
_SPILL = 4


def database(
    memory: int,
    scratch: Path,
    catalogue: Mapping[str, Sequence[Path]],
    frontier: Mapping[str, Path],
) -> Any:
    """Return a connection to a database of all tables.

    ``catalogue`` has the Parquet files of its tables, ``frontier`` those of `FrontierFiles`. A
    table without a file is empty. DuckDB takes ``memory`` bytes, and spills to ``scratch``.

    :raises KrowlError: a file cannot be read
    """
    duckdb = need("duckdb", "sql")
    spill = scratch / "spill"
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{memory}B",
            "max_temp_directory_size": f"{_SPILL * memory}B",
            "temp_directory": str(spill),
            "threads": str(len(os.sched_getaffinity(0))),
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "allow_persistent_secrets": "false",
            "python_enable_replacements": "false",
        },
    )
    try:
        for statement in _statements(catalogue, frontier):
            connection.execute(statement)
        readable = [path for paths in catalogue.values() for path in paths]
        _lock(connection, [*readable, *frontier.values()])
    except duckdb.Error as error:
        connection.close()
        said = str(error).partition("\n")[0].partition("Error: ")[2]
        raise KrowlError(f"the catalogue cannot be read: {said}") from error
    return connection


def _statements(
    catalogue: Mapping[str, Sequence[Path]], frontier: Mapping[str, Path]
) -> Iterable[str]:
    """Yield the statements that make the tables."""
    # An option of an extension that is there only now.
    yield "SET TimeZone = 'UTC'"
    # Athena writes a function as x -> x + 1.
    yield "SET lambda_syntax = 'ENABLE_SINGLE_ARROW'"
    yield from ("CREATE SCHEMA files", "CREATE SCHEMA frontier", "CREATE SCHEMA ccindex")
    yield from (f"CREATE MACRO {each}" for each in MACROS)
    for table in TABLES:
        if paths := catalogue.get(table):
            read = (
                f"SELECT * FROM read_parquet([{', '.join(literal(str(path)) for path in paths)}],"
                " hive_partitioning = true, hive_types_autocast = false, union_by_name = true)"
            )
            yield f"CREATE VIEW files.{identifier(table)} AS {read}"
            yield f"CREATE VIEW {identifier(table)} AS {of_files(table)}"
        else:
            yield f"CREATE VIEW {identifier(table)} AS {empty(columns_of(table))}"
    yield from map(view, SUMS)
    for alias, table in ALIASES.items():
        yield f"CREATE VIEW {identifier(alias)} AS SELECT * FROM {identifier(table)}"
    yield 'CREATE VIEW ccindex.ccindex AS SELECT * FROM main."fetch"'
    for part, path in frontier.items():
        read = f"SELECT * FROM read_parquet({literal(str(path))})"
        yield f"CREATE VIEW frontier.{identifier(part)} AS {read}"
    for table, columns in LIVE.items():
        made = of_frontier(table) if table in frontier else empty(columns)
        yield f"CREATE VIEW {identifier(table)} AS {made}"


def _lock(connection: Any, paths: Sequence[Path]) -> None:
    """Let the database read these files, and no others, whatever a query says."""
    allowed = ", ".join(literal(str(path)) for path in paths)
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")

"""The tables of `scrapy sql`: names and columns of those of the frontier, and views over all. Pure.

Those of the archive are the tables of the catalogue.
"""

from __future__ import annotations

from krowlspider.catalogue.columns import PARTITIONS, TABLES, Column
from krowlspider.sql.statement import Schemas

_HOST = (Column("crawl", "text"), Column("host", "text"), Column("domain", "text"))
_SEED = (Column("seed", "text"), Column("tag", "text"))

# The tables of the frontier. Times are of UTC, to the microsecond.
LIVE: dict[str, tuple[Column, ...]] = {
    # One row a URL that is queued, or was set aside as it killed the process.
    "queue": (
        *_HOST,
        Column("url", "text"),
        # "page", or the kind of another file: sitemap, requisite ...
        Column("kind", "text"),
        Column("priority", "integer"),
        Column("depth", "integer"),
        # How often it failed, was throttled, and killed the process.
        Column("retries", "integer"),
        Column("throttled", "integer"),
        Column("strikes", "integer"),
        # Whether it is set aside for its strikes, and whether it was fetched before.
        Column("set_aside", "boolean"),
        Column("again", "boolean"),
        # Not before; null for one that need not wait.
        Column("due", "timestamp"),
        Column("via", "text"),
        Column("hops", "text"),
        *_SEED,
    ),
    # One row a page that was fetched, as the frontier knows it.
    "page_now": (
        *_HOST,
        Column("url", "text"),
        Column("status", "integer"),
        Column("depth", "integer"),
        Column("first_fetch", "timestamp"),
        Column("last_fetch", "timestamp"),
        # Null before its first answer that is no passing error.
        Column("last_change", "timestamp"),
        # By the schedule; null without one, and for a page that is queued again.
        Column("next_fetch", "timestamp"),
        Column("fetches", "integer"),
        Column("not_modified", "integer"),
        Column("changes", "integer"),
        Column("changes_per_day", "double"),
        Column("etag", "text"),
        Column("last_modified", "text"),
        Column("payload_digest", "text"),
        Column("text_digest", "text"),
        # With the URL, or warc_url if it is another one, these name the record in the archive.
        Column("warc_date", "timestamp"),
        Column("warc_url", "text"),
        Column("price", "text"),
        # A sitemap or a feed that is fetched again by a schedule.
        Column("is_list", "boolean"),
        *_SEED,
    ),
    # One row a host.
    "host_now": (
        *_HOST,
        Column("state", "text"),
        Column("queued", "bigint"),
        Column("done", "bigint"),
        Column("dropped", "bigint"),
        # Seconds: between two requests, of an answer on average, and asked for by robots.txt.
        Column("delay", "double"),
        Column("latency", "double"),
        Column("crawl_delay", "double"),
        # In a row.
        Column("errors", "integer"),
        Column("throttled", "integer"),
        # Null for a host that a pause or a block covers.
        Column("due", "timestamp"),
    ),
}
# The parts of a frontier that each table is made of, see `RANGES`.
PARTS = {
    "queue": ("queue", "poison", "seeds", "words"),
    "page_now": ("pages", "seeds", "words"),
    "host_now": ("hosts",),
}
# What else names a table: FETCH is a word of SQL.
ALIASES = {"capture": "fetch", "ccindex": "fetch"}


_TYPES = {
    "text": "VARCHAR",
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMP",
}
# Functions of Athena that Common Crawl's examples use and DuckDB has by other names.
MACROS = (
    "regexp_like(text, pattern) AS regexp_matches(text, pattern)",
    "levenshtein_distance(one, other) AS levenshtein(one, other)",
    "approx_distinct(value) AS approx_count_distinct(value)",
    "slice(items, first, count) AS list_slice(items, first, first + count - 1)",
    "transform(items, change) AS list_transform(items, change)",
    (
        "reverse(items VARCHAR[]) AS list_reverse(items),"
        " (items VARCHAR) AS system.main.reverse(items)"
    ),
    "url_extract_path(url) AS regexp_extract(url, '^[a-z][a-z0-9+.-]*://[^/?#]*([^?#]*)', 1)",
    "url_extract_host(url) AS regexp_extract(url, '^[a-z][a-z0-9+.-]*://([^/?#:]*)', 1)",
)
# Views of the catalogue's databases over rows of single WARC files, and the tables of those.
SUMS = {"host": "host_by_file", "page": "page_by_file"}
_ALL = frozenset({*TABLES, *SUMS, *LIVE, *ALIASES})
SCHEMAS = Schemas({"": _ALL, "main": _ALL, "ccindex": frozenset({"ccindex"})})


def columns_of(table: str) -> tuple[Column, ...]:
    """Return the columns of a table of the catalogue, with those that are in paths."""
    return (*TABLES[table], *PARTITIONS[table])


def literal(text: str) -> str:
    """Return a text as a string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def identifier(text: str) -> str:
    """Return a name as a quoted identifier of SQL."""
    return '"' + text.replace('"', '""') + '"'


def empty(columns: tuple[Column, ...]) -> str:
    """Return a query without rows."""
    nulls = ", ".join(f"NULL::{_TYPES[each.type]} AS {identifier(each.name)}" for each in columns)
    return f"SELECT {nulls} WHERE false"


def of_files(table: str) -> str:
    """Return the query of a table of the catalogue over its rows, ``files.TABLE``."""
    columns = ", ".join(identifier(each.name) for each in columns_of(table))
    return f"SELECT {columns} FROM files.{identifier(table)}"


def of_frontier(table: str) -> str:
    """Return the query of a table of the frontier over its rows, ``frontier.TABLE``.

    Rows name their seed by the number of its frontier and its key.
    """
    columns = ", ".join(
        f"coalesce(s.url, r.{identifier(each.name)}) AS seed"
        if each.name == "seed"
        else "w.tag AS tag"
        if each.name == "tag"
        else f"r.{identifier(each.name)}"
        for each in LIVE[table]
    )
    joins = "".join(
        f" LEFT JOIN frontier.{other} {short} ON {short}.source = r.source AND {short}.key ="
        " r.seed_key"
        for other, short in (("seeds", "s"), ("words", "w"))
        if _SEED[0] in LIVE[table]
    )
    return f"SELECT {columns} FROM frontier.{identifier(table)} r{joins}"

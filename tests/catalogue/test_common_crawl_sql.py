"""Common Crawl's SQL examples run unchanged on the Parquet files of a catalogue, by DuckDB."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from krowlspider.catalogue.parquet import ParquetSink
from krowlspider.catalogue.rows import FileOrigin, rows_of
from krowlspider.errors import KrowlError
from krowlspider.sql.catalogue import files_of
from krowlspider.sql.database import database
from krowlspider.sql.execution import QueryLimits, Run
from krowlspider.sql.output import plain, rows_in
from krowlspider.sql.statement import checked
from krowlspider.sql.tables import SCHEMAS
from tests.catalogue.warcs import archived, fetch
from tests.corpus.warcs import html

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = Path(__file__).parent / "common_crawl"
# How often a pair must occur in some of them.
_MANY = 100
ICELANDIC = """<p>Vatnajökull er stærsti jökull Íslands. Hann er á suðausturlandi og þekur um átta
prósent landsins. Undir jöklinum eru nokkur eldfjöll, og þar verða oft jökulhlaup. Margir ferðamenn
koma þangað á hverju ári til að skoða íshella og jökullón.""".encode()


def _pages() -> list[Any]:
    pages = [fetch(f"https://www.blog.no/{n}", html(n, words=30)) for n in range(_MANY)]
    pages += [
        fetch("https://commoncrawl.org/", html(900)),
        fetch("https://www.example.is/", ICELANDIC, mime=b"text/html; charset=utf-8"),
        fetch("https://www.commoncrawl.org/a.pdf", b"%PDF-1.4", mime=b"application/pdf"),
        fetch("https://commoncrawl.org/robots.txt", b"", mime=b"text/plain"),
        fetch("https://commoncrawl.org/no", status=b"404 Not Found"),
        fetch("http://192.0.2.1/", html(901)),
    ]
    return pages


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what makes the catalogue of a crawl of this name."""
    warc = archived(tmp_path_factory.mktemp("warc"), _pages())[0]

    @cache
    def made(crawl: str) -> Path:
        folder = tmp_path_factory.mktemp("catalogue")
        sink = ParquetSink(folder, frozenset({"fetch"}))
        sink.write(warc.name, rows_of(warc, frozenset({"fetch"}), FileOrigin(crawl)))
        sink.close()
        return folder

    return made


def answered(text: str, folder: Path) -> list[tuple[Any, ...]]:
    """Return what an example answers about a catalogue."""
    with duckdb.connect() as database:
        database.execute("create schema ccindex")
        database.execute("create table ccindex.alexa_top_1m (site text, rank int, domain text)")
        domain = "commoncrawl.org"
        database.execute("insert into ccindex.alexa_top_1m values (?, 1, ?)", [domain, domain])
        parquet = f"read_parquet('{folder}/fetch/**/*.parquet', hive_partitioning = true)"
        database.execute(f"create view ccindex.ccindex as select * from {parquet}")
        return database.execute(text).fetchall()


# Those that read a table of one's own.
MORE_THAN_A_QUERY = {
    "count-domains-alexa-top-1m": "there is no table 'ccindex.alexa_top_1m'",
    "get-records-robotstxt": "there is no table 'ccindex.alexa_top_1m'",
}


# The rows that count, or None if the example asks for more pages than there are.
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("compare-mime-type-http-vs-detected", (103, "text/html", "text/html")),
        ("correlation-language-charset", ("eng", "UTF-8")),
        ("count-by-partition", (104, "CC-MAIN-2026-48", "warc")),
        ("count-by-tld-page-host-domain", (100, "no", 1, 1)),
        ("count-domains-alexa-top-1m", ("commoncrawl.org", 1, 4)),
        ("count-domains-of-tld", (100, "blog.no")),
        ("count-fetch-status", (1, 404)),
        ("count-language-tld", None),
        ("get-home-pages-languages", ("https://www.example.is/", "isl")),
        ("get-records-for-language", ("https://www.example.is/",)),
        ("get-records-of-domain", ("https://commoncrawl.org/",)),
        ("get-records-of-mime-type", ("https://www.commoncrawl.org/a.pdf",)),
        ("get-records-robotstxt", ("commoncrawl.org", 1, "org")),
        ("host-length-distrib", (102, 3, 3)),
        ("loglikelihood-language-tld", None),
    ],
)
def test_an_example_runs_unchanged(
    name: str, first: tuple[Any, ...] | None, catalogue: Callable[[str], Path]
):
    """By DuckDB, and by scrapy sql, which says so if it cannot."""
    text = (EXAMPLES / f"{name}.sql").read_text()
    folder = catalogue((re.findall(r"crawl = '([^']+)'", text) or ["CC-MAIN-2026-48"])[0])
    expected = answered(text, folder)
    if first is None:
        assert expected == []
    else:
        assert first in [row[: len(first)] for row in expected]
    if name in MORE_THAN_A_QUERY:
        with pytest.raises(KrowlError, match=MORE_THAN_A_QUERY[name]):
            checked(text, SCHEMAS)
        return
    statement = checked(text, SCHEMAS)
    assert statement.tables == {"ccindex"}
    files = {"fetch": files_of(folder, "fetch")}
    found: list[Any] = []
    with database(100_000_000, folder, files, {}) as connection:
        run = Run(connection, statement.text, QueryLimits(60, 100_000_000), views=statement.views)
        run.each(lambda _: None, lambda batch: found.extend(rows_in(batch)))
    texts = [sorted(str([*map(plain, row)]) for row in rows) for rows in (found, expected)]
    assert texts[0] == texts[1]


def test_each_example_that_is_kept_is_run():
    [marker] = [mark for mark in test_an_example_runs_unchanged.pytestmark if mark.args]
    names = {name for name, _ in marker.args[1]}
    assert names == {path.stem for path in EXAMPLES.glob("*.sql")}

"""``scrapy krowl policies``: a table of a database as a file of sheets."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from krowlspider.catalogue.databases import read_table, sink_at
from krowlspider.policies.sheets import Policies
from krowlspider.policies.tables import sheets_of
from krowlspider.programs.krowl import follow_table
from tests.catalogue.made_rows import ALL
from tests.support.crawling import scrapy
from tests.support.postgresql import PASSWORD

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgresql import Server

# As people write them; ferrocrawl's own columns are in docs/databases.md.
ROWS = """
INSERT INTO krowl.policy (name, match, delay, include) VALUES
    ('news', '["example.org", "host:a.example"]', 5, '["/news/", "/sport/"]'),
    ('large', 'b.example', NULL, NULL)
"""
FERROCRAWL = """
CREATE TABLE public.domain_policies (
    host text PRIMARY KEY, crawl_delay_ms integer, max_depth integer, recrawl_ttl_secs bigint,
    include_patterns text[], exclude_patterns text[], user_agent text
);
INSERT INTO public.domain_policies VALUES
    ('www.example.org', 2000, 3, 86400, NULL, '{/print/}', NULL),
    ('b.example', NULL, NULL, NULL, NULL, NULL, NULL)
"""


@pytest.mark.slow
def test_rows_land_as_sheets(postgresql: Server, tmp_path: Path) -> None:
    path, url = tmp_path / "policies.toml", postgresql.make("policies")
    sink_at(url, ALL, pytest.fail).close()
    for query in (ROWS, FERROCRAWL):
        postgresql.ask("policies", query)
    scrapy("krowl", "policies", "--from", url, "-o", path)
    news, large = Policies.parse(path.read_text(), "").sheets
    assert (news.name, len(news.matches), news.values["delay"]) == ("news", 2, 5)
    assert (large.name, large.values) == ("large", {})

    said = scrapy("krowl", "policies", "--from", url, "--table", "public.domain_policies")
    assert b"not read: user_agent; docs/policies.md has the keys" in said.stderr
    policy = Policies.parse(said.stdout.decode(), "").of_host("www.example.org:443")
    assert policy is not None
    assert (policy.delay, policy.fixed.depth, policy.fixed.recrawl_min) == (2, 3, 86_400)

    before = path.read_bytes()
    postgresql.ask("policies", "UPDATE krowl.policy SET depth = -1 WHERE name = 'large'")
    said = scrapy("krowl", "policies", "--from", url, "-o", path, code=2)
    assert b"krowl.policy row large: depth = '-1': must be a whole number from 0" in said.stderr
    assert path.read_bytes() == before
    said = scrapy("krowl", "policies", "--from", url, "--table", 'no"thing', code=2)
    assert b'relation "no"thing" does not exist' in said.stderr
    assert PASSWORD.encode() not in said.stderr


@pytest.mark.slow
def test_a_file_of_sqlite_is_read_and_not_made(tmp_path: Path) -> None:
    path, url = tmp_path / "catalogue.db", f"sqlite:///{tmp_path / 'catalogue.db'}"
    assert b"unable to open" in scrapy("krowl", "policies", "--from", url, code=2).stderr
    assert not path.exists()
    sink_at(url, ALL, pytest.fail).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO policy (name, match, depth) VALUES ('a', 'b.example', 2)")
    said = scrapy("krowl", "policies", "--from", url)
    assert said.stderr == b"krowlspider: 1 sheet of krowl.policy\n"
    assert [each.values for each in Policies.parse(said.stdout.decode(), "").sheets] == [
        {"depth": 2}
    ]
    assert list(tmp_path.iterdir()) == [path]
    assert b"--from is not given" in scrapy("krowl", "policies", code=2).stderr


def test_a_table_that_is_followed_changes_the_file(tmp_path: Path) -> None:
    """A row that is no sheet, or a database that is away, leaves the file as it was."""
    database, path = tmp_path / "a.db", tmp_path / "policies.toml"
    said: list[str] = []
    changes = iter(
        [
            "INSERT INTO p VALUES ('b.example', 2)",
            "INSERT INTO p VALUES ('c.example', -1)",
            "",
            "UPDATE p SET delay = 3 WHERE delay < 0",
        ]
    )
    found = []

    def ask(query: str) -> None:
        with closing(sqlite3.connect(database)) as connection:
            connection.executescript(query)

    def sheets() -> str:
        columns, rows = read_table(f"sqlite:///{database}", "p", 9, pytest.fail)
        return sheets_of(columns, rows, "p", 0.0)

    def change(_: float) -> None:
        found.append(len(Policies.parse(path.read_text(), "").sheets))
        if (query := next(changes, None)) is None:
            raise KeyboardInterrupt
        ask(query)

    ask("CREATE TABLE p (host text, delay real); INSERT INTO p VALUES ('a.example', 5)")
    path.write_text(text := sheets())
    with pytest.raises(KeyboardInterrupt):
        follow_table(sheets, path.write_text, text, said.append, change)
    assert found == [1, 2, 2, 2, 3]
    assert [each.partition(":")[0] for each in said] == [
        "the table has changed",
        "the file stays as it is",
        "the table has changed",
    ]


@pytest.mark.slow
def test_following_needs_a_file(tmp_path: Path) -> None:
    said = scrapy("krowl", "policies", "--from", "sqlite:///x", "--follow", code=2)
    assert b"--follow needs a file" in said.stderr

"""``scrapy krowl policies``: a table of a database as a file of sheets."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from krowlspider.catalogue.databases import sink_at
from krowlspider.policies.sheets import Policies
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

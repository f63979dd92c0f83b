"""The questions of docs/sql.md have the answers that it says, and run on a whole crawl."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

import pytest

from krowlspider.programs.sql import Command
from tests.sql.small_crawl import crawl
from tests.support.crawling import ROOT, scrapy
from tests.support.settings import project_settings

if TYPE_CHECKING:
    from pathlib import Path

_QUESTION = re.compile(
    r"^### (?P<title>[^\n]*)\n\n(?:[^`#]*\n\n)?"
    r"```sql\n(?P<sql>.*?)```\n\n```text\n(?P<answer>.*?)```$",
    re.DOTALL | re.MULTILINE,
)
PAGE = (ROOT / "docs" / "sql.md").read_text()
QUESTIONS = {found["title"]: found for found in _QUESTION.finditer(PAGE)}


@pytest.fixture(scope="module")
def jobdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return crawl(tmp_path_factory.mktemp("sql"))


def answer(jobdir: Path, text: str, output: Path) -> str:
    """Return what the program writes. It is called in this process, as there are many questions."""
    command, parser = Command(), argparse.ArgumentParser()
    command.settings = project_settings()
    command.add_options(parser)
    opts = parser.parse_args(["-o", str(output)])
    command.act([str(jobdir), text], opts)
    return output.read_text()


def test_each_question_has_an_answer():
    assert len(QUESTIONS) == PAGE.count("\n### ") >= 20


@pytest.mark.slow
def test_the_answers_are_those_of_the_page(jobdir: Path, tmp_path: Path):
    for title, found in QUESTIONS.items():
        assert answer(jobdir, found["sql"], tmp_path / "answer.txt") == found["answer"], title


@pytest.mark.slow
def test_archive_and_frontier_agree(jobdir: Path, tmp_path: Path):
    """Each page of the frontier is in the archive, by what both say of it."""
    text = """
        SELECT count(*) AS pages, count(p.url) AS found,
               count(*) FILTER (f.payload_digest = p.digest) AS same_body,
               count(*) FILTER (abs(epoch(f.last_fetch) - epoch(p.last_fetch)) < 0.001) AS same_time
        FROM page_now f LEFT JOIN page p USING (crawl, url)"""
    _, _, row, _ = answer(jobdir, text, tmp_path / "answer.txt").splitlines()
    pages, found, same_body, same_time = map(int, row.split())
    assert pages == found == same_time == 9
    # The redirect has no body in the table of pages.
    assert same_body >= 7


@pytest.mark.slow
def test_a_catalogue_that_lags_behind_is_told(jobdir: Path):
    done = scrapy("sql", jobdir, "SELECT 1 FROM capture LIMIT 1")
    assert done.stderr == b""
    markers = sorted((jobdir / "catalogue" / "_done").iterdir())
    held = markers[-1].read_bytes()
    markers[-1].unlink()
    try:
        said = scrapy("sql", jobdir, "SELECT 1 FROM capture LIMIT 1").stderr.decode()
    finally:
        markers[-1].write_bytes(held)
    assert said.startswith("krowlspider: 1 WARC file not in the catalogue yet: ")
    assert said.endswith(f"catalogue {jobdir}\n")

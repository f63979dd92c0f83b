"""``scrapy index``, as users run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.catalogue.warcs import archived, fetch
from tests.search.webs import found, urls
from tests.support.crawling import scrapy

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_the_command_makes_an_index_and_goes_on(tmp_path: Path):
    job, index = tmp_path / "job", tmp_path / "index"
    refused = fetch("https://b.test/", b"<p>No", b"X-Robots-Tag: noindex")
    archived(job / "warc", [found("https://a.test/", 1), refused])
    refusal = scrapy("index", job, "-o", job, code=2).stderr.decode()
    assert f"-o {job} is no index, and has warc in it" in refusal
    assert [each.name for each in job.iterdir()] == ["warc"]
    first = scrapy("index", job, "-o", index).stdout.decode()
    assert "1 file, 2 captures, 1 document written" in first
    assert "left out, by reason:\n" in first
    assert "1  refused/noindex" in first
    assert urls(index, "title", "1") == {"https://a.test/"}
    archived(job / "warc", [found("https://c.test/", 2, 5)])
    second = scrapy("index", job, "-o", index, "--follow").stdout.decode()
    assert "1 file, 1 capture, 1 document written" in second


@pytest.mark.slow
def test_a_folder_without_an_archive_is_named(tmp_path: Path):
    done = scrapy("index", tmp_path, "-o", tmp_path / "index", code=2)
    assert f"{tmp_path} has no WARC files: an index is made of the archive" in done.stderr.decode()
    assert not (tmp_path / "index").exists()

"""``scrapy graph``: what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.graph.ranks import HostRanks
from tests.catalogue.warcs import archived, fetch
from tests.support.crawling import scrapy

if TYPE_CHECKING:
    from pathlib import Path


def said(*words: object, code: int) -> str:
    """Return the one line on standard error."""
    [line] = scrapy("graph", *words, code=code).stderr.decode().splitlines()
    return line.removeprefix("krowlspider: ")


def crawl(folder: Path) -> str:
    """Write a WARC file of a crawl in ``folder``, and return its name."""
    pages = [
        fetch("https://a.com/", b"<a href=//b.org></a><a href=//hub.net></a>"),
        fetch("https://b.org/", b"<a href=https://www.hub.net/></a>"),
    ]
    [path] = archived(folder / "warc", pages)
    return path.name


def test_it_says_what_it_wrote(tmp_path: Path):
    name = crawl(tmp_path / "job")
    done = scrapy("graph", tmp_path / "job", "--top", "2")
    assert done.stdout.decode().splitlines() == [
        f"{name}: 3 hosts, 3 links between them",
        "host graph: 3 hosts, 3 links; harmonic centrality exact",
        "   host         harmonic   PageRank",
        "1  hub.net          2.00   0.520869  ████████████████████████",
        "2  b.org            1.00   0.281551  ████████████",
        "domain graph: 3 domains, 3 links; harmonic centrality exact",
        "   domain       harmonic   PageRank",
        "1  hub.net          2.00   0.520869  ████████████████████████",
        "2  b.org            1.00   0.281551  ████████████",
    ]
    # It is read once.
    again = scrapy("graph", tmp_path / "job", "--level", "domain")
    assert again.stdout == b"domain graph: 3 domains, 3 links; harmonic centrality exact\n"


def test_several_crawls_make_one_graph(tmp_path: Path):
    crawl(tmp_path / "job")
    [path] = archived(tmp_path / "warcs", [fetch("https://c.info/", b"<a href=//a.com>")])
    path.rename(path.with_name("other.warc.gz"))
    jobs = (tmp_path / "job", tmp_path / "warcs")
    assert "give its folder with -o" in said(*jobs, code=2)
    done = scrapy("graph", *jobs, "-o", tmp_path / "out", "--level", "host")
    assert b"host graph: 4 hosts, 4 links" in done.stdout
    assert sorted(each.name for each in (tmp_path / "out").glob("[!.]*")) == ["host", "links"]


def test_ranks_go_into_an_index(tmp_path: Path):
    crawl(tmp_path / "job")
    index = tmp_path / "index"
    assert "is no search index: give the folder of scrapy index" in said(
        tmp_path / "job", "--into", index, code=2
    )
    (index / "tantivy").mkdir(parents=True)
    done = scrapy("graph", tmp_path / "job", "--level", "domain", "--into", index)
    assert f"3 ranks in {index}/ranks.tsv" in done.stdout.decode()
    ranks = HostRanks.open(index / "ranks.tsv")
    assert ranks.harmonic("www.hub.net") == 2
    assert ranks.pagerank("b.org") == pytest.approx(0.281551, abs=1e-6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--top", "-1"], "--top -1 is not between 0 and 10,000"),
        (["--tops"], "--tops is not an option"),
        (["none"], "none is neither a crawl's folder nor one of WARC files"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, words: list[str], message: str):
    assert message in said(*([tmp_path / "none"] if words[0] != "none" else []), *words, code=2)


def test_damage_is_told(tmp_path: Path):
    name = crawl(tmp_path)
    path = tmp_path / "warc" / name
    path.write_bytes(path.read_bytes()[:-30])
    assert said(tmp_path, code=1).startswith(f"{name} at byte ")

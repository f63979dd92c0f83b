"""Ranks of hosts in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.errors import KrowlError
from krowlspider.graph.ranks import HostRanks, write

if TYPE_CHECKING:
    from pathlib import Path

RANKS = [
    ("www.com", 1.5, 0.25),
    ("example.org:1965", 7.0, 0.125),
    ("example.org", 40.25, 0.5),
    ("example.com", 3.0, 1e-9),
]


def test_hosts_of_the_crawl_find_their_ranks(tmp_path: Path):
    assert write(tmp_path / "ranks.tsv", RANKS) == 4
    ranks = HostRanks.open(tmp_path / "ranks.tsv")
    assert [ranks.harmonic(host) for host, _, _ in RANKS] == [rank for _, rank, _ in RANKS]
    assert [ranks.pagerank(host) for host, _, _ in RANKS] == [rank for _, _, rank in RANKS]
    # The graph knows the web neither by port nor by "www", but a capsule by its port.
    assert ranks.harmonic("www.example.org") == ranks.harmonic("example.org:8080") == 40.25
    assert ranks.harmonic("www.example.org:8080") == 40.25
    unknown = ("example.net", "example.com:1965", "", "org", "www.org", "[::1]:80", "é\udc80.org")
    assert [ranks.harmonic(host) for host in unknown] == [0.0] * len(unknown)
    ranks.close()


@given(st.dictionaries(st.text("ab-.:1", min_size=1), st.floats(0, 1e9), max_size=20))
def test_each_host_is_found_among_any_others(tmp_path_factory, values: dict[str, float]):
    path = tmp_path_factory.mktemp("ranks") / "ranks.tsv"
    write(path, [(host, value, value / 3) for host, value in values.items()])
    ranks = HostRanks.open(path)
    for host, value in values.items():
        # Under its own name, without the rules for hosts of a crawl.
        line = ranks._line_of(host.encode() + b"\t")
        assert line is not None
        assert float(line.split(b"\t")[1]) == pytest.approx(value)
    ranks.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a.org\t1\t2\nb.org 1 2\n", r"line 2 is not host, tab, number, tab, number \('b.org 1 2'"),
        ("a.org\t1\tnan\n", "line 1 is not host"),
        ("a.org\t-1\t2\n", "line 1 is not host"),
        ("a.org\t1\t2\n\n", "line 2 is not host"),
        ("a.org\t1\t2\nb.org\t1\t2", "line 2 is cut off"),
        ("a.org\t1\t2\nc.org\t1\t2\nb.org\t1\t2\n", "line 3 is not sorted by host"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: str, message: str):
    path = tmp_path / "ranks.tsv"
    path.write_text(content)
    with pytest.raises(KrowlError, match=message) as error:
        HostRanks.open(path)
    assert str(path) in str(error.value)
    assert "scrapy graph --into" in str(error.value)


def test_a_bad_line_far_down_has_its_number(tmp_path: Path):
    path = tmp_path / "ranks.tsv"
    lines = [f"host{number:07}.example\t1.25\t0.5\n" for number in range(200_000)]
    path.write_text("".join([*lines, "wrong\n"]))
    with pytest.raises(KrowlError, match="line 200001 is not host"):
        HostRanks.open(path)
    # Between two blocks that are checked.
    path.write_text("".join([*lines[1:], lines[0]]))
    with pytest.raises(KrowlError, match="line 200000 is not sorted"):
        HostRanks.open(path)


def test_a_file_that_is_missing_is_named(tmp_path: Path):
    with pytest.raises(KrowlError, match=r"none.tsv cannot be read: No such file.*scrapy graph"):
        HostRanks.open(tmp_path / "none.tsv")


def test_an_empty_file_has_no_ranks(tmp_path: Path):
    (tmp_path / "ranks.tsv").touch()
    assert HostRanks.open(tmp_path / "ranks.tsv").harmonic("example.org") == 0.0

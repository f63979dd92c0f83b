"""A graph of WARC files, in Common Crawl's form."""

from __future__ import annotations

import gzip
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import networkx as nx
import pytest

from krowlspider.errors import KrowlError
from krowlspider.graph import link_files
from krowlspider.graph.build import LEVELS, GraphFolder, built
from tests.catalogue.warcs import archived, fetch
from tests.corpus.warcs import response
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def make(out: Path, sources: Sequence[Path]) -> list[str]:
    """Make the graph of WARC files; return the faults."""
    faults: list[str] = []
    with closing(GraphFolder(out)) as graph:
        for source in sources:
            if not graph.has(source):
                graph.take(source, faults.append)
        hosts, names = graph.merge()
        for level in LEVELS:
            graph.write(built(level, hosts, names))
    return faults


def lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def test_it_has_the_form_of_common_crawl(tmp_path: Path):
    sources = archived(
        tmp_path,
        [
            fetch("https://www.a.com/1", b"<a href=https://b.org/></a><a href=//x.a.com/></a>"),
            fetch("https://www.a.com/2", b"<a href=https://b.org/other></a>"),
        ],
        [
            fetch("https://b.org/", b"", b"Location: https://c.net/", status=b"301 Moved"),
            fetch("https://alone.info/", b"<a href=/own></a>", status=b"404 Not Found"),
            fetch("https://a.com/", b"<a href=https://c.net/></a>"),
        ],
    )
    assert make(tmp_path / "graph", sources) == []
    host, domain = tmp_path / "graph/host", tmp_path / "graph/domain"
    assert lines(host / "vertices.txt.gz") == [
        "0\tcom.a",
        "1\tcom.a.x",
        "2\tinfo.alone",
        "3\tnet.c",
        "4\torg.b",
    ]
    assert lines(host / "edges.txt.gz") == ["0\t1", "0\t3", "0\t4", "4\t3"]
    header, *rows = (line.split("\t") for line in lines(host / "ranks.txt.gz"))
    assert header == ["#harmonicc_pos", "#harmonicc_val", "#pr_pos", "#pr_val", "#host_rev"]
    assert [[row[0], row[1], row[2], row[4]] for row in rows] == [
        ["1", "2", "1", "net.c"],
        ["2", "1", "2", "com.a.x"],
        ["3", "1", "3", "org.b"],
        ["4", "0", "4", "com.a"],
        ["5", "0", "5", "info.alone"],
    ]
    assert sum(float(row[3]) for row in rows) == pytest.approx(1)
    assert lines(domain / "vertices.txt.gz") == [
        "0\tcom.a\t2",
        "1\tinfo.alone\t1",
        "2\tnet.c\t1",
        "3\torg.b\t1",
    ]
    assert lines(domain / "edges.txt.gz") == ["0\t2", "0\t3", "3\t2"]
    assert lines(domain / "ranks.txt.gz")[0].split("\t")[4:] == ["#host_rev", "#n_hosts"]
    assert lines(domain / "ranks.txt.gz")[1].split("\t")[4:] == ["net.c", "1"]


def test_ranks_are_those_of_networkx(tmp_path: Path):
    pages = [
        fetch(
            f"https://h{n}.test/", b"".join(b"<a href=//h%d.test>" % (n * k % 23) for k in (2, 5))
        )
        for n in range(20)
    ]
    make(tmp_path / "graph", archived(tmp_path, pages))
    host = tmp_path / "graph/host"
    graph = nx.DiGraph()
    graph.add_nodes_from(line.split("\t")[0] for line in lines(host / "vertices.txt.gz"))
    graph.add_edges_from(line.split("\t") for line in lines(host / "edges.txt.gz"))
    names = dict(line.split("\t")[::-1] for line in lines(host / "vertices.txt.gz"))
    expected = nx.harmonic_centrality(graph)
    for line in lines(host / "ranks.txt.gz")[1:]:
        _, value, _, _, name = line.split("\t")
        assert float(value) == pytest.approx(expected[names[name]], rel=1e-7)


def test_files_are_read_once(tmp_path: Path):
    first = archived(tmp_path / "a", [fetch("https://a.com/", b"<a href=//b.com>")])
    make(tmp_path / "graph", first)
    whole = {path.name: path.read_bytes() for path in (tmp_path / "graph/host").iterdir()}
    make(tmp_path / "graph", first)
    assert {p.name: p.read_bytes() for p in (tmp_path / "graph/host").iterdir()} == whole
    # The links of a WARC file stay when that is gone.
    [path] = first
    path.unlink()
    made = archived(tmp_path / "b", [fetch("https://c.com/", b"<a href=//a.com>")])
    second = made[0].rename(made[0].with_name("test-20261201130000-00001-here-2.warc.gz"))
    make(tmp_path / "graph", [second])
    assert lines(tmp_path / "graph/host/edges.txt.gz") == ["0\t1", "2\t0"]


def test_another_file_of_the_same_name_is_refused(tmp_path: Path):
    sources = archived(tmp_path, [fetch("https://a.com/", b"<a href=//b.com>")])
    make(tmp_path / "graph", sources)
    sources[0].write_bytes(sources[0].read_bytes() * 2)
    with pytest.raises(KrowlError, match="has another size than the file of that name"):
        make(tmp_path / "graph", sources)


def test_damage_is_told_and_passed_over(tmp_path: Path):
    path = tmp_path / "a.warc.gz"
    records = [
        gzip.compress(response(f"https://{name}.com/", b"<a href=//to.com>")) for name in "abc"
    ]
    records[1] = records[1][:40] + b"\0" * 20 + records[1][60:]
    path.write_bytes(b"".join(records))
    [fault] = make(tmp_path / "graph", [path])
    assert fault.startswith("a.warc.gz at byte ")
    assert [line.split("\t")[1] for line in lines(tmp_path / "graph/host/vertices.txt.gz")] == [
        "com.a",
        "com.c",
        "com.to",
    ]


def test_a_folder_of_other_files_is_refused(tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").touch()
    with pytest.raises(KrowlError, match="exists and is no graph: give a new folder"):
        GraphFolder(tmp_path / "out")
    with pytest.raises(KrowlError, match="is a file: give a folder"):
        GraphFolder(tmp_path / "out/notes.txt")


def test_one_process_writes_a_graph(tmp_path: Path):
    with (
        closing(GraphFolder(tmp_path / "graph")),
        pytest.raises(KrowlError, match="another scrapy graph writes to"),
    ):
        GraphFolder(tmp_path / "graph")


def test_links_beyond_the_memory_bound_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sources = archived(
        tmp_path,
        [
            fetch(f"https://h{n}.com/", b"".join(b"<a href=//t%d.com>" % (n + k) for k in range(9)))
            for n in range(9)
        ],
    )
    make(tmp_path / "whole", sources)
    monkeypatch.setattr(link_files.Gathered.__init__, "__defaults__", (10,))
    make(tmp_path / "small", sources)
    for name in ("vertices.txt.gz", "edges.txt.gz"):
        assert lines(tmp_path / "small/host" / name) == lines(tmp_path / "whole/host" / name)
    assert len(lines(tmp_path / "whole/host/edges.txt.gz")) == 81


@pytest.mark.parametrize("has_new", [False, True])
def test_what_a_kill_left_is_undone(tmp_path: Path, has_new: bool):
    """Between two renames the folder of a level has another name; before them, the new one is not
    whole."""
    out = tmp_path / "graph"
    make(out, archived(tmp_path, [fetch("https://a.com/", b"<a href=//b.com>")]))
    before = {path.name: path.read_bytes() for path in (out / "host").iterdir()}
    if has_new:
        (out / "host.new").mkdir()
        (out / "host.new/vertices.txt.gz").touch()
    else:
        (out / "host").rename(out / "host.old")
    GraphFolder(out).close()
    assert {path.name: path.read_bytes() for path in (out / "host").iterdir()} == before
    assert not [*out.glob("*.old"), *out.glob("*.new")]


@pytest.mark.slow
def test_a_kill_leaves_no_half_graph(tmp_path: Path):
    """Each fifth step on disk; `tests.graph.kills` alone takes all."""
    command = [sys.executable, "-m", "tests.graph.kills", str(tmp_path), "5"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 8

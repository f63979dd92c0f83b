"""``scrapy frontier`` on the folder of ``scrapy node``, made without a crawl."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from krowlspider.job.folder import REGISTER, JobFolder, JobInUseError, lock_folder, tree_of
from krowlspider.job.status import SUMS
from krowlspider.node.tree import Tree
from krowlspider.programs.stopped import locked_tree
from tests.commands.test_frontier import answer, frontier, made, read_only

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATUS = {"so_far": "1 page", "time": 1e9, "held": False, "paused": "", "fetched": {"page": 1}}


def made_tree(path: Path, count: int = 2) -> Path:
    """The JOBDIR of so many processes, each with a URL of its own queued."""
    for number in range(1, count + 1):
        made(path / f"p{number}", f"http://host{number}.test/")
    (path / REGISTER).write_text("0" * 32)
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return made_tree(tmp_path / "job")


@pytest.fixture
def running(tree: Path) -> Iterator[Path]:
    """A JOBDIR as a supervisor has it whose processes have just died: their folders are free."""
    for name in ("p1", "p2"):
        JobFolder(tree / name).write_status({**STATUS, **dict.fromkeys(SUMS, 1)})
    lock = lock_folder(tree)
    yield tree
    os.close(lock)


@pytest.mark.parametrize("name", [".", "p1"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(
            (options, "stop it first\n")
            for options in (
                ["--repair"],
                ["--drop-host", "host1.test"],
                ["--forget", "host1.test"],
                ["--host", "host1.test"],
                ["--export"],
            )
        ),
        (["--import", "-"], "does not answer over HTTP"),
        (["--explain", "http://host1.test/"], "does not answer over HTTP"),
    ],
)
def test_no_form_takes_a_process_while_its_supervisor_runs(
    running: Path, name: str, options: list[str], said: str
) -> None:
    _, complaint = frontier(running / name, *options, code=2)
    assert f"is in use by process {os.getpid()}" in complaint
    assert said in complaint
    # Whoever takes a folder removes it.
    assert (running / "p1" / "status.json").exists()


def test_an_overview_takes_no_process_while_its_supervisor_runs(running: Path) -> None:
    for name in (".", "p1"):
        assert "is being crawled" in frontier(running / name)[0]
    assert (running / "p1" / "status.json").exists()


def test_a_restore_makes_no_process_while_the_supervisor_runs(
    running: Path, tmp_path: Path
) -> None:
    snapshot = made(tmp_path / "one", "http://a.test/").with_name("snapshot")
    (tmp_path / "one" / "warc").mkdir()
    frontier(tmp_path / "one", "--snapshot", str(snapshot))
    _, complaint = frontier(running / "p3", "--restore", str(snapshot), code=2)
    assert "stop it first" in complaint
    assert not (running / "p3").exists()


@pytest.mark.parametrize("name", [".", "p1"])
def test_a_command_locks_the_folder_of_all_processes(tree: Path, name: str) -> None:
    assert answer(tree / name, "--drop-host", "host1.test")["dropped"] == 1
    assert (tree / "lock").read_text() == f"{os.getpid()}\n"


def test_a_supervisor_names_the_command_that_is_at_work(tree: Path) -> None:
    said = f"in use by process {os.getpid()}: stop it"
    with locked_tree(tree, to_change=True), pytest.raises(JobInUseError, match=said):
        Tree(tree).take()


def test_a_process_is_known_by_the_secret_beside_it(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree / "p1")
    assert tree_of(tree) == tree_of(tree / "p1") == tree
    assert tree_of((tree / "p1").relative_to(tree / "p1")) == tree
    (tree / REGISTER).unlink()
    # A crawl of one process may have any name.
    assert tree_of(tree / "p1") is None


@pytest.mark.parametrize("name", [".", "p1"])
@pytest.mark.parametrize(
    ("option", "way"),
    [("--import", "import while the crawl runs"), ("--snapshot", "copy the whole folder")],
)
def test_one_process_is_refused_what_several_are(
    tmp_path: Path, name: str, option: str, way: str
) -> None:
    """A snapshot would be without the secret; an import would not know the owner of a host."""
    tree = made_tree(tmp_path / "job", 1)
    (tree / "p1" / "warc").mkdir()
    _, complaint = frontier(tree / name, option, str(tmp_path / "other"), code=2)
    assert f"{option} is not for a crawl of scrapy node: " in complaint
    assert way in complaint
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("options", [[], ["--json"], ["--export"], ["--explain", "http://a.test/"]])
def test_a_process_without_its_head_is_named(tree: Path, options: list[str]) -> None:
    (tree / "p2" / "job.json").unlink()
    shown, complaint = frontier(tree, *options, code=2)
    assert shown == ""
    assert f"JOBDIR {tree / 'p2'} has a frontier but no job.json" in complaint


def test_a_repair_mends_each_process_and_names_it(tmp_path: Path) -> None:
    """The first two cannot be mended, and the last two are."""
    tree = made_tree(tmp_path / "job", 4)
    (tree / "p1" / "job.json").unlink()
    shutil.rmtree(tree / "p2" / "frontier")
    (tree / "p3" / "frontier" / "CURRENT").unlink()
    shown, complaint = frontier(tree, "--repair", code=2)
    first, second = complaint.splitlines()
    assert first.startswith("krowlspider: p1: JOBDIR ")
    assert second.startswith("krowlspider: p2: there is nothing to repair: ")
    whole, *_, last = shown.splitlines()
    assert whole.startswith("p3: repaired: hosts 1, queued 1")
    assert last.startswith("p4: nothing is wrong with it: hosts 1, queued 1")
    assert {line[:4] for line in shown.splitlines()} == {"p3: ", "p4: "}
    found = json.loads(frontier(tree, "--repair", "--json", code=2)[0])
    assert list(found) == ["p1", "p2", "p3", "p4"]
    assert "nothing to repair" in found["p2"]["error"]
    assert [found[name]["found"]["kept"]["queued"] for name in ("p3", "p4")] == [1, 1]


def test_a_repair_of_one_process_of_several_is_as_of_one_crawl(tree: Path) -> None:
    assert frontier(tree / "p1", "--repair")[0].startswith("nothing is wrong with it: hosts 1")
    assert answer(tree / "p1", "--repair")["copy"] is None
    assert answer(tree, "--repair")["p2"]["copy"] is None


def test_an_overview_of_a_running_crawl_begins_with_the_sums(running: Path) -> None:
    older = {**STATUS, **dict.fromkeys(SUMS, 2), "time": 9e8, "paused": "waits"}
    JobFolder(running / "p2").write_status(older)
    made(running / "p3")
    lines = frontier(running)[0].splitlines()
    assert lines[0].startswith(f"{running} is being crawled; its last status line, ")
    assert lines[1] == (
        "3 pages by 2 processes | 3.0 pages/s | 3 URLs queued on 3 hosts | 3 in flight"
        " | 3 deferred, as hosts do not answer | 3 dropped | WARC 3.0 MB | p2 waits"
    )
    assert lines[2].startswith(f"{running / 'p1'} is being crawled; ")
    found = answer(running)["running"]
    assert list(found) == ["total", "p1", "p2", "p3"]
    assert (found["total"]["queued"], found["total"]["time"]) == (3, 9e8)
    assert found["total"]["fetched"] == {"page": 2}
    for name in ("p1", "p2"):
        (running / name / "status.json").unlink()
    assert answer(running)["running"]["total"] is None


def test_an_overview_of_one_process_of_a_node_has_the_sums_too(tmp_path: Path) -> None:
    tree = made_tree(tmp_path / "job", 1)
    JobFolder(tree / "p1").write_status({**STATUS, **dict.fromkeys(SUMS, 1)})
    with locked_tree(tree, to_change=True):
        assert list(answer(tree)["running"]) == ["total", "p1"]
        assert "total" not in answer(tree / "p1")["running"]


def test_processes_on_a_read_only_disk_are_shown_and_not_changed(tree: Path) -> None:
    shown, forgotten = read_only(tree, [["--json"], ["--forget", "host1.test"]])
    assert (shown[0], json.loads(shown[1])["queued"]) == (0, 2)
    assert forgotten[0] == 2
    assert f"JOBDIR {tree} cannot be used: Read-only file system" in forgotten[2]


def test_processes_that_run_are_not_opened_on_a_read_only_disk(running: Path) -> None:
    """As another user may see them."""
    overview, host = read_only(running, [[], ["--host", "host1.test"]])
    assert (overview[0], overview[1].count("is being crawled")) == (0, 3)
    assert (host[0], host[1]) == (2, "")
    assert "stop it first" in host[2]

"""``scrapy warc`` with the JOBDIR of ``scrapy node``, in which each process has a folder."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import Settings

from krowlspider.archive.write.composer import PayloadIndex
from krowlspider.archive.write.series import WarcSeries
from krowlspider.errors import KrowlError
from krowlspider.programs.warc import folder_of, folders_of
from tests.archive.captures import capture, options
from tests.archive.command import warc
from tests.replay.test_cdx_server import asked, served

if TYPE_CHECKING:
    from pathlib import Path


def tree(path: Path, *, archives: str = "p{}/warc", with_files: int = 2) -> Path:
    """The JOBDIR of three processes, of which the first ones have a WARC file each."""
    for number in (1, 2, 3):
        process = path / f"p{number}"
        process.mkdir(parents=True)
        (process / "job.json").write_text('{"seed": 1}')
        if number > with_files:
            continue
        directory = path / archives.format(number)
        directory.mkdir(parents=True)
        with closing(PayloadIndex(process / "payloads", most=100, warn=pytest.fail)) as payloads:
            files = WarcSeries(directory, options(), payloads)
            files.append(capture(number))
            files.close()
    (path / "register").write_text("http://127.0.0.1:1")
    return path


def settings(**given: Any) -> Settings:
    return Settings({"KROWL_WARC_DIR": None, **given})


@pytest.mark.slow
def test_serve_answers_for_all_processes(tmp_path: Path):
    """One of them has no file yet."""
    with served(tree(tmp_path / "jöb 1")) as address:
        answer = asked(f"{address}/cdx?url=example.org/*&fl=url&output=text").decode()
    assert answer.splitlines() == ["http://example.org/page/1", "http://example.org/page/2"]


def test_folders_of_processes_are_those_of_node(tmp_path: Path):
    """With KROWL_WARC_DIR too, for all of them and for one."""
    jobdir = tree(tmp_path / "jobs", archives="../warcs/p{}")
    chosen = settings(KROWL_WARC_DIR=str(tmp_path / "warcs"))
    assert folders_of(chosen, str(jobdir)) == [tmp_path / "warcs" / f"p{at}" for at in (1, 2, 3)]
    assert folder_of(chosen, str(jobdir / "p2")) == tmp_path / "warcs/p2"


def test_no_files_of_any_process_is_an_error(tmp_path: Path):
    jobdir = tree(tmp_path / "jobs", with_files=0)
    with pytest.raises(KrowlError, match=r"no WARC files yet: there is no .*p1/warc"):
        folders_of(settings(), str(jobdir))


@pytest.mark.parametrize("word", ["check", "stats", "mend", "upload"])
def test_others_name_the_folder_of_one_process(tmp_path: Path, word: str):
    jobdir = tree(tmp_path / "jobs")
    assert warc(word, jobdir, code=2)[1] == (
        f"krowlspider: {jobdir} is the crawl of 3 processes: give the folder of one,"
        f" such as {jobdir}/p1\n"
    )

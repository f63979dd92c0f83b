"""Bad input: one clear line that names it, an exit code that is not 0, nothing damaged."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from typing import TYPE_CHECKING

import plyvel
import pytest

from krowlspider.archive.disk import lock_directory
from krowlspider.crawl.folder import JobFolder
from tests.support.crawling import CONTACT, Crawl, scrapy, write_seeds
from tests.support.crawls import refused
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    return write_seeds(tmp_path / "seeds.txt", ["http://127.0.0.1:81/"])


def test_without_a_contact_the_crawl_does_not_start_and_says_how(
    tmp_path: Path, seeds: Path
) -> None:
    message = refused(
        SimulatedCrawl(
            tmp_path / "job", arguments={"seeds": seeds}, settings={"KROWL_CONTACT": None}
        )
    )
    assert "KROWL_CONTACT" in message
    assert "-s KROWL_CONTACT=you@example.org" in message
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [("none/crawl.log", "cannot be written: there is no folder {}/none"), ("", "is a folder")],
)
def test_log_file_that_cannot_be_written_is_named(
    tmp_path: Path, seeds: Path, name: str, said: str
) -> None:
    log = tmp_path / name
    crawl = Crawl(tmp_path / "job", arguments={"seeds": seeds}, settings={"LOG_FILE": log})
    assert f"LOG_FILE='{log}' {said.format(tmp_path)}" in refused(crawl)


@pytest.mark.parametrize(
    "settings",
    [{"KROWL_DELAY_MIN": "x", "LOG_LEVEL": "LOUD"}, {"KROWL_WARC_DIR": "/dev/null/x"}],
)
def test_log_file_ends_with_the_error_and_the_code(
    tmp_path: Path, seeds: Path, settings: dict[str, str]
) -> None:
    log = tmp_path / "crawl.log"
    crawl = Crawl(
        tmp_path / "job", arguments={"seeds": seeds}, settings={"LOG_FILE": log, **settings}
    )
    message = refused(crawl).removeprefix("krowlspider: ")
    assert all(name in message for name in settings)
    last = log.read_text().splitlines()[-1]
    assert last.endswith(f" CRITICAL: The crawl failed with exit code 2: {message}")


def test_an_unknown_setting_is_named_with_its_nearest(tmp_path: Path, seeds: Path) -> None:
    crawl = SimulatedCrawl(
        tmp_path / "job", arguments={"seeds": seeds}, settings={"KROWL_DELAY_MINIMUM": 1}
    )
    message = refused(crawl)
    assert "KROWL_DELAY_MINIMUM" in message
    assert "KROWL_DELAY_MIN" in message.replace("KROWL_DELAY_MINIMUM", "")


def test_a_bad_value_is_named(tmp_path: Path, seeds: Path) -> None:
    crawl = SimulatedCrawl(
        tmp_path / "job", arguments={"seeds": seeds}, settings={"KROWL_ALLOW_ADDRESSES": "10/33"}
    )
    message = refused(crawl)
    assert "KROWL_ALLOW_ADDRESSES" in message
    assert "10/33" in message


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("max_pages", "many", "max_pages=many"),
        ("same_host", "perhaps", "same_host=perhaps"),
        ("allow", "(", "'('"),
        ("seed", "x", "no argument 'seed'"),
        ("seeds", "", "-a seeds= is empty: give a file"),
    ],
)
def test_a_bad_argument_is_named(
    tmp_path: Path, seeds: Path, name: str, value: str, said: str
) -> None:
    crawl = SimulatedCrawl(tmp_path / "job", arguments={"seeds": seeds, name: value})
    assert said in refused(crawl)


def test_a_missing_seeds_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.txt"
    message = refused(SimulatedCrawl(tmp_path / "job", arguments={"seeds": missing}))
    assert f"{missing} cannot be read: No such file or directory" in message
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize("packed", [False, True])
def test_a_binary_seeds_file_is_refused(tmp_path: Path, packed: bool) -> None:
    noise = random.Random(1).randbytes(5000)
    path = tmp_path / "seeds.bin"
    path.write_bytes(gzip.compress(noise) if packed else noise)
    message = refused(SimulatedCrawl(tmp_path / "job", arguments={"seeds": path}))
    assert f"{path} is binary" in message


@pytest.mark.parametrize("number", [1, 99])
def test_a_jobdir_of_another_format_is_refused_and_left_as_it_is(
    tmp_path: Path, seeds: Path, number: int
) -> None:
    job = tmp_path / "job"
    folder = JobFolder(job)
    folder.take()
    folder.leave()
    head = json.loads((job / "job.json").read_text())
    (job / "job.json").write_text(json.dumps({**head, "format": number, "software": "other"}))
    before = contents(job)
    message = refused(SimulatedCrawl(job, arguments={"seeds": seeds}))
    assert f"JOBDIR {job} has format {number}, made by other; this version reads format" in message
    assert message.endswith("use that version, or another JOBDIR")
    assert contents(job) == before


@pytest.mark.parametrize("left", [[], ["LOCK", "LOG"], ["LOCK", "LOG", "MANIFEST-000001"]])
def test_start_that_died_before_its_frontier_is_done_again(tmp_path: Path, left: list[str]) -> None:
    folder = JobFolder(tmp_path / "new" / "job")
    folder.take()
    folder.leave()
    folder.frontier.mkdir()
    for name in left:
        (folder.frontier / name).write_bytes(b"")
    with SimulatedWeb(spec=[{"path": "/", "body": "x"}]) as web:
        seeds = write_seeds(tmp_path / "seeds.txt", [web.url("a.test")])
        crawl = SimulatedCrawl(folder.path, arguments={"seeds": seeds}).run()
        assert crawl.stats["krowl/frontier/done_count"] == 1


def test_a_folder_that_is_no_crawls_is_refused_and_left_as_it_is(
    tmp_path: Path, seeds: Path
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "thesis.txt").write_text("years of work")
    message = refused(SimulatedCrawl(job, arguments={"seeds": seeds}))
    assert "'thesis.txt'" in message
    assert contents(job)["thesis.txt"] == b"years of work"
    assert set(contents(job)) <= {"thesis.txt", "lock"}


def test_a_damaged_frontier_is_refused_and_left_as_it_is(tmp_path: Path, seeds: Path) -> None:
    job = tmp_path / "job"
    crawl = SimulatedCrawl(job, arguments={"seeds": seeds}, settings={"RETRY_TIMES": 0}).run(code=4)
    (job / "frontier" / "CURRENT").write_bytes(b"nonsense")
    before = {name: data for name, data in contents(job).items() if "LOG" not in name}
    message = refused(SimulatedCrawl(job, arguments=crawl.arguments))
    assert f"{job}/frontier" in message
    after = {name: data for name, data in contents(job).items() if "LOG" not in name}
    # What the last crawl said of itself.
    before.pop("status.json", None)
    before.pop("lock"), after.pop("lock")
    assert after == before


def test_no_write_permission_is_told(tmp_path: Path, seeds: Path) -> None:
    """As another user, because root may write anywhere."""
    if os.geteuid() != 0:
        job = tmp_path / "closed" / "job"
        job.parent.mkdir(mode=0o500)
    else:
        # A file system that nobody can write: root included.
        job = tmp_path / "closed" / "job"
        job.parent.symlink_to("/proc/sys")
    message = refused(SimulatedCrawl(job, arguments={"seeds": seeds}, log_folder=tmp_path))
    assert f"JOBDIR {job} cannot be used" in message


def test_file_in_place_of_the_jobdir_is_named(tmp_path: Path, seeds: Path) -> None:
    crawl = SimulatedCrawl(seeds, arguments={"seeds": seeds})
    assert f"JOBDIR {seeds} cannot be used: it is a file; give a folder" in refused(crawl)


def test_seeds_without_one_good_line_end_the_crawl_and_are_named(tmp_path: Path) -> None:
    path = write_seeds(tmp_path / "seeds.txt", ["ftp://a.test/", "no dots"])
    crawl = SimulatedCrawl(tmp_path / "job", arguments={"seeds": path}).run(code=2)
    assert f"{path} line 1 skipped" in crawl.log
    assert f"{path} line 2 skipped" in crawl.log
    assert crawl.stats["krowl/seeds/read_count"] == 0


def test_nothing_to_crawl_is_told(tmp_path: Path) -> None:
    crawl = SimulatedCrawl(tmp_path / "job").run(code=2)
    assert "Nothing to crawl: give -a seeds=FILE" in crawl.log


@pytest.mark.parametrize(
    ("setting", "path", "reason"),
    [
        ("ITEM_PIPELINES", "nosuch.Component", "No module named 'nosuch'"),
        ("ADDONS", "nosuch.Component", "No module named 'nosuch'"),
        (
            "ITEM_PIPELINES",
            "scrapy.pipelines.Thing",
            "Module 'scrapy.pipelines' doesn't define any object named 'Thing'",
        ),
    ],
)
def test_a_component_that_is_not_there_is_named(
    tmp_path: Path, seeds: Path, setting: str, path: str, reason: str
) -> None:
    settings = {setting: json.dumps({path: 1})}
    crawl = SimulatedCrawl(tmp_path / "job", arguments={"seeds": seeds}, settings=settings)
    line = refused(crawl)
    assert line.startswith(f"krowlspider: {setting}")
    assert line.endswith(f" names {path!r}, which cannot be loaded: {reason}")


def test_spider_setting_that_is_no_mapping_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unmapped.py").write_text(
        "import scrapy\n"
        "class Own(scrapy.Spider):\n"
        "    name = 'own'\n"
        "    custom_settings = {'DOWNLOAD_SLOTS': 5}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    crawl = SimulatedCrawl(tmp_path / "job", spider="own", settings={"SPIDER_MODULES": "unmapped"})
    assert "DOWNLOAD_SLOTS=5 is not a mapping" in refused(crawl)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nosuch"], "there is no spider 'nosuch': give one of these: broad"),
        (["broad", "--max-pages"], "'--max-pages' is not an option of scrapy crawl"),
        ([], "give the name of a spider (broad)"),
        (
            ["broad", "-s", "SPIDER_MODULES=no.such"],
            "SPIDER_MODULES=no.such: there is no module 'no'",
        ),
        (["broad", "-s", "DOWNLOAD_SLOTS=[1]"], "DOWNLOAD_SLOTS='[1]' is not a mapping"),
        (["broad", "-s", "EXTENSIONS=x.Y"], "EXTENSIONS='x.Y' is not a mapping; on the command"),
    ],
)
def test_a_mistake_of_the_command_line_is_named(arguments: list[str], said: str) -> None:
    done = scrapy("crawl", *arguments, "-s", f"KROWL_CONTACT={CONTACT}", code=2)
    assert said in done.stderr.decode()


@pytest.mark.parametrize(
    "head", ['{"format": null}', '{"format": 1, "seed": "x", "software": ""}', "[]", ""]
)
def test_a_head_that_cannot_be_read_is_refused(tmp_path: Path, seeds: Path, head: str) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "job.json").write_text(head)
    assert "job.json cannot be read" in refused(SimulatedCrawl(job, arguments={"seeds": seeds}))


def test_half_written_job_head_is_written_anew(tmp_path: Path, seeds: Path) -> None:
    """The process died while it wrote job.json."""
    job = tmp_path / "job"
    job.mkdir()
    (job / "job.json.new").write_text('{"form')
    SimulatedCrawl(job, arguments={"seeds": seeds}, settings={"RETRY_TIMES": 0}).run(code=4)
    assert (job / "job.json").is_file()


def test_two_crawls_that_share_a_warc_folder_are_refused(tmp_path: Path, seeds: Path) -> None:
    shared = tmp_path / "warc"
    shared.mkdir()
    lock = lock_directory(shared)
    settings = {"KROWL_WARC_DIR": shared}
    message = refused(
        SimulatedCrawl(tmp_path / "two", arguments={"seeds": seeds}, settings=settings)
    )
    assert f"another crawl writes to {shared}" in message
    os.close(lock)


@pytest.mark.parametrize("folder", ["missing", "foreign"])
def test_scrapy_frontier_refuses_what_is_no_crawls_folder(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder
    if folder == "foreign":
        path.mkdir()
        (path / "x").touch()
    done = scrapy("frontier", path, code=2)
    assert done.stderr.decode().strip() == (
        f"krowlspider: {path} is not a crawl's folder: give the JOBDIR of a crawl"
    )


@pytest.mark.parametrize("command", ["crawl", "frontier"])
def test_frontier_without_job_head_is_refused_and_unchanged(
    tmp_path: Path, seeds: Path, command: str
) -> None:
    job = tmp_path / "job"
    crawl = SimulatedCrawl(job, arguments={"seeds": seeds}, settings={"RETRY_TIMES": 0}).run(code=4)
    (job / "job.json").unlink()
    before = contents(job / "frontier")
    if command == "crawl":
        message = refused(SimulatedCrawl(job, arguments=crawl.arguments))
    else:
        message = frontier_refusal(job)
    assert f"JOBDIR {job} has a frontier but no job.json" in message
    assert "put job.json back from a copy, or give another JOBDIR" in message
    assert contents(job / "frontier") == before
    assert not (job / "job.json").exists()


@pytest.mark.parametrize("option", ["--export", "--repair"])
def test_scrapy_frontier_refuses_a_folder_of_another_format(tmp_path: Path, option: str) -> None:
    job = tmp_path / "job"
    folder = JobFolder(job)
    folder.take()
    folder.leave()
    head = json.loads((job / "job.json").read_text())
    (job / "job.json").write_text(json.dumps({**head, "format": 99, "software": "other"}))
    message = frontier_refusal(job, option)
    assert f"JOBDIR {job} has format 99, made by other" in message
    assert not (job / "frontier").exists()


def crawled(job: Path, seeds: Path) -> Crawl:
    return SimulatedCrawl(job, arguments={"seeds": seeds}, settings={"RETRY_TIMES": 0}).run(code=4)


@pytest.mark.parametrize("option", [[], ["--export"], ["--repair"]])
def test_missing_frontier_is_named_and_none_is_made(
    tmp_path: Path, seeds: Path, option: list[str]
) -> None:
    job = tmp_path / "job"
    crawled(job, seeds)
    shutil.rmtree(job / "frontier")
    message = frontier_refusal(job, *option)
    assert f"JOBDIR {job} has no frontier/ any more: put it back from a copy" in message
    assert "mend it" not in message
    assert not (job / "frontier").exists()


@pytest.mark.parametrize("kept", ["seen", "warc"])
def test_crawl_without_its_frontier_is_not_begun_anew(
    tmp_path: Path, seeds: Path, kept: str
) -> None:
    job = tmp_path / "job"
    crawl = crawled(job, seeds)
    (job / "warc" / "a.warc.gz").touch()
    shutil.rmtree(job / "frontier")
    if kept == "warc":
        (job / "seen").unlink()
    else:
        shutil.rmtree(job / "warc")
    for _ in range(2):
        message = refused(SimulatedCrawl(job, arguments=crawl.arguments))
        assert "has no frontier/ any more: put it back from a copy" in message
        assert "--repair" not in message


@pytest.mark.parametrize("command", ["crawl", "frontier"])
def test_after_a_repair_cut_short_only_a_repair_is_done(
    tmp_path: Path, seeds: Path, command: str
) -> None:
    job = tmp_path / "my job"
    crawl = crawled(job, seeds)
    (job / "frontier").rename(job / "frontier.repairing")
    shutil.rmtree(job / "warc")
    (job / "seen").unlink()
    if command == "crawl":
        message = refused(SimulatedCrawl(job, arguments=crawl.arguments))
    else:
        message = frontier_refusal(job, "--export")
    assert f"a repair was cut short: run it again: scrapy frontier '{job}' --repair" in message
    assert not (job / "frontier").exists()


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ("--host", "the name of a host"),
        ("--drop-host", "the name of a host"),
        ("--forget", "the name of a host"),
        ("--import", "a file"),
        ("--export", "a file"),
    ],
)
def test_an_empty_name_is_a_mistake(tmp_path: Path, option: str, wanted: str) -> None:
    message = frontier_refusal(tmp_path, option, "")
    assert message == f"krowlspider: {option} is given an empty name: give {wanted}\n"


@pytest.mark.parametrize("option", [["--foo"], ["--foo=1"], ["--foo", "bar"]])
def test_an_unknown_option_of_scrapy_frontier_is_named(tmp_path: Path, option: list[str]) -> None:
    message = frontier_refusal(tmp_path, *option)
    assert message.startswith("krowlspider: --foo is not an option")


def test_scrapy_frontier_checks_settings_but_needs_no_contact(tmp_path: Path) -> None:
    message = frontier_refusal(tmp_path, "-s", "KROWL_DELAY_MIN=soon", "-s", "KROWL_X=1")
    assert message.startswith("krowlspider: KROWL_X is not a setting")
    assert "KROWL_DELAY_MIN='soon' is not a number of seconds" in message
    assert "KROWL_CONTACT" not in message
    assert len(message.splitlines()) == 1


def test_two_commands_together_are_refused(tmp_path: Path) -> None:
    assert "not allowed with argument" in frontier_refusal(tmp_path, "--repair", "--export")


def frontier_refusal(job: Path, *options: str) -> str:
    """What ``scrapy frontier`` complains of."""
    return scrapy("frontier", job, *options, code=2).stderr.decode()


@pytest.mark.parametrize("command", ["crawl", "frontier"])
def test_a_frontier_of_another_job_is_refused_and_left_as_it_is(
    tmp_path: Path, seeds: Path, command: str
) -> None:
    job, another = tmp_path / "job", tmp_path / "another"
    crawl, _ = crawled(job, seeds), crawled(another, seeds)
    shutil.rmtree(job / "frontier")
    shutil.copytree(another / "frontier", job / "frontier")
    message = (
        refused(SimulatedCrawl(job, arguments=crawl.arguments))
        if command == "crawl"
        else frontier_refusal(job)
    )
    assert "its frontier/ is of another job" in message
    assert "--repair" not in message


def test_a_frontier_of_another_program_is_refused(tmp_path: Path, seeds: Path) -> None:
    job = tmp_path / "job"
    crawled(job, seeds)
    shutil.rmtree(job / "frontier")
    with plyvel.DB(str(job / "frontier"), create_if_missing=True) as db:
        db.put(b"000001", b"another program's")
    assert "another program" in frontier_refusal(job)

"""Bad input: one clear line that names it, an exit code that is not 0, nothing damaged."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from typing import TYPE_CHECKING, Any

import plyvel
import pytest

from krowlspider.archive.disk import lock_directory
from krowlspider.job.folder import JobFolder
from tests.support.crawling import CONTACT, Crawl, scrapy, write_seeds
from tests.support.crawls import refused
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in {"lock", "LOCK", "LOG", "LOG.old"}
    }


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    return write_seeds(tmp_path / "seeds.txt", ["http://127.0.0.1:81/"])


def component(setting: str, path: str) -> dict[str, str]:
    return {setting: json.dumps({path: 1})}


NOT_LOADED = "'nosuch.Component', which cannot be loaded: No module named 'nosuch'"


# --- settings and arguments ---


@pytest.mark.parametrize(
    ("arguments", "settings", "said"),
    [
        ({}, {"KROWL_CONTACT": None}, "KROWL_CONTACT is not set: site owners must be able"),
        ({"max_pages": "many"}, {}, "max_pages=many"),
        ({"same_host": "perhaps"}, {}, "same_host=perhaps"),
        ({"allow": "("}, {}, "'('"),
        ({"allow": "\udcff"}, {}, "not a regular expression: '\\udcff'"),
        ({"seed": "x"}, {}, "no argument 'seed'"),
        ({"seeds": ""}, {}, "-a seeds= is empty: give a file"),
        ({"seeds": "./none.txt"}, {}, "none.txt cannot be read: No such file or directory"),
        ({"scope": "old"}, {}, "-a scope=old: give new, or leave it out"),
        ({"max_depth": "-1"}, {}, "0 for only the seeds; leave it out for no limit"),
        ({"max_depth": 2**63}, {}, f"max_depth={2**63} is not from 0 to"),
        ({}, component("ITEM_PIPELINES", "nosuch.Component"), NOT_LOADED),
        ({}, component("ADDONS", "nosuch.Component"), NOT_LOADED),
        (
            {},
            component("ITEM_PIPELINES", "scrapy.pipelines.Thing"),
            "Module 'scrapy.pipelines' doesn't define any object named 'Thing'",
        ),
    ],
)
def test_mistake_is_named_and_no_folder_made(
    tmp_path: Path, seeds: Path, arguments: dict[str, Any], settings: dict[str, Any], said: str
) -> None:
    job = tmp_path / "job"
    message = refused(
        SimulatedCrawl(job, arguments={"seeds": seeds, **arguments}, settings=settings)
    )
    assert said in message
    assert all(message.startswith(f"krowlspider: {name}") for name in settings)
    # Components are loaded once the folder is there.
    assert job.exists() == ("ITEM_PIPELINES" in settings)


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
    given = {"LOG_FILE": log, **settings}
    crawl = Crawl(tmp_path / "job", arguments={"seeds": seeds}, settings=given)
    message = refused(crawl).removeprefix("krowlspider: ")
    assert all(name in message for name in settings)
    last = log.read_text().splitlines()[-1]
    assert last.endswith(f" CRITICAL: The crawl failed with exit code 2: {message}")


@pytest.mark.parametrize("packed", [False, True])
def test_a_binary_seeds_file_is_refused(tmp_path: Path, packed: bool) -> None:
    noise = random.Random(1).randbytes(5000)
    path = tmp_path / "seeds.bin"
    path.write_bytes(gzip.compress(noise) if packed else noise)
    message = refused(SimulatedCrawl(tmp_path / "job", arguments={"seeds": path}))
    assert f"{path} is binary" in message


def test_seeds_without_one_good_line_end_the_crawl_and_are_named(tmp_path: Path) -> None:
    path = write_seeds(tmp_path / "seeds.txt", ["ftp://a.test/", "no dots"])
    crawl = SimulatedCrawl(tmp_path / "job", arguments={"seeds": path}).run(code=2)
    assert f"{path} line 1 skipped" in crawl.log
    assert f"{path} line 2 skipped" in crawl.log
    assert crawl.stats["krowl/seeds/read_count"] == 0


def test_nothing_to_crawl_is_told(tmp_path: Path) -> None:
    crawl = SimulatedCrawl(tmp_path / "job").run(code=2)
    assert "Nothing to crawl: give -a seeds=FILE" in crawl.log


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


# --- folders ---


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        *(
            (
                "job.json",
                {"format": number, "software": "other"},
                f"has format {number}, made by other; this version reads format",
            )
            for number in (1, 99)
        ),
        *(
            ("job.json", text, "job.json cannot be read")
            for text in (
                *('{"format": null}', "[]", ""),
                '{"format": 1, "seed": "x", "software": ""}',
            )
        ),
        ("thesis.txt", "years of work", "'thesis.txt'"),
    ],
)
def test_folder_that_is_not_this_versions_is_left_as_it_is(
    tmp_path: Path, seeds: Path, name: str, content: str | dict[str, object], said: str
) -> None:
    job = tmp_path / "job"
    if isinstance(content, dict):
        folder = JobFolder(job)
        folder.take()
        folder.leave()
        content = json.dumps({**json.loads((job / name).read_text()), **content})
        said = f"JOBDIR {job} {said}"
    job.mkdir(exist_ok=True)
    (job / name).write_text(content)
    before = contents(job)
    assert said in refused(SimulatedCrawl(job, arguments={"seeds": seeds}))
    for option in ("--export", "--repair") if "format" in said else ():
        assert said.partition(";")[0] in frontier_refusal(job, option)
    assert contents(job) == before
    assert not (job / "frontier").exists()


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


def test_no_write_permission_is_told(tmp_path: Path, seeds: Path) -> None:
    """As another user, because root may write anywhere."""
    job = tmp_path / "closed" / "job"
    if os.geteuid() != 0:
        job.parent.mkdir(mode=0o500)
    else:
        # A file system that nobody can write: root included.
        job.parent.symlink_to("/proc/sys")
    message = refused(SimulatedCrawl(job, arguments={"seeds": seeds}, log_folder=tmp_path))
    assert f"JOBDIR {job} cannot be used" in message


def test_file_in_place_of_the_jobdir_is_named(tmp_path: Path, seeds: Path) -> None:
    crawl = SimulatedCrawl(seeds, arguments={"seeds": seeds})
    assert f"JOBDIR {seeds} cannot be used: it is a file; give a folder" in refused(crawl)


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
    crawl = SimulatedCrawl(tmp_path / "two", arguments={"seeds": seeds}, settings=settings)
    assert f"another crawl writes to {shared}" in refused(crawl)
    os.close(lock)


# --- a frontier that is gone, damaged or another's ---


def crawled(job: Path) -> Path:
    """Return the folder of a crawl that has fetched nothing."""
    arguments = {"seeds": "http://127.0.0.1:81/"}
    SimulatedCrawl(job, arguments=arguments, settings={"RETRY_TIMES": 0}).run(code=4)
    # What the last crawl said of itself.
    (job / "status.json").unlink(missing_ok=True)
    return job


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return crawled(tmp_path_factory.mktemp("original") / "job")


def without_head(job: Path) -> None:
    (job / "job.json").unlink()


def without_frontier(job: Path) -> None:
    shutil.rmtree(job / "frontier")


def without_frontier_and_archive(job: Path) -> None:
    without_frontier(job)
    shutil.rmtree(job / "warc")


def without_frontier_and_filter(job: Path) -> None:
    without_frontier(job)
    (job / "warc" / "a.warc.gz").touch()
    (job / "seen").unlink()


def being_repaired(job: Path) -> None:
    (job / "frontier").rename(job / "frontier.repairing")
    shutil.rmtree(job / "warc")
    (job / "seen").unlink()


def of_another_job(job: Path) -> None:
    without_frontier(job)
    shutil.copytree(crawled(job.with_name("another")) / "frontier", job / "frontier")


def of_another_program(job: Path) -> None:
    without_frontier(job)
    with plyvel.DB(str(job / "frontier"), create_if_missing=True) as db:
        db.put(b"000001", b"another program's")


def damaged(job: Path) -> None:
    (job / "frontier" / "CURRENT").write_bytes(b"nonsense")


GONE = "JOBDIR {} has no frontier/ any more: put it back from a copy"
CRAWL = ["crawl"]
SPOILT: list[tuple[Callable[[Path], None], str, tuple[list[str], ...]]] = [
    (
        without_head,
        "put job.json back from a copy, or give another JOBDIR",
        (CRAWL, []),
    ),
    (without_frontier, GONE, ([], ["--export"], ["--repair"])),
    (without_frontier_and_archive, GONE, (CRAWL,)),
    (without_frontier_and_filter, GONE, (CRAWL,)),
    (
        being_repaired,
        "a repair was cut short: run it again: scrapy frontier '{}' --repair",
        (CRAWL, ["--export"]),
    ),
    (of_another_job, "its frontier/ is of another job", (CRAWL,)),
    (of_another_job, "its frontier/ is of another job", ([],)),
    (of_another_program, "another program", ([],)),
    (damaged, "{}/frontier", (CRAWL,)),
]


@pytest.mark.parametrize(
    ("spoil", "said", "commands"),
    SPOILT,
    ids=lambda each: getattr(each, "__name__", str(each))[:30],
)
def test_a_spoilt_frontier_is_named_and_left_as_it_is(
    original: Path,
    tmp_path: Path,
    *,
    spoil: Callable[[Path], None],
    said: str,
    commands: tuple[list[str], ...],
) -> None:
    job = tmp_path / "my job"
    shutil.copytree(original, job)
    spoil(job)
    before = contents(job)
    for command in commands:
        if command is CRAWL:
            message = refused(SimulatedCrawl(job, arguments={"seeds": "a.test"}))
        else:
            message = frontier_refusal(job, *command)
        assert said.format(job) in message
        assert ("--repair" in message) == (spoil in {being_repaired, damaged})
        # LevelDB writes some of its own when it opens a store that is whole.
        assert contents(job) == before or spoil in {of_another_job, of_another_program}


# --- scrapy frontier ---


def frontier_refusal(job: Path, *options: str) -> str:
    """What ``scrapy frontier`` complains of."""
    return scrapy("frontier", job, *options, code=2).stderr.decode()


@pytest.mark.parametrize("folder", ["missing", "foreign"])
def test_scrapy_frontier_refuses_what_is_no_crawls_folder(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder
    if folder == "foreign":
        path.mkdir()
        (path / "x").touch()
    assert frontier_refusal(path) == (
        f"krowlspider: {path} is not a crawl's folder: give the JOBDIR of a crawl\n"
    )


EMPTY = "krowlspider: {} is given an empty name: give {}\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(
            ([option, ""], EMPTY.format(option, "the name of a host"))
            for option in ("--host", "--drop-host", "--forget")
        ),
        *(([option, ""], EMPTY.format(option, "a file")) for option in ("--import", "--export")),
        *(
            (words, "krowlspider: --foo is not an option")
            for words in (["--foo"], ["--foo=1"], ["--foo", "bar"])
        ),
        (["--repair", "--export"], "not allowed with argument"),
    ],
)
def test_mistake_in_the_options_of_scrapy_frontier_is_named(
    tmp_path: Path, options: list[str], said: str
) -> None:
    assert said in frontier_refusal(tmp_path, *options)


def test_scrapy_frontier_checks_settings_but_needs_no_contact(tmp_path: Path) -> None:
    message = frontier_refusal(tmp_path, "-s", "KROWL_DELAY_MIN=soon", "-s", "KROWL_X=1")
    assert message.startswith("krowlspider: KROWL_X is not a setting")
    assert "KROWL_DELAY_MIN='soon' is not a number of seconds" in message
    assert "KROWL_CONTACT" not in message
    assert len(message.splitlines()) == 1

"""Whatever fails as a job opens or closes, nothing of it stays open, and the error is told."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from contextlib import closing
from inspect import iscoroutinefunction
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import Settings

from krowlspider import settings as defaults
from krowlspider.archive.disk import lock_directory
from krowlspider.errors import JobError, SettingsError
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import LevelStore, put
from krowlspider.frontier.work_mark import MARK, THREAD_MARK
from krowlspider.job.crawls import Crawl
from krowlspider.job.folder import JobFolder, holder_of
from krowlspider.job.job import Job
from tests.support.crawling import CONTACT

if TYPE_CHECKING:
    from collections.abc import Callable

WARC = "krowl-20260101000000-00000-a-1.warc.gz"


def job_in(folder: Path, kind: type[Job] = Job, **given: Any) -> Job:
    ours = {name: value for name, value in vars(defaults).items() if name.startswith("KROWL_")}
    own = {"KROWL_CONTACT": CONTACT, "JOBDIR": str(folder), "PROMETHEUS_ENABLED": False}
    return kind(Settings({**ours, **own, **given}))


def opened_once(folder: Path) -> None:
    """Leave the folder of a crawl that has ended."""

    async def main() -> None:
        await job_in(folder).close()

    asyncio.run(main())


# --- opening ---


def refusal(folder: Path, kind: type[Job] = Job, **given: Any) -> Exception:
    """Return the error with which the job cannot be opened; nothing of it is open then."""

    async def main() -> Exception:
        with pytest.raises((JobError, SettingsError, ValueError)) as caught:
            job_in(folder, kind, **given)
        # The error holds the frames of the opening, so nothing was closed by chance.
        assert still_open(folder) == set()
        return caught.value

    return asyncio.run(main())


def still_open(folder: Path) -> set[str]:
    """Return the files of a folder that this process has open or mapped, and writing threads."""
    links = Path("/proc/self/fd")
    found = set()
    for link in list(links.iterdir()):
        try:
            found.add(str(link.readlink()))
        except FileNotFoundError:
            continue
    maps = Path("/proc/self/maps").read_text().splitlines()
    found |= {line.split(maxsplit=5)[-1] for line in maps}
    threads = {f"thread {each.name}" for each in threading.enumerate()}
    return {path for path in found if path.startswith(str(folder))} | (
        threads & {"thread warc-writer", "thread traces"}
    )


def in_store(folder: Path, key: bytes, value: bytes) -> None:
    with closing(LevelStore(folder / "frontier")) as store:
        put(store, key, value)


def of_another_job(folder: Path) -> None:
    in_store(folder, schema.OWNER, b"\xff" * 8)


def with_damaged_outbox(folder: Path) -> None:
    in_store(folder, schema.CLEAN, b"{")


def with_damaged_note(folder: Path) -> None:
    in_store(folder, schema.OPEN_WARC, b"[")


def without_manifest(folder: Path) -> None:
    next((folder / "frontier").glob("MANIFEST-*")).write_bytes(b"")


def with_folder_for(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return spoil


def with_damaged_warc(folder: Path) -> None:
    """The archive can be opened, and then not be compared with the note of its open file."""
    in_store(folder, schema.OPEN_WARC, json.dumps([WARC, 10**6, 2]).encode())
    (folder / "warc" / WARC).mkdir()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without_manifest, "mend it with"),
        (of_another_job, "its frontier/ is of another job"),
        (with_folder_for(MARK), "Is a directory"),
        (with_folder_for(THREAD_MARK), "Is a directory"),
        (with_folder_for("seen"), "Is a directory"),
        (with_damaged_outbox, "Expecting property name"),
        (with_damaged_note, "Expecting value"),
        (with_damaged_warc, "Is a directory"),
    ],
)
def test_a_step_that_fails_closes_those_before(
    tmp_path: Path, spoil: Callable[[Path], None], said: str
) -> None:
    folder = tmp_path / "job"
    opened_once(folder)
    spoil(folder)
    error = refusal(folder)
    assert isinstance(error, JobError)
    assert str(error).startswith(f"JOBDIR {folder} cannot be used: ")
    assert said in str(error)


def test_an_archive_in_use_closes_the_frontier(tmp_path: Path) -> None:
    folder, warc = tmp_path / "job", tmp_path / "warc"
    warc.mkdir()
    lock = lock_directory(warc)
    try:
        error = refusal(folder, KROWL_WARC_DIR=str(warc))
    finally:
        os.close(lock)
    assert "another crawl writes to" in str(error)


def test_a_folder_in_use_stays_with_its_process(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    folder.take()
    with pytest.raises(JobError, match="is in use by process"):
        job_in(folder.path)
    assert holder_of(folder.path) == os.getpid()
    folder.leave()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"KROWL_WARC_DEDUP": ["/none"]}, "KROWL_WARC_DEDUP: "),
        (
            {"KROWL_WARC_PREFIX": "../a", "KROWL_WARC_REVISIT": True},
            "KROWL_WARC_PREFIX and the host's name: ",
        ),
        ({"KROWL_WARC_DIR": "/proc/none"}, "KROWL_WARC_DIR /proc/none cannot be used"),
    ],
    ids=["dedup", "prefix", "folder"],
)
def test_a_setting_that_cannot_be_used_is_named(
    tmp_path: Path, given: dict[str, object], said: str
) -> None:
    error = refusal(tmp_path / "job", **given)
    assert isinstance(error, SettingsError)
    assert str(error).startswith(said)


class Faulty(Job):
    """A job with a bug: its clock raises ValueError."""

    @staticmethod
    def monotonic() -> float:
        return float("no time")


def test_a_bug_is_not_reported_as_an_unusable_folder(tmp_path: Path) -> None:
    error = refusal(tmp_path / "job", Faulty)
    assert type(error) is ValueError
    assert str(error) == "could not convert string to float: 'no time'"


def test_a_start_after_a_failed_one_finds_the_folder_free(tmp_path: Path) -> None:
    """Each step is undone for the same process, too: LevelDB refuses a folder that is open."""
    folder = tmp_path / "job"

    async def main() -> None:
        with pytest.raises(ValueError, match="no time"):
            job_in(folder, Faulty)
        await job_in(folder).close()

    asyncio.run(main())


# --- closing ---


def looks_back(job: Job) -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    job.at_close.append(fail)


def faulty(part: str, name: str = "close") -> Callable[[Job], None]:
    """Return what makes a part of a job raise once it is closed."""

    def spoil(job: Job) -> None:
        owner = attrgetter(part)(job)
        close = getattr(owner, name)

        async def close_and_fail() -> None:
            await close()
            raise RuntimeError("a bug")

        def close_now_and_fail() -> None:
            close()
            raise RuntimeError("a bug")

        failing = close_and_fail if iscoroutinefunction(close) else close_now_and_fail
        setattr(owner, name, failing)

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        looks_back,
        faulty("snapshot", "end"),
        faulty("archive"),
        faulty("frontier"),
        faulty("crawl_log"),
        faulty("traces"),
        faulty("guard", "stop"),
        faulty("fetching.client"),
        faulty("fetching.resolver"),
        faulty("fetching.spills"),
        faulty("fetching.decoders"),
        faulty("mark"),
    ],
)
def test_a_close_that_fails_skips_no_other(tmp_path: Path, spoil: Callable[[Job], None]) -> None:
    """The error is raised once all is closed, and the next start has the folder."""
    folder = tmp_path / "job"
    log = {"KROWL_CRAWL_LOG": 1000, "KROWL_TRACES": "http://127.0.0.1:9"}

    async def main() -> None:
        job = job_in(folder, **log)
        spoil(job)
        with pytest.raises(RuntimeError, match="a bug"):
            await job.close()
        assert still_open(folder) == set()
        again = job_in(folder)
        assert not again.last_process.mended.damaged
        await again.close()

    asyncio.run(main())


class StuckNode:
    """A node that cannot leave its cluster."""

    async def stop(self) -> None:
        raise RuntimeError("a bug")


def test_a_node_that_cannot_leave_keeps_no_job_open(tmp_path: Path) -> None:
    folder = tmp_path / "job"

    async def main() -> None:
        crawl = Crawl(job_in(folder), StuckNode())  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="a bug"):
            await crawl.close()
        assert still_open(folder) == set()
        # It is closed: a failed start that follows closes nothing again.
        await crawl.close()

    asyncio.run(main())


def test_only_the_first_close_does_anything(tmp_path: Path) -> None:
    folder = tmp_path / "job"

    async def main() -> None:
        job = job_in(folder)
        await job.close()
        again = job_in(folder)
        await job.close()
        assert holder_of(folder) == os.getpid()
        await again.close()

    asyncio.run(main())

"""An open WARC file that is damaged after a kill: what was synced of it is missed, kept, salvaged,
and fetched again."""

from __future__ import annotations

import asyncio
import logging
import shutil
from itertools import product
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.tools.mend import mend_folder
from krowlspider.job.start_log import log_start

from .archiving import FILE_SIZE, PAGE_SIZE, archive, job_in
from .command import warc
from .faultpoints import PAGES, Left, role_of
from .syscalls import Act, Call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from krowlspider.job.commits import Loss

    from .faultpoints import Archiving


def killed(archiving: Archiving, folder: Path) -> Path:
    """Leave a job that was killed within its third page, and return its open file. The first two
    pages are acknowledged."""
    pages = iter(range(100))

    def die(call: Call) -> Act:
        if role_of(call.path, folder) != "open file" or call.size < PAGE_SIZE:
            return Act.PASS
        return Act.KILL_HALF if next(pages) == 2 else Act.PASS

    assert archiving.run(folder, die, file_size=10**6) == -9
    return next((folder / "warc").glob("*.open"))


async def lost(folder: Path) -> Loss | None:
    """Start a job, and return what it has lost."""
    job = job_in(folder)
    log_start(job)
    await job.close()
    return job.last_process.lost


def flipped(content: bytes, at: int = PAGE_SIZE) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def half_page(content: bytes) -> int:
    """Return where the page begins that the killed process was writing."""
    return content.rindex(b"\x1f\x8b\x08")


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda content: bytes(len(content)),
    "garbage": lambda content: b"garbage" * (len(content) // 7),
    "empty": lambda _: b"",
    "cut within the first page": lambda content: content[:PAGE_SIZE],
    "cut within the second page": lambda content: content[: 2 * PAGE_SIZE + 500],
    "a flipped bit in the first page": flipped,
    "a flipped bit at the start": lambda content: flipped(content, 0),
    "a wrong length of the last synced member": lambda content: flipped(
        content, half_page(content) - 1
    ),
    "cut by the last synced byte": lambda content: content[: half_page(content) - 1],
    "cut within the header of a member": lambda content: content[:5],
}
# What is still wrong if a record that others name is lost.
LACKING = ("the record that it is concurrent to is missing", "its warcinfo record is missing")


@pytest.mark.slow
def test_pages_of_a_damaged_open_file_are_fetched_again(
    archiving: Archiving, tmp_path: Path
) -> None:
    """Those that can be salvaged are not."""
    dead, folder = tmp_path / "dead", tmp_path / "again"
    name = killed(archiving, dead).name
    content = (dead / "warc" / name).read_bytes()
    for (what, damage), by_hand in product(DAMAGE.items(), (False, True)):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(dead, folder)
        path = folder / "warc" / name
        path.write_bytes(damaged := damage(content))
        if by_hand:
            mend_folder(path.parent)
        assert asyncio.run(archive(folder, PAGES, FILE_SIZE)) == 0, what
        end = Left.in_(folder, tmp_path / "copy")
        wrong = [each for each in end.wrong if not any(lack in each for lack in LACKING)]
        assert wrong == [], what
        assert end.archived == dict.fromkeys(range(PAGES), 1), what
        kept = path.with_name(f"{name}.damaged")
        # Without the note, a cut or empty file is what a killed process may leave.
        if not by_hand or kept.exists():
            assert kept.read_bytes() == damaged, what


def test_mend_of_a_jobdir_misses_synced_records(archiving: Archiving, tmp_path: Path) -> None:
    dead = tmp_path / "dead"
    path = killed(archiving, dead)
    path.write_bytes(path.read_bytes()[: 2 * PAGE_SIZE + 500])
    lines = warc("mend", dead)[0].decode().splitlines()
    assert lines[1] == f"damaged, kept as {path}.damaged"
    assert lines[2].startswith("salvaged 3 records into ")


def test_lost_records_are_reported_with_their_file(
    archiving: Archiving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dead = tmp_path / "dead"
    path = killed(archiving, dead)
    path.unlink()

    assert asyncio.run(lost(dead)) is not None
    [error] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert error.getMessage() == (
        f"WARC file {path.name.removesuffix('.open')} is gone: 5 of 5 records that were on the disk"
        " are lost; queued 2 URLs again"
    )


@pytest.mark.slow
def test_finished_file_is_not_missed(archiving: Archiving, tmp_path: Path) -> None:
    dead = tmp_path / "dead"
    path = killed(archiving, dead)
    mend_folder(path.parent)
    assert asyncio.run(archive(dead, PAGES, FILE_SIZE)) == 0
    for each in path.parent.iterdir():
        each.unlink()
    # The end of a crawl leaves no note on files, which may be taken away then.
    assert asyncio.run(lost(dead)) is None

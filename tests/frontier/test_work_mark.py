"""The work mark survives a crash, and names only the page being processed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.store.schema import host_key, queue_key
from krowlspider.frontier.work_mark import (
    MARK,
    MARK_AT,
    NOTHING,
    WorkMark,
    boot_id,
    left_key,
    mark_of,
)
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path

BOOT = b"7c90e567-7e12-4456-818a-8602c3cbf4a0"
KEY, LONGER_KEY = (queue_key(host_key(name), 0, 7) for name in ("a.test", "a-much-longer.test"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / MARK


def test_the_mark_of_a_dead_process_is_read_until_it_is_blanked(path: Path) -> None:
    WorkMark(path, BOOT).put(mark_of(KEY))
    assert left_key(path, BOOT) == KEY
    assert left_key(path, BOOT) == KEY
    WorkMark(path, BOOT)
    assert left_key(path, BOOT) == b""


def test_a_mark_of_another_boot_is_ignored(path: Path) -> None:
    """After a power loss the file has the mark of another boot."""
    WorkMark(path, BOOT).put(mark_of(KEY))
    assert left_key(path, b"another boot") == b""


def test_this_run_of_the_machine_has_one_id() -> None:
    assert boot_id() == boot_id() != b""


def test_a_first_start_has_no_mark(path: Path) -> None:
    assert left_key(path, BOOT) == b""
    path.write_bytes(b"")
    assert left_key(path, BOOT) == b""


@pytest.mark.parametrize("garbage", [b"x", b"\0" * 4096, b"\xff" * 4096, b"x" * 5000])
def test_garbage_is_ignored_and_overwritten(path: Path, garbage: bytes) -> None:
    path.write_bytes(garbage)
    assert left_key(path, BOOT) == b""
    WorkMark(path, BOOT).put(mark_of(KEY))
    assert left_key(path, BOOT) == KEY


@pytest.mark.parametrize("size", [1, MARK_AT, MARK_AT + 3, MARK_AT + 20, 4095])
def test_a_truncated_mark_is_ignored(path: Path, size: int) -> None:
    WorkMark(path, BOOT).put(mark_of(KEY))
    os.truncate(path, size)
    assert left_key(path, BOOT) == b""


def test_a_torn_mark_names_no_other_page(path: Path) -> None:
    """The process dies after any number of bytes of a new mark."""
    WorkMark(path, BOOT)
    blank = path.read_bytes()[:MARK_AT]
    for old in (b"", KEY, LONGER_KEY):
        for new in (b"", KEY, LONGER_KEY):
            for written in range(len(mark_of(new)) + 1):
                torn = mark_of(new)[:written] + mark_of(old)[written:]
                path.write_bytes((blank + torn).ljust(4096, b"\0"))
                assert left_key(path, BOOT) in {b"", old, new}


def test_nested_work_restores_the_outer_mark(path: Path) -> None:
    mark = WorkMark(path, BOOT)
    outer, inner = mark_of(b"qouter"), mark_of(b"qin")

    def check(expected: bytes) -> str:
        assert path.read_bytes()[MARK_AT:].startswith(expected)
        return "done"

    def nested() -> None:
        check(outer)
        assert mark.during(inner, check, inner) == "done"
        check(outer)
        with pytest.raises(ValueError, match="by the page"):
            mark.during(inner, fail)
        check(outer)

    def fail() -> None:
        raise ValueError("by the page")

    mark.during(outer, nested)
    check(NOTHING)


def test_work_that_ends_the_process_leaves_its_mark(path: Path) -> None:
    mark = WorkMark(path, BOOT)
    with pytest.raises(SystemExit):
        mark.during(mark_of(KEY), sys.exit, 1)
    assert left_key(path, BOOT) == KEY
    mark.close()
    assert left_key(path, BOOT) == b""


def test_a_closed_mark_writes_nothing_to_the_file(path: Path) -> None:
    """The next crawl may own the file already."""
    old = WorkMark(path, BOOT)
    old.put(mark_of(b"qold"))
    old.close()
    WorkMark(path, BOOT).put(mark_of(KEY))
    old.put(mark_of(b"qstill"))
    assert left_key(path, BOOT) == KEY


def test_a_mark_survives_kill_9(path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        "from krowlspider.frontier.work_mark import WorkMark, mark_of\n"
        "mark = WorkMark(Path(sys.argv[1]), b'boot')\n"
        "mark.during(mark_of(bytes.fromhex(sys.argv[2])), os.kill, os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, path, KEY.hex()], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert left_key(path, b"boot") == KEY


def test_a_folder_in_place_of_the_mark_is_an_error(path: Path) -> None:
    path.mkdir()
    with pytest.raises(OSError, match=os.strerror(21)):
        WorkMark(path, BOOT)

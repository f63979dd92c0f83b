"""``make crawl`` hands over what the user typed. ``make test-slow`` begins with the longest."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import WorkStealingScheduling

from tests.conftest import LONGEST, dealt
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path


# Without the variables of a make that runs the tests.
ENVIRONMENT = {name: value for name, value in os.environ.items() if "MAKE" not in name}


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``make -s`` with the project's Makefile in a folder."""
    for name in ("Makefile", "krowlspider"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "requirements.txt").touch()
    # Older than the stamp of what was installed.
    os.utime(folder / "requirements.txt", (0, 0))
    return subprocess.run(
        ["make", "-s", *words],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("more", "command"),
    [([], ["crawl"]), (["PROCESSES=3"], ["node", "--processes", "3"])],
    ids=["one", "three"],
)
def test_make_keeps_quotes_blanks_and_dollars(
    tmp_path: Path, more: list[str], command: list[str]
) -> None:
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    scrapy = binaries / "scrapy"
    scrapy.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    scrapy.chmod(0o755)
    (tmp_path / ".venv" / "requirements.stamp").touch()
    given = [
        "SEEDS=my seeds.txt",
        "CONTACT=me@krowl-demo.net",
        """ARGS=-s "X=a b" -a deny='x$ y$(z)'""",
    ]
    (tmp_path / "my seeds.txt").write_text("a.test")
    done = make(tmp_path, "crawl", *given, *more)
    assert done.stdout.splitlines() == [
        *(*command, "broad", "-a", "seeds=my seeds.txt", "-s", "KROWL_CONTACT=me@krowl-demo.net"),
        *("-s", "JOBDIR=jobs/default", "-s", "X=a b", "-a", "deny=x$ y$(z)"),
    ]


@pytest.mark.parametrize(
    ("seeds", "contact", "faults"),
    [
        ("a.org", "you@example.org", ["CONTACT='you@example.org' is a placeholder"]),
        ("a.org", "https://yourdomain.com/bot", ["CONTACT='https://yourdomain.com/bot' is a pla"]),
        ("a.org", "me at krowl", ["CONTACT='me at krowl' is neither an e-mail address nor"]),
        (
            "a.org",
            "m\u00e9@krowl.net",
            ["CONTACT='m\u00e9@krowl.net' must be plain printable ASCII"],
        ),
        ("a.org", "", ["site owners must be able to reach you"]),
        ("", "me@krowl.net", ["give a file of seeds, or the seeds"]),
        ("seeds.txt", "me@krowl.net", ["SEEDS='seeds.txt': there is no such file"]),
        ("a.org/b", "me@krowl.net", ["no such file; a URL with a path begins with https://"]),
        ("krowlspider", "me@krowl.net", ["SEEDS='krowlspider' is a folder: give a file"]),
        ("no.txt", "me@localhost", ["there is no such file", "CONTACT='me@localhost' is"]),
    ],
)
def test_make_refuses_what_the_crawl_would_before_it_installs(
    tmp_path: Path, seeds: str, contact: str, faults: list[str]
) -> None:
    """By a Python that has its standard library alone."""
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -W error "$@"\n')
    bare.chmod(0o755)
    done = make(tmp_path, "crawl", f"SEEDS={seeds}", f"CONTACT={contact}", f"PYTHON={bare}")
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if line.startswith("make crawl: ")]
    assert len(said) == len(faults), done.stderr
    assert all(fault in line for fault, line in zip(faults, said, strict=True))
    assert not (tmp_path / ".venv").exists()


class Worker:
    """What `WorkStealingScheduling` needs of one, with the tests that it was given."""

    shutting_down = False
    gateway = SimpleNamespace(id="")

    def __init__(self) -> None:
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices


class Config:
    @staticmethod
    def getvalue(name: str) -> list[str]:
        return {"tx": ["3*popen"]}[name]


@pytest.mark.parametrize("others", [100, 101, 102])
def test_each_worker_begins_with_some_of_the_longest(others: int) -> None:
    """What is at the front of a worker is not taken by others."""
    items = [f"test_{number}.py" for number in range(others)] + [*LONGEST] * 2
    order = dealt(items, 3, str)
    assert sorted(order) == sorted(items)
    scheduling = WorkStealingScheduling(Config)  # type: ignore[arg-type]
    workers = [Worker() for _ in range(3)]
    for worker in workers:
        scheduling.add_node(worker)  # type: ignore[arg-type]
        scheduling.add_node_collection(worker, order)  # type: ignore[arg-type]
    scheduling.schedule()
    fronts = [[order[at] for at in worker.given[:10]] for worker in workers]
    assert sorted(name for front in fronts for name in front) == sorted([*LONGEST] * 2)
    assert {front[0] for front in fronts} == {*LONGEST[:2]}


def test_the_longest_tests_are_there() -> None:
    assert {*LONGEST} <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}

"""The systemd units are valid, and a crawl works under their limits."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from krowlspider import settings
from krowlspider.commands import crawl as exits
from tests.deploy.unit import CRAWL, SYSTEMD, confined, read_unit
from tests.mockweb import MockWeb
from tests.support.crawling import DEADLINE, ROOT, SETTINGS
from tests.support.crawls import anchors, page
from tests.support.debian import program

if TYPE_CHECKING:
    from pathlib import Path

UNIT = read_unit(CRAWL)


def exec_start(**variables: str) -> list[str]:
    """Return the words of ExecStart after the program, with these variables."""
    (command,) = UNIT["ExecStart"]
    words = command.split()
    assert words[0] == "/srv/krowl/venv/bin/scrapy"
    return [each for word in words[1:] for each in variables.get(word[1:], word).split()]


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Return a copy of the units on a machine that has what they start."""
    machine = tmp_path / "machine"
    bin_ = machine / "venv" / "bin"
    bin_.mkdir(parents=True)
    (machine / "project").mkdir()
    for name in ("scrapy", "scrapyd"):
        (bin_ / name).write_text("#!/bin/sh\n")
        (bin_ / name).chmod(0o755)
    copy = tmp_path / "units"
    drop_ins = copy / "krowlspider@.service.d"
    drop_ins.mkdir(parents=True)
    shutil.copy(SYSTEMD / "cluster.conf", drop_ins)
    for path in SYSTEMD.glob("*.service"):
        (copy / path.name).write_text(path.read_text().replace("/srv/krowl", str(machine)))
    return copy


def analyze(folder: Path, *words: str) -> str:
    """Return all that systemd-analyze prints about the units of a folder."""
    done = subprocess.run(
        [program("systemd-analyze"), *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_systemd_finds_no_fault_in_the_units(units: Path) -> None:
    """It prints what it ignores, with exit code 0."""
    assert analyze(units, "verify", "./krowlspider@autumn.service", "./scrapyd.service") == ""
    # In tenths: the least exposed service that is common has 20.
    for unit in SYSTEMD.glob("*.service"):
        analyze(units, "security", "--offline=yes", "--threshold=20", f"./{unit.name}")


def test_all_units_are_confined_alike() -> None:
    """Each line after the comment about folders, but the folders."""
    text = CRAWL.read_text()
    lines = text[text.index("ProtectSystem=") : text.index("[Install]")]
    keys = re.findall(r"^(\w+)=", lines, re.MULTILINE)
    assert len(keys) > 20
    for path in SYSTEMD.glob("*.service"):
        unit = read_unit(path)
        for key in {*keys, "MemoryMax", "OOMPolicy", "LimitNOFILE"} - {"ReadWritePaths"}:
            assert unit.get(key) == UNIT[key], (path.name, key)


def test_a_disk_that_stays_full_is_tried_for_ever() -> None:
    for path in SYSTEMD.glob("*.service"):
        unit = read_unit(path)
        assert unit["StartLimitIntervalSec"] == ["0"]
        assert "StartLimitBurst" not in unit
    assert int(UNIT["RestartSec"][0]) >= 60


@pytest.mark.slow
def test_refused_crawl_is_not_started_again(tmp_path: Path) -> None:
    environment = {**os.environ, "JOBDIR": str(tmp_path / "job"), "KROWL_CONTACT": "x"}
    crawl = subprocess.run(
        [sys.executable, "-m", "scrapy", *exec_start(COMMAND="crawl", ARGUMENTS="")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert crawl.stderr.startswith("krowlspider: KROWL_CONTACT='x' is neither an e-mail address")
    assert UNIT["Restart"] == ["on-failure"]
    assert str(crawl.returncode) in UNIT["RestartPreventExitStatus"][0].split()


@pytest.mark.parametrize(("policies", "code"), [("sheets.toml", 0), ("", 2), (None, 2)])
def test_reload_sends_sighup_only_if_there_are_sheets(policies: str | None, code: int) -> None:
    """Without them it would stop the crawl."""
    (command,) = UNIT["ExecReload"]
    words = shlex.split(command.replace("$$", "$"))
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        environment = {"MAINPID": str(process.pid)}
        if policies is not None:
            environment["KROWL_POLICIES"] = policies
        done = subprocess.run(words, env=environment, stderr=subprocess.PIPE, check=False)
        # It has no effect on a process that SIGHUP has ended.
        process.kill()
    assert (done.returncode, process.returncode == -signal.SIGHUP) == (code, not code)
    assert (b"KROWL_POLICIES" in done.stderr) == bool(code)


def test_only_a_crash_and_a_full_disk_start_it_again() -> None:
    listed = re.findall(r"^\| (\d) \|", (ROOT / "docs" / "exit-codes.md").read_text(), re.MULTILINE)
    kept = {*map(int, listed)} - {*map(int, UNIT["RestartPreventExitStatus"][0].split())}
    assert kept == {0, 1, exits.STORAGE_FAILED}


def test_stop_waits_for_the_drain_and_requests() -> None:
    patience = settings.KROWL_DRAIN_TIMEOUT + 2 * settings.DOWNLOAD_TIMEOUT
    assert int(UNIT["TimeoutStopSec"][0]) > patience
    assert int(UNIT["LimitNOFILE"][0]) > settings.CONCURRENT_REQUESTS + 2_348


def test_every_variable_of_the_units_is_a_setting() -> None:
    lines = UNIT["Environment"] + read_unit(SYSTEMD / "cluster.conf")["Environment"]
    names = {line.partition("=")[0] for line in lines}
    assert {name for name in names if not hasattr(settings, name)} == {"COMMAND"}


@pytest.mark.slow
def test_crawl_works_under_the_limits_of_its_unit(tmp_path: Path) -> None:
    """On read-only disks, and killed at a system call or socket that the unit does not list."""
    program("redis-server")
    jobs = tmp_path / "jobs"
    (jobs / "tmp").mkdir(parents=True)
    rules = [page("/robots.txt", ""), page("/", anchors("/a")), page("/a", "")]
    with MockWeb(spec=rules) as web:
        words = [f"-a seeds={web.url('127.0.0.1')}"]
        words += [f"-s {name}={value}" for name, value in SETTINGS.items() if "SECRET" not in name]
        crawl = exec_start(COMMAND="node", ARGUMENTS=" ".join(words).replace('": "', '":"'))
        # Modules of tests take such variables out of the environment.
        variables = ["env", f"JOBDIR={jobs / 'autumn'}", f"TMPDIR={jobs / 'tmp'}"]
        command = [*variables, sys.executable, "-m", "scrapy", *crawl, "--processes", "2"]
        script = f'touch "{tmp_path}/other" || exec "$@"'
        done = subprocess.run(
            confined(jobs, ["sh", "-c", script, "sh", *command]),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-5000:]
        assert {entry.path for entry in web.log()} == {"/robots.txt", "/", "/a"}
    assert "other': Read-only file system" in done.stdout
    assert list((jobs / "autumn").glob("p*/warc/*.warc.gz"))

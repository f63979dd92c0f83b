"""Crawls that scrapyd starts, asked for by its HTTP API."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from tests.mockweb import MockWeb
from tests.support.crawling import ROOT, SETTINGS
from tests.support.crawls import anchors, page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

README = ROOT / "deploy" / "README.md"
PORT = "16800"
USER = base64.b64encode(b"krowl:secret").decode()


def asked(word: str, data: dict[str, Any] | None = None, query: str = "") -> dict[str, Any]:
    """Return the answer of scrapyd to a call, which has to begin within 20 s."""
    body = urlencode(data, doseq=True).encode() if data else None
    call = Request(f"http://127.0.0.1:{PORT}/{word}.json{query}", body)
    call.add_header("Authorization", f"Basic {USER}")
    end = time.monotonic() + 20
    while True:
        try:
            with urlopen(call, timeout=20) as response:
                answer: dict[str, Any] = json.load(response)
        except URLError:
            assert time.monotonic() < end
            time.sleep(0.2)
        else:
            assert answer["status"] == "ok", answer
            return answer


def start(folder: Path, library: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "SCRAPYD_PASSWORD": "secret"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(library)])
    with (folder / "scrapyd.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "scrapyd"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that scrapyd is installed in; what it needs is in this environment."""
    target = tmp_path_factory.mktemp("scrapyd") / "library"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    wanted = str(ROOT / "tests" / "scrapyd-requirements.txt")
    subprocess.run([*pip, "--target", str(target), "-r", wanted], check=True)
    return target


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "node"
    folder.mkdir()
    (folder / "scrapy.cfg").write_text("[settings]\nkrowlspider = krowlspider.project\n")
    settings = (ROOT / "deploy" / "scrapyd.conf").read_text().replace("6800", PORT)
    (folder / "scrapyd.conf").write_text(settings)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_failed_start_ends_the_log_of_its_job(folder: Path, library: Path, tmp_path: Path) -> None:
    """The jobs wait in the queue, which outlives scrapyd."""
    job = {
        "project": "krowlspider",
        "spider": "broad",
        "seeds": "http://127.0.0.1/",
        "setting": "KROWL_CONTACT=crawl@library.internal",
    }
    missing = str(tmp_path / "none.txt")
    jobs = {"settings": {"setting": "KROWL_CONTACT=x"}, "seeds": {"seeds": missing}}
    config = folder / "scrapyd.conf"
    usual = config.read_text()
    # It looks at the queue once, while that is empty.
    config.write_text(usual.replace("= 2.0", "= 600"))
    server = start(folder, library)
    try:
        asked("daemonstatus")
        for name, words in jobs.items():
            asked("schedule", {**job, **words, "jobid": name})
        server.kill()
        server.wait()
        config.write_text(usual)
        server = start(folder, library)
        end = time.monotonic() + 60
        while len(asked("listjobs", query="?project=krowlspider")["finished"]) < len(jobs):
            assert time.monotonic() < end
            time.sleep(0.3)
    finally:
        server.kill()
        server.wait()
    logs = folder / "logs" / "krowlspider" / "broad"
    last = {path.stem: path.read_text().splitlines()[-1] for path in logs.glob("*.log")}
    failed = "CRITICAL: The crawl failed with exit code 2: "
    assert f"{failed}KROWL_CONTACT='x' is neither" in last["settings"]
    assert f"{failed}seeds file {missing} cannot be read" in last["seeds"]


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_job_continues_after_a_reboot(folder: Path, library: Path, tmp_path: Path) -> None:
    """scrapyd does not know it any more, and its log has no end. SIGTERM for scrapyd and its crawls
    together, as by its unit, ends them."""
    rules = [page("/robots.txt", ""), *(page(f"/{n}", anchors(f"/{n + 1}")) for n in range(99))]
    logs = folder / "logs" / "krowlspider" / "broad"
    with MockWeb(spec=rules) as web:
        settings = {**SETTINGS, "JOBDIR": tmp_path / "job", "KROWL_DELAY_MIN": 0.5}
        job = {
            "project": "krowlspider",
            "spider": "broad",
            "seeds": web.url("127.0.0.1", "/0"),
            "setting": [f"{name}={value}" for name, value in settings.items()],
        }
        server = start(folder, library)
        try:
            asked("schedule", {**job, "jobid": "first"})
            wait_until(lambda: any(entry.path == "/1" for entry in web.log()))
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            server = start(folder, library)
            jobs = asked("listjobs", query="?project=krowlspider")
            assert not any(jobs[state] for state in ("pending", "running", "finished"))
            asked("schedule", {**job, "jobid": "second"})
            second = logs / "second.log"
            wait_until(lambda: second.exists() and ", continued: " in second.read_text())
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()
            wait_until(lambda: "Crawl ended (shutdown)" in second.read_text())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()
    go_on = f"the same schedule.json with setting=JOBDIR={tmp_path / 'job'}"
    wait_until(lambda: go_on in second.read_text())
    listing = next(line for line in README.read_text().splitlines() if "grep -L" in line)
    listed = subprocess.run(listing, shell=True, cwd=folder, capture_output=True, check=False)
    assert listed.stdout == b"logs/krowlspider/broad/first.log\n"


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)

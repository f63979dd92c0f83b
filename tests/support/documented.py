"""The commands in README.md and docs/, and a copy of the project in which a test runs them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.crawling import CONTACT, DEADLINE, ROOT, SETTINGS, write_seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.mockweb import MockWeb

_FENCE = re.compile(r"^ *```(?:sh|console)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
# The parts of the project to which a copy links.
_PARTS = (
    *("krowlspider", "extensions", "middlewares", "tests", "Makefile"),
    *("requirements.txt", "requirements-dev.txt"),
)


def pages() -> list[Path]:
    """Return README.md and the pages of docs/, without the decision records."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(page: Path) -> list[str]:
    """Return the commands of a page in order, each as one line."""
    joined = (re.sub(r" \\\n *", " ", block) for block in _FENCE.findall(page.read_text()))
    lines = (line.strip().removeprefix("$ ") for block in joined for line in block.splitlines())
    return [line for line in lines if line]


# Settings of other tests: of the file for the stats.
_LEFT_OUT = ("STATS_CLASS",)


@dataclass
class Running:
    """A command that runs, and the file that has what it prints."""

    command: str
    process: subprocess.Popen[bytes]
    path: Path

    @property
    def log(self) -> str:
        return self.path.read_text(errors="replace")

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition while the command runs."""
        end = time.monotonic() + DEADLINE
        while not condition():
            assert self.process.poll() is None, f"{self.command} has ended:\n{self.log[-5000:]}"
            assert time.monotonic() < end, f"the condition never held:\n{self.log[-5000:]}"
            time.sleep(0.1)

    def interrupt(self) -> None:
        """Press Ctrl-C in its terminal, and wait for the end."""
        os.killpg(self.process.pid, signal.SIGINT)
        # A make that is interrupted has no exit code of its own.
        self.wait({0, -signal.SIGINT} if self.command.startswith("make ") else {0})

    def wait(self, codes: set[int] = {0}) -> None:  # noqa: B006
        code = self.process.wait(DEADLINE)
        assert code in codes, f"{self.command}\nexit code {code}:\n{self.log[-5000:]}"

    def kill(self) -> None:
        """End all that a failed test left of it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Copy:
    """A copy of the project whose crawls reach the mock web.

    In a command, https://example.org/ becomes the mock web's URL, names of hosts have its port, and
    the placeholder of a contact becomes that of the tests.
    """

    def __init__(self, folder: Path, web: MockWeb):
        self.folder = folder
        # What stands in a command for a place that the documentation names.
        self.places: dict[str, str] = {}
        self._web = web
        for name in _PARTS:
            (folder / name).symlink_to(ROOT / name)
        self._make_venv()
        hosts = ("example.org", "example.com", "example.net")
        write_seeds(folder / "seeds" / "example.txt", [web.url(host) for host in hosts])
        (folder / "scrapy.cfg").write_text("[settings]\ndefault = mock_settings\n")
        lines = (f"{name} = {value!r}" for name, value in SETTINGS.items() if name not in _LEFT_OUT)
        text = "\n".join(
            [
                "from krowlspider.project import *",
                *lines,
                "KROWL_RESOLVE = dict.fromkeys(['*.org', '*.com', '*.net', '*.test'], '127.0.0.1')",
            ]
        )
        self.settings = folder / "mock_settings.py"
        self.settings.write_text(f"{text}\n")

    def _make_venv(self) -> None:
        """Make a venv that make takes for complete."""
        venv = self.folder / ".venv"
        venv.mkdir()
        for path in Path(sys.prefix).iterdir():
            if path.suffix != ".stamp":
                (venv / path.name).symlink_to(path)
        for name in ("requirements", "requirements-dev"):
            (venv / f"{name}.stamp").touch()

    def run(self, command: str) -> str:
        """Run a command; assert exit code 0. Return what it printed."""
        done = self._ended(command)
        assert done.returncode == 0, (
            f"{command}\nexit code {done.returncode}:\n{done.stdout[-5000:]}"
        )
        return done.stdout

    def code(self, command: str) -> int:
        """Run a command; return its exit code."""
        return self._ended(command).returncode

    def _ended(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", self._put(command)],
            cwd=self.folder,
            env=dict(self._environment()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=DEADLINE,
            check=False,
        )

    def start(self, command: str) -> Running:
        """Start a command as in a terminal of its own."""
        path = self.folder / f"{time.monotonic_ns()}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {self._put(command)}"],
                cwd=self.folder,
                env=dict(self._environment()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Running(command, process, path)

    def _put(self, command: str) -> str:
        """Return the command with the URLs of the mock web."""
        # Scrapy's own components do not use KROWL_RESOLVE.
        host = "127.0.0.1" if "scrapy fetch" in command else "example.org"
        command = command.replace("https://example.org/", self._web.url(host))
        command = command.replace("you@example.org", CONTACT)
        for documented, there in self.places.items():
            command = command.replace(documented, there)
        return re.sub(r"(--[a-z-]+ example\.\w+)", rf"\1:{self._web.port}", command)

    def _environment(self) -> Iterator[tuple[str, str]]:
        """Yield the environment without the variables of a make that runs the tests."""
        for name, value in os.environ.items():
            if not name.startswith(("MAKE", "MFLAGS", "PYTEST")):
                yield name, value
        (self.folder / "tmp").mkdir(exist_ok=True)
        yield "TMPDIR", str(self.folder / "tmp")

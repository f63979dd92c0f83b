"""Find programs on PATH, or in Debian's packages, which are fetched once and unpacked."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from tests.support.warm import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

# If it is removed, it is made again from the current packages.
CACHE = ROOT / ".cache" / "debian"
# Seconds; the longest step fetches 124 MB.
_TIMEOUT = 600


@dataclass(frozen=True, slots=True)
class Package:
    """A package, the path of its program in it, and the suite to fetch it from, by default that of
    the machine."""

    name: str
    program: str
    suite: str | None = None


PACKAGES = {
    # Debian's usr/bin/chromium is a script that looks for the rest in /usr/lib.
    "chromium": Package("chromium", "usr/lib/chromium/chromium"),
    "redis-server": Package("redis-server", "usr/bin/redis-server"),
    "ip": Package("iproute2", "bin/ip"),
    "nginx": Package("nginx", "usr/sbin/nginx"),
    # It finds initdb and postgres beside itself.
    "pg_ctl": Package("postgresql-15", "usr/lib/postgresql/15/bin/pg_ctl", "bookworm"),
    # Debian's last version that knows consul_sd_configs: 2.24.1.
    "prometheus": Package("prometheus", "usr/bin/prometheus", "bullseye"),
    "promtool": Package("prometheus", "usr/bin/promtool"),
    "systemd-analyze": Package("systemd", "usr/bin/systemd-analyze"),
    "unbound": Package("unbound", "usr/sbin/unbound"),
    "unbound-checkconf": Package("unbound", "usr/sbin/unbound-checkconf"),
    # Debian's last version of it: 1.8.7.
    "consul": Package("consul", "usr/bin/consul", "bullseye"),
}


class MissingProgram(Exception):
    """A program is not on PATH and cannot be fetched. The message says what to do."""


# Servers are in folders that not all users have on PATH, PostgreSQL's in one that nobody has.
_SERVERS = "/usr/sbin:/usr/lib/postgresql/15/bin"


def program(name: str, cache: Path = CACHE, path: str | None = None) -> Path:
    """Return the path of a program of `PACKAGES` that can be run.

    It is searched on ``path``, by default PATH and the folder of servers. If several processes call
    this at once, one fetches and the others wait.

    :raises MissingProgram: it is not on PATH, and apt cannot fetch it
    """
    if path is None:
        path = f"{os.environ['PATH']}:{_SERVERS}"
    if found := shutil.which(name, path=path):
        return Path(found)
    # A cache may hold the program of another suite.
    cache /= PACKAGES[name].suite or ""
    launcher = cache / name / name
    if not launcher.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / "lock"):
            if not launcher.exists():
                _make(name, cache)
    return launcher


def _make(name: str, cache: Path) -> None:
    package = PACKAGES[name]
    unfinished = cache / f"{name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    root = unfinished / "root"
    root.mkdir(parents=True)
    try:
        for archive in _fetched(package, unfinished / "apt"):
            _output("dpkg-deb", "-x", archive, root)
        if not (root / package.program).exists():
            raise FileNotFoundError(f"what apt-get fetched holds no {package.program}")
    except (OSError, subprocess.SubprocessError) as error:
        reason = str(getattr(error, "stderr", None) or error).strip()
        raise MissingProgram(
            f"no {name} on PATH, and Debian's package {package.name} is not to be had:\n{reason}\n"
            f"Install {name} so that it is on PATH, or see to it that apt-get fetches packages here"
        ) from error
    shutil.rmtree(unfinished / "apt")
    _write_launcher(unfinished / name, root, package.program)
    unfinished.rename(cache / name)


def _fetched(package: Package, folder: Path) -> list[Path]:
    """Fetch a package, and those of its dependencies that are not installed."""
    apt = Apt(folder / "own")
    apt.update()
    if package.suite is not None:
        apt = apt.of_suite(package.suite, folder)
        apt.update()
    return apt.download(package.name)


class Apt:
    """Runs apt with the machine's configuration and list of installed packages.

    It writes only into ``folder``: it needs no root and leaves the machine unchanged. Its package
    lists are always new.
    """

    def __init__(self, folder: Path, more: Iterable[str] = ()):
        self._folder = folder
        self._complaints = ""
        for each in ("lists", "archives"):
            (folder / each / "partial").mkdir(parents=True)
        self._options = [
            *("-o", f"Dir::State={folder}", "-o", f"Dir::State::lists={folder / 'lists'}"),
            *("-o", f"Dir::Cache={folder}", "-o", f"Dir::Cache::archives={folder / 'archives'}"),
            *("-o", f"Dir::State::status={_installed()}"),
            # Only root may take the machine's locks.
            *("-o", "Debug::NoLocking=true", "-o", "APT::Sandbox::User=root"),
            *("-o", "Acquire::Languages=none"),
            *("-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"),
            *more,
        ]

    def update(self) -> None:
        """Fetch the package lists. Errors are reported only if a package is missing later."""
        done = subprocess.run(
            ["apt-get", *self._options, "update"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT,
        )
        self._complaints = done.stderr

    def download(self, package: str) -> list[Path]:
        how = ("install", "--yes", "--download-only", "--no-install-recommends", package)
        try:
            _output("apt-get", *self._options, *how)
        except subprocess.CalledProcessError as error:
            raise OSError(f"{self._complaints}{error.stderr}") from error
        return sorted(self._folder.glob("archives/*.deb"))

    def of_suite(self, suite: str, folder: Path) -> Apt:
        """Return an Apt for another suite of the Debian archive that the machine uses."""
        archive = _output(
            *("apt-get", *self._options, "indextargets", "--format", "$(REPO_URI)"),
            *("Created-By: Packages", "Origin: Debian", "Label: Debian"),
        ).split()
        if not archive:
            raise OSError(f"{self._complaints}the sources of apt do not name Debian's archive")
        sources = folder / f"{suite}.list"
        sources.write_text(f"deb {archive[0]} {suite} main\n")
        more = ("-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=-")
        return Apt(folder / suite, more)


def _installed() -> str:
    """Return the path of the machine's list of installed packages."""
    assignment = _output("apt-config", "shell", "file", "Dir::State::status/f")
    return shlex.split(assignment)[0].partition("=")[2]


def _write_launcher(path: Path, root: Path, program: str) -> None:
    """Write a script that runs a program with its fetched libraries. The folder may be moved."""
    folders = {library.parent.relative_to(root) for library in root.rglob("lib*.so*")}
    libraries = ":".join(f"$root/{folder}" for folder in sorted({Path("usr/lib"), *folders}))
    path.write_text(
        '#!/bin/sh\nroot=$(dirname "$(readlink -f "$0")")/root\n'
        f'export LD_LIBRARY_PATH="{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"\n'
        f'exec "$root/{program}" "$@"\n'
    )
    path.chmod(0o755)


def _output(*command: str | Path) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=_TIMEOUT
    ).stdout

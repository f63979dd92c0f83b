"""Programs come out of Debian's packages with nothing prepared by hand."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.debian import PACKAGES, program
from tests.support.warm import ROOT

ASK = """
import sys
from pathlib import Path
from tests.support.debian import program
print(program(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
"""
# What fetching needs.
TOOLS = ("apt-get", "apt-config", "dpkg", "dpkg-deb", "tar")


def asking(name: str, cache: Path, path: str, apt: Path | None = None) -> subprocess.Popen[str]:
    """A process that asks for a program on a path, whatever the machine has besides."""
    environment = {"PATH": path} if apt is None else {"PATH": path, "APT_CONFIG": str(apt)}
    return subprocess.Popen(
        [sys.executable, "-c", ASK, name, str(cache), path],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def asked(name: str, cache: Path, path: str, apt: Path | None = None) -> tuple[int, str, str]:
    """Exit code, output and errors of a process that asks for a program."""
    process = asking(name, cache, path, apt)
    out, errors = process.communicate(timeout=60)
    return process.returncode, out.strip(), errors


class Archive:
    """A Debian archive in a folder, and the configuration by which apt takes its first suite alone,
    on a machine that has nothing installed."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        self.installed = folder / "status"
        self.installed.touch()
        (folder / "sources.list").write_text(f"deb copy:{folder} first main\n")
        self.configuration = folder / "apt.conf"
        self.configuration.write_text(
            f'Dir::Etc::SourceList "{folder}/sources.list"; Dir::Etc::SourceParts "-";\n'
            f'Dir::State::status "{self.installed}";\n'
            'Acquire::AllowInsecureRepositories "true"; APT::Get::AllowUnauthenticated "true";\n'
        )

    def package(self, name: str, files: dict[str, str], depends: str = "") -> str:
        """The paragraph of a package that is made of ``files``, by path."""
        tree = self.folder / name
        control = f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\n"
        control += f"Description: x\n{depends and f'Depends: {depends}'}\n".rstrip("\n") + "\n"
        for path, text in {**files, "DEBIAN/control": control}.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
            (tree / path).chmod(0o755)
        archive = self.folder / f"{name}.deb"
        command = ["dpkg-deb", "--root-owner-group", "--build", tree, archive]
        subprocess.run(command, check=True, capture_output=True)
        sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
        size = archive.stat().st_size
        return f"{control}Filename: {archive.name}\nSize: {size}\nSHA256: {sha256}\n\n"

    def suite(self, name: str, *paragraphs: str) -> None:
        folder = self.folder / "dists" / name
        machine = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
        listed = folder / "main" / f"binary-{machine}" / "Packages"
        listed.parent.mkdir(parents=True)
        listed.write_text("".join(paragraphs))
        sha256 = hashlib.sha256(listed.read_bytes()).hexdigest()
        (folder / "Release").write_text(
            f"Origin: Debian\nLabel: Debian\nSuite: {name}\nCodename: {name}\n"
            f"Architectures: {machine}\nComponents: main\nSHA256:\n"
            f" {sha256} {listed.stat().st_size} {listed.relative_to(folder)}\n"
        )


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A PATH on which no program of `PACKAGES` is, on whatever machine."""
    folder = tmp_path / "bare"
    folder.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return str(folder)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Its first suite has a redis-server with a library, its suite bullseye a consul."""
    archive = Archive(tmp_path / "archive")
    says = '#!/bin/sh\necho "$0 $LD_LIBRARY_PATH $*"\n'
    archive.suite(
        "first",
        archive.package("redis-server", {"usr/bin/redis-server": says}, depends="libredis"),
        archive.package("libredis", {"usr/lib/here/libredis.so.1": ""}),
    )
    archive.suite("bullseye", archive.package("consul", {"usr/bin/consul": says}))
    return archive


def test_the_program_on_path_is_taken(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "consul").write_text("#!/bin/sh\n")
    (own / "consul").chmod(0o755)
    found = asked("consul", tmp_path / "cache", str(own))
    assert found == (0, str(own / "consul"), "")
    assert not (tmp_path / "cache").exists()


def test_a_program_runs_with_the_libraries_that_come_with_it(
    tmp_path: Path, bare: str, archive: Archive
) -> None:
    code, path, errors = asked("redis-server", tmp_path / "cache", bare, archive.configuration)
    assert (code, errors) == (0, "")
    moved = (tmp_path / "cache").rename(tmp_path / "elsewhere") / "redis-server"
    root = moved / "root"
    environment = {**os.environ, "LD_LIBRARY_PATH": "/mine"}
    said = subprocess.check_output(
        [moved / Path(path).name, "a b", "c"], env=environment, text=True
    )
    assert said.split() == [
        f"{root}/usr/bin/redis-server",
        f"{root}/usr/lib:{root}/usr/lib/here:/mine",
        *("a", "b", "c"),
    ]


def test_program_may_come_from_another_suite(tmp_path: Path, bare: str, archive: Archive) -> None:
    code, path, errors = asked("consul", tmp_path / "cache", bare, archive.configuration)
    assert (code, errors) == (0, "")
    said = subprocess.check_output([path, "agent"], text=True)
    assert said.endswith("root/usr/lib agent\n")


def test_a_library_that_the_machine_has_is_not_fetched(
    tmp_path: Path, bare: str, archive: Archive
) -> None:
    control = (archive.folder / "libredis" / "DEBIAN" / "control").read_text()
    archive.installed.write_text(f"{control}Status: install ok installed\n\n")
    code, path, _ = asked("redis-server", tmp_path / "cache", bare, archive.configuration)
    assert code == 0
    assert not list(Path(path).parent.rglob("libredis*"))


def test_processes_that_ask_at_once_share_one_fetch(
    tmp_path: Path, bare: str, archive: Archive
) -> None:
    """A second fetch would fail where it puts its folder in the place of the first."""
    cache = tmp_path / "cache"
    processes = [asking("redis-server", cache, bare, archive.configuration) for _ in range(3)]
    results = [(*process.communicate(timeout=60), process.returncode) for process in processes]
    assert results == [(f"{cache / 'redis-server' / 'redis-server'}\n", "", 0)] * 3
    assert sorted(path.name for path in cache.iterdir()) == ["lock", "redis-server"]


def test_what_a_dead_process_left_unfinished_is_made_anew(
    tmp_path: Path, bare: str, archive: Archive
) -> None:
    cache = tmp_path / "cache"
    (cache / "redis-server.unfinished" / "root" / "usr").mkdir(parents=True)
    code, path, _ = asked("redis-server", cache, bare, archive.configuration)
    assert code == 0
    assert subprocess.run([path], capture_output=True, check=False).returncode == 0


def test_a_machine_without_apt_is_told_the_way_out(tmp_path: Path) -> None:
    code, _, errors = asked("consul", tmp_path / "cache", str(tmp_path))
    assert code == 1
    assert "No such file or directory: 'apt-config'" in errors
    assert "Install consul so that it is on PATH" in errors


def test_an_archive_out_of_reach_is_told_in_the_words_of_apt(
    tmp_path: Path, bare: str, archive: Archive
) -> None:
    (archive.folder / "dists").rename(tmp_path / "away")
    code, _, errors = asked("redis-server", tmp_path / "cache", bare, archive.configuration)
    assert code == 1
    assert f"copy:{archive.folder} first Release" in errors
    assert "Unable to locate package redis-server" in errors
    assert not (tmp_path / "cache" / "redis-server").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PACKAGES)
def test_each_program_runs_here(name: str) -> None:
    tell = {"ip": "-V", "nginx": "-v", "unbound": "-V", "unbound-checkconf": "-h"}
    command = [program(name), tell.get(name, "--version")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).lower()
    assert name.partition("-")[0] in said, said

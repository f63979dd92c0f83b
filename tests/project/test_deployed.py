"""The project as it is deployed: a wheel, run far from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from setuptools import find_packages

from tests.library.webs import GIVEN, small_web, urls_of

ROOT = Path(__file__).parents[2]
# What a release holds besides README.md and LICENSE; never the checkout's other folders.
SOURCE = (
    "krowlspider",
    "extensions",
    "middlewares",
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
)


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command of this Python, with nothing of the checkout on its path."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "SCRAPY"))
    }
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**kept, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the source: a build leaves files, and reads those of earlier builds."""
    copy = tmp_path_factory.mktemp("source")
    for name in SOURCE:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, copy / name)
    return copy


@pytest.fixture(scope="module")
def installed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel was installed into."""
    folder = tmp_path_factory.mktemp("installed")
    build = ["pip", "wheel", "--no-build-isolation", "--wheel-dir", str(folder / "wheel")]
    built = run("-m", *build, "--no-deps", "--no-index", str(source), cwd=folder)
    assert built.returncode == 0, built.stderr
    (wheel,) = (folder / "wheel").glob("krowlspider-*.whl")
    target = folder / "site"
    install = ["pip", "install", "--target", str(target)]
    put = run("-m", *install, "--no-deps", "--no-index", str(wheel), cwd=folder)
    assert put.returncode == 0, put.stderr
    return target


@pytest.fixture
def scrapy(installed: Path, tmp_path: Path):
    """Runs scrapy in an empty folder, the wheel before a stray package that is called `extensions`
    too."""
    stray = tmp_path / "stray"
    for name in ("extensions", "middlewares"):
        (stray / name).mkdir(parents=True)
        (stray / name / "__init__.py").write_text(f"raise ImportError('the stray {name}')\n")
    empty = tmp_path / "empty"
    empty.mkdir()

    def run_scrapy(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(
            "-m",
            "scrapy",
            *arguments,
            cwd=empty,
            PYTHONPATH=os.pathsep.join([str(installed), str(stray)]),
            SCRAPY_SETTINGS_MODULE="krowlspider.settings",
        )

    return run_scrapy


def test_every_module_is_in_a_package_of_the_release():
    """Setuptools takes no folder without ``__init__.py``."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        include = tomllib.load(file)["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = {name.replace(".", "/") for name in find_packages(str(ROOT), include=include)}
    folders = {
        str(path.parent.relative_to(ROOT))
        for name in ("krowlspider", "extensions", "middlewares")
        for path in (ROOT / name).rglob("*.py")
    }
    assert folders == packages


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_nothing_of_the_tests(installed: Path, source: Path):
    packages = ("krowlspider", "extensions", "middlewares")
    there = {
        str(p.relative_to(installed)) for name in packages for p in (installed / name).rglob("*.py")
    }
    ours = {str(p.relative_to(source)) for name in packages for p in (source / name).rglob("*.py")}
    assert there == ours
    # With these, type checkers read the package.
    assert {path.name for path in (installed / "krowlspider").glob("*py*")} >= {
        *("py.typed", "__init__.pyi")
    }
    assert not (installed / "tests").exists()


@pytest.mark.slow
def test_the_installed_project_lists_its_spiders(scrapy):
    listed = scrapy("list")
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.split() == ["broad"]


@pytest.mark.slow
def test_a_program_crawls_with_the_wheel(installed: Path, tmp_path: Path):
    """Its process finds the wheel where the program has found it: by a path that only it knows."""
    with small_web() as web:
        seed = web.url("a.test")
        program = f"""
import sys
sys.path.append({str(installed)!r})
from krowlspider import run
assert sorted(page.url for page in run({seed!r}, **{GIVEN!r})) == {urls_of(web)!r}
"""
        done = run("-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_every_component_that_the_settings_name_is_in_the_wheel(installed: Path, tmp_path: Path):
    program = """
from scrapy.settings import Settings
from scrapy.utils.misc import load_object
settings = Settings()
settings.setmodule("krowlspider.settings")
names = ["SCHEDULER", "DUPEFILTER_CLASS", "DOWNLOADER"]
paths = [settings[name] for name in names] + list(settings["DOWNLOAD_HANDLERS_BASE"].values())
for name in ("EXTENSIONS", "DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES"):
    paths += settings[f"{name}_BASE"]
paths += settings["ADDONS"]
for path in paths:
    if path is not None and not path.startswith("scrapy."):
        print(load_object(path).__module__)
"""
    loaded = run("-c", program, cwd=tmp_path, PYTHONPATH=str(installed))
    assert loaded.returncode == 0, loaded.stderr
    assert {name.partition(".")[0] for name in loaded.stdout.split()} == {
        "krowlspider",
        "extensions",
        "middlewares",
    }


@pytest.mark.slow
def test_a_crawl_without_a_contact_ends_at_once_with_one_line(scrapy):
    crawl = scrapy("crawl", "broad")
    assert crawl.returncode == 2
    assert crawl.stderr.strip().endswith(
        "KROWL_CONTACT is not set: site owners must be able to reach you;"
        " give -s KROWL_CONTACT=you@example.org (or a URL)"
    )
    assert "Traceback" not in crawl.stderr


@pytest.mark.slow
def test_scrapyd_finds_the_settings_in_the_egg(source: Path, tmp_path: Path):
    built = run("setup.py", "bdist_egg", "--dist-dir", str(tmp_path), cwd=source)
    assert built.returncode == 0, built.stderr
    (egg,) = tmp_path.glob("*.egg")
    with zipfile.ZipFile(egg) as archive:
        entry_points = archive.read("EGG-INFO/entry_points.txt").decode()
        names = archive.namelist()
    assert "[scrapy]\nsettings = krowlspider.settings" in entry_points
    assert {"krowlspider/settings.py", "extensions/__init__.py", "middlewares/__init__.py"} <= set(
        names
    )

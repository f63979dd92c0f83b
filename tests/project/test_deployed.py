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

ROOT = Path(__file__).parents[2]
_DOORS = ("extensions", "middlewares")
# What a release holds besides README.md and LICENSE; never the checkout's other folders.
SOURCE = (
    "krowlspider",
    *_DOORS,
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
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, copy / name, symlinks=True, ignore=ignore)
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
    """Runs scrapy in a folder with modules that are called `extensions` and `middlewares` too."""
    folder = tmp_path / "empty"
    folder.mkdir()
    for name in ("extensions", "middlewares"):
        (folder / f"{name}.py").write_text(f"raise ImportError('the stray {name}')\n")

    def run_scrapy(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(
            "-m",
            "scrapy",
            *arguments,
            cwd=folder,
            PYTHONPATH=str(installed),
            SCRAPY_SETTINGS_MODULE="krowlspider.project",
        )

    return run_scrapy


def modules(root: Path) -> set[Path]:
    """Return the modules of the package. Two of its folders are links to folders beside it."""
    found = set()
    for folder in (root / "krowlspider", *(root / "krowlspider").iterdir()):
        found |= {*folder.glob("*.py"), *folder.glob("[!_]*/**/*.py")}
    return found


def test_every_module_is_in_a_package_of_the_release():
    """Setuptools takes no folder without ``__init__.py``."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        include = tomllib.load(file)["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = {name.replace(".", "/") for name in find_packages(str(ROOT), include=include)}
    folders = {str(path.parent.relative_to(ROOT)) for path in modules(ROOT)}
    assert folders == packages


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(installed: Path, source: Path):
    """A project's own `middlewares` or `extensions` meets none of ours."""
    there = {str(path.relative_to(installed)) for path in modules(installed)}
    assert there == {str(path.relative_to(source)) for path in modules(source)}
    assert {"krowlspider/extensions/status.py", "krowlspider/middlewares/retry.py"} < there
    tops = {path.name for path in installed.iterdir()}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"krowlspider"}
    data = {
        str(path.relative_to(source))
        for path in (source / "krowlspider").rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    assert "krowlspider/py.typed" in data
    assert {name for name in data if not (installed / name).is_file()} == set()


@pytest.mark.slow
def test_the_installed_project_lists_its_spiders(scrapy):
    listed = scrapy("list")
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.split() == ["broad"]


@pytest.mark.slow
def test_every_component_that_the_settings_name_is_in_the_wheel(installed: Path, tmp_path: Path):
    program = """
from scrapy.settings import Settings
from scrapy.utils.misc import load_object
settings = Settings()
settings.setmodule("krowlspider.project")
load_object("krowlspider.addon.Krowl").update_pre_crawler_settings(settings)
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
    rooms = {".".join(name.split(".")[:2]) for name in loaded.stdout.split()}
    assert rooms == {f"krowlspider.{name}" for name in ("addon", "engine", *_DOORS)}


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
    assert "[scrapy]\nsettings = krowlspider.project" in entry_points
    assert {"krowlspider/project.py", *(f"krowlspider/{name}/__init__.py" for name in _DOORS)} <= {
        *names
    }

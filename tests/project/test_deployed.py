"""The project as it is deployed: a wheel, run far from the checkout."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from typing import TYPE_CHECKING

import pytest
from setuptools import find_packages

from tests.addon.installed import build_wheel, copy_source, environment, install
from tests.library.webs import GIVEN, small_web, urls_of
from tests.support.warm import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_DOORS = ("extensions", "middlewares")


def run(*command: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A command of this Python, with nothing of the checkout on its path."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_source(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def installed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel was installed into."""
    folder = tmp_path_factory.mktemp("installed")
    return install(build_wheel(source, folder / "wheel"), folder / "site")


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
    assert {"krowlspider/py.typed", "krowlspider/__init__.pyi"} <= data
    assert {name for name in data if not (installed / name).is_file()} == set()


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
    assert rooms == {f"krowlspider.{name}" for name in ("addon", "engine", "gemini", *_DOORS)}


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

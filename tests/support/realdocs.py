"""A folder of real documentation pages, from Debian's packages, which are fetched once and
unpacked."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

from tests.support.crawling import ROOT

# About 2,700 pages of 39 kB and 77 links on average, made by Sphinx, DocBook, AsciiDoc and by hand.
PACKAGES = ("python3-doc", "postgresql-doc", "sqlite3-doc", "git-doc")
CACHE = ROOT / ".cache" / "docs"


def documentation() -> Path:
    """Return the folder that TEST_DOCS names, or one made from Debian's packages.

    :raises RuntimeError: neither exists; the message says what to do
    """
    if given := os.environ.get("TEST_DOCS"):
        return Path(given)
    done = CACHE / "complete"
    if not done.exists():
        CACHE.parent.mkdir(exist_ok=True)
        # Several processes of tests may need the pages at once.
        with FileLock(CACHE.with_name("docs.lock")):
            if not done.exists():
                shutil.rmtree(CACHE, ignore_errors=True)
                CACHE.mkdir()
                _fetch()
                done.touch()
    return CACHE / "pages"


def _fetch() -> None:
    try:
        if not _known():
            _apt("apt-get", "update")
        _apt("apt-get", "download", *_documents())
        for package in CACHE.glob("*.deb"):
            _apt("dpkg-deb", "-x", str(package), str(CACHE / "unpacked"))
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        raise RuntimeError(
            f"no documentation pages to crawl: {reason.strip()}\\n"
            f"They come from Debian's packages {', '.join(PACKAGES)}; elsewhere set TEST_DOCS"
            " to a folder with 2,000 HTML pages or more"
        ) from error
    shutil.move(CACHE / "unpacked" / "usr" / "share" / "doc", CACHE / "pages")


def _known() -> bool:
    return "Package:" in _apt("apt-cache", "show", "--no-all-versions", PACKAGES[0], check=False)


def _documents() -> list[str]:
    """Return the packages with the pages: python3-doc only depends on that of the current
    version."""
    listed = _apt("apt-cache", "depends", "--no-recommends", "--no-suggests", *PACKAGES)
    named = (line.split()[-1] for line in listed.splitlines() if "Depends:" in line)
    return [*PACKAGES, *(name for name in named if "-doc" in name)]


def _apt(*command: str, check: bool = True) -> str:
    return subprocess.run(
        command, cwd=CACHE, capture_output=True, text=True, check=check, timeout=300
    ).stdout

"""A folder of real documentation pages: Debian's packages of them, fetched once and unpacked, not
installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.support.crawling import ROOT

# Some 2,700 pages of 39 kB and 77 links on average: Sphinx, DocBook, hand-written and AsciiDoc
# HTML.
PACKAGES = ("python3-doc", "postgresql-doc", "sqlite3-doc", "git-doc")
CACHE = ROOT / ".cache" / "docs"


def documentation() -> Path:
    """The folder named by KROWL_TEST_DOCS, or one made from Debian's packages.

    :raises RuntimeError: there is neither, and the message says what to do
    """
    if given := os.environ.get("KROWL_TEST_DOCS"):
        return Path(given)
    done = CACHE / "complete"
    if not done.exists():
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
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
        said = getattr(error, "stderr", "") or str(error)
        raise RuntimeError(
            f"no documentation pages to crawl: {said.strip()}\\n"
            f"They come from Debian's packages {', '.join(PACKAGES)}; elsewhere set KROWL_TEST_DOCS"
            " to a folder with 2,000 HTML pages or more"
        ) from error
    shutil.move(CACHE / "unpacked" / "usr" / "share" / "doc", CACHE / "pages")


def _known() -> bool:
    return "Package:" in _apt("apt-cache", "show", "--no-all-versions", PACKAGES[0], check=False)


def _documents() -> list[str]:
    """The packages that hold the pages: a package such as python3-doc only names that of today's
    version."""
    listed = _apt("apt-cache", "depends", "--no-recommends", "--no-suggests", *PACKAGES)
    named = (line.split()[-1] for line in listed.splitlines() if "Depends:" in line)
    return [*PACKAGES, *(name for name in named if "-doc" in name)]


def _apt(*command: str, check: bool = True) -> str:
    return subprocess.run(
        command, cwd=CACHE, capture_output=True, text=True, check=check, timeout=300
    ).stdout

"""Crawls whose pages are opened in a real Chromium.

Chromium is Debian's. scrapy-playwright is installed beside the environment of the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from tests.support.crawling import ROOT, Crawl
from tests.support.debian import program

if TYPE_CHECKING:
    from pathlib import Path

REQUIREMENTS = ROOT / "tests" / "browser-requirements.txt"
LIBRARY = ROOT / ".cache" / "browser-library"
# Where the sites are; 127.0.0.1 is as private as any address.
ADDRESS = "127.0.0.9"
DELAY = 0.25


def library() -> Path:
    """Return the folder of scrapy-playwright, which is made when it is first asked for."""
    stamp = LIBRARY / "requirements.txt"
    LIBRARY.parent.mkdir(exist_ok=True)
    with FileLock(LIBRARY.with_name("browser-library.lock")):
        if not stamp.exists() or stamp.read_bytes() != REQUIREMENTS.read_bytes():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
            pip += ["--require-hashes", "--target", str(LIBRARY), "-r", str(REQUIREMENTS)]
            subprocess.run(pip, check=True)
            stamp.write_bytes(REQUIREMENTS.read_bytes())
    return LIBRARY


def in_browser(**settings: Any) -> dict[str, Any]:
    """Return the settings of a crawl that has the browser."""
    return {
        "KROWL_BROWSER": 1,
        "KROWL_BROWSER_TIMEOUT": 60,
        "KROWL_DELAY_MIN": DELAY,
        "KROWL_DELAY_FACTOR": 0,
        "KROWL_ALLOW_ADDRESSES": f"{ADDRESS}/32",
        "KROWL_RESOLVE": json.dumps({"rebound.test": "127.0.0.1", "*.test": ADDRESS}),
        "PLAYWRIGHT_LAUNCH_OPTIONS": json.dumps({"executable_path": str(program("chromium"))}),
        **settings,
    }


def browsing(folder: Path, root: str, settings: dict[str, Any], **arguments: str) -> Crawl:
    """Return a crawl by `tests.support.spiders.browsing`."""
    return Crawl(
        folder / "job",
        spider="browsing",
        arguments={"root": root, **arguments},
        settings={**in_browser(), "SPIDER_MODULES": "tests.support.spiders", **settings},
        cold=True,
    )

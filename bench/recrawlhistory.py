"""Pages whose changes are those of others: files of documentation, in histories of git.

A file is a page, a commit that adds or changes it is a change. Files that are renamed are new
pages, and removed ones stop changing.
"""

from __future__ import annotations

import subprocess
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING

from bench.recrawlweb import DAY, Page

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SUFFIX = ".md"


def histories(repositories: Sequence[Path], days: int) -> list[Page]:
    """Return the pages of repositories in the last days of each one's history.

    The rate of a page is that of these days, so an oracle knows the future.
    """
    return [page for site, folder in enumerate(repositories) for page in _pages(folder, site, days)]


def _pages(folder: Path, site: int, days: int) -> list[Page]:
    changes: dict[str, list[float]] = defaultdict(list)
    command = ["git", "-C", str(folder), "log", "--format=%ct", "--name-only", "--no-renames"]
    command += ["--diff-filter=AM", "--", f"*{_SUFFIX}"]
    at = 0.0
    for line in subprocess.check_output(command, text=True).splitlines():
        if line.isdigit():
            at = float(line)
        elif line:
            changes[line].append(at)
    begin = max(times[0] for times in changes.values()) - days * DAY
    return [_page(path, site, sorted(times), begin, days) for path, times in changes.items()]


def _page(path: str, site: int, times: list[float], begin: float, days: int) -> Page:
    found = max(times[0] - begin, 0.0)
    later = [time - begin for time in times[bisect_left(times, begin) :] if time - begin > found]
    rate = len(later) / max(days * DAY - found, DAY)
    return Page(site, path.count("/"), "history", found, rate, later, [])

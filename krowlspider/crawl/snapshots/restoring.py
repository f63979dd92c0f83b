"""Make a crawl's folder of a snapshot. The snapshot stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.archive.disk import OPEN
from krowlspider.archive.index.cdxj import INDEX, WARC
from krowlspider.crawl.folder import SNAPSHOT
from krowlspider.crawl.snapshots.copier import Copier, Made
from krowlspider.crawl.snapshots.draft import kept_if_whole
from krowlspider.crawl.snapshots.taking import HEAD
from krowlspider.errors import JobError

if TYPE_CHECKING:
    from pathlib import Path

# Files that no crawl changes: it replaces or removes them.
_LINKED = (".ldb", ".sst", WARC, INDEX, f"{WARC}{OPEN}.damaged")


def restore(snapshot: Path, jobdir: Path) -> Made:
    """Make ``jobdir`` of a snapshot.

    :raises JobError: it is no snapshot, or ``jobdir`` cannot be made
    :raises OSError: the disk failed or has no room
    """
    if not (snapshot / SNAPSHOT).is_file() or not (snapshot / HEAD).is_file():
        raise JobError(f"{snapshot} is not a snapshot: give a folder that --snapshot has made")
    copier = Copier()
    with kept_if_whole(jobdir) as draft:
        for source in sorted(snapshot.rglob("*")):
            target = draft / source.relative_to(snapshot)
            if source.is_dir():
                target.mkdir()
            elif source.name.endswith(_LINKED):
                copier.take(source, target)
            elif source != snapshot / SNAPSHOT:
                copier.copy_file(source, target)
    return copier.made(jobdir)

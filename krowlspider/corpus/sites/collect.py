"""The findings in the WARC files of a build, and the index made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.corpus.folder import LINES, read_lines
from krowlspider.corpus.sites.index import SiteIndex

if TYPE_CHECKING:
    from krowlspider.corpus.folder import Folder


def sites_file(name: str) -> str:
    """Return the name of the file with the findings in the WARC file ``name``."""
    return f"{name}.sites{LINES}"


class Collector:
    """Takes the findings that workers write, and publishes the newest. Methods raise OSError."""

    def __init__(self, folder: Folder):
        self._folder = folder
        self._index = SiteIndex(folder.answers)
        self._is_published = False

    def close(self) -> None:
        self._index.close()

    def has(self, file: str) -> bool:
        return self._index.has(file)

    def take(self, file: str) -> None:
        """Add the findings in a WARC file, which a worker has written."""
        path = self._folder.work / sites_file(file)
        self._index.add(file, read_lines(path))
        path.unlink()
        self._is_published = False

    def publish(self) -> None:
        """Write the index for workers, unless it is that of all findings already."""
        if not self._is_published:
            self._index.publish(self._folder.sites)
            self._is_published = True

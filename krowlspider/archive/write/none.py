"""What a crawl without an archive has in place of the writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krowlspider.archive.disk import make_directory
from krowlspider.archive.tools.mend import MendReport, mend_folder
from krowlspider.archive.write.writer import WarcWriter

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from krowlspider.archive.reading import Synced


class NoArchive(WarcWriter):
    """Takes what a `WarcWriter` takes, and writes nothing.

    Files that an earlier start wrote are mended as usual. ``directory`` is there for large
    responses.
    """

    def open(self, loop: asyncio.AbstractEventLoop, synced: Synced | None = None) -> MendReport:
        make_directory(self.directory)
        self._loop = loop
        return mend_folder(self.directory, synced=synced)

    async def sync(self, then: Callable[[Synced | None], None] | None = None) -> Synced | None:
        if then is not None:
            then(None)
        return None

    async def close(self) -> None: ...

    def _order(self, *_: Any, **__: Any) -> asyncio.Future[Any]:
        assert self._loop is not None
        future = self._loop.create_future()
        future.set_result(None)
        return future

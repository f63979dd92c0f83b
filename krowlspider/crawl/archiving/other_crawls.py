"""Open what KROWL_WARC_DEDUP names: the payloads of other crawls."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import plyvel

from krowlspider.archive.errors import ArchiveError
from krowlspider.archive.payloads.dedup_index import DedupIndex, OtherCrawls, is_dedup_index
from krowlspider.archive.tools.dedup import Source, build, source_at
from krowlspider.errors import SettingsError, error_text
from krowlspider.frontier.admin.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

# In the folder of `open_other_crawls`: the index of the sources that have none, and what it is of.
_BUILT, _OF = "built", "built.json"


def open_other_crawls(settings: BaseSettings, folder: Path) -> OtherCrawls | None:
    """Return what KROWL_WARC_DEDUP names; None if it names nothing. Blocks.

    ``folder`` keeps the index of JOBDIRs and CDXJ files, which is built once as long as they do
    not change, and views of the other indexes.

    :raises SettingsError: a source is missing or damaged, or ``folder`` cannot be written
    """
    names = [Path(name) for name in settings.getlist("KROWL_WARC_DEDUP")]
    if not names:
        return None
    try:
        folders = [name for name in names if is_dedup_index(name)]
        sources = [source_at(name) for name in names if not is_dedup_index(name)]
        if sources:
            folders.append(_built(sources, folder))
        views = folder / "views"
        if views.exists():
            shutil.rmtree(views)
        algorithm: str = settings["KROWL_WARC_DIGEST"]
        indexes = [
            DedupIndex(each, views / str(number), algorithm) for number, each in enumerate(folders)
        ]
    except (ArchiveError, OSError, plyvel.Error) as error:
        raise SettingsError(f"KROWL_WARC_DEDUP: {error_text(error)}") from error
    return OtherCrawls(indexes, settings.getfloat("KROWL_WARC_DEDUP_MAX_AGE"), logger.warning)


def _built(sources: Sequence[Source], folder: Path) -> Path:
    """Return the index of ``sources``; build it if they have changed since it was built."""
    built, note = folder / _BUILT, folder / _OF
    text = json.dumps(
        [
            [str(index.resolve()), (found := index.stat()).st_size, found.st_mtime_ns]
            for source in sources
            for index in source.indexes
        ]
    )
    if is_dedup_index(built) and note.is_file() and note.read_text() == text:
        return built
    note.unlink(missing_ok=True)
    if built.exists():
        shutil.rmtree(built)
    files = counted(text.count("], [") + 1, "CDXJ file")
    logger.info("Reading %s of KROWL_WARC_DEDUP", files)
    counts = build(sources, built)
    known = counted(counts.captures, "capture")
    logger.info("Known from other crawls, and not archived again: %s", known)
    if counts.left_out:
        logger.warning("Captures of other crawls are archived again: %s", counts.left_out)
    note.write_text(text)
    return built

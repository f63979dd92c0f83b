"""The log lines about the state in which a crawl starts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krowlspider.crawl.answers.crash_marks import log_holds, log_strike

if TYPE_CHECKING:
    from krowlspider.crawl.job import Job

logger = logging.getLogger(__name__)


def log_start(job: Job) -> None:
    """Log what the last process left behind, and what is unusual about the job folder."""
    path = job.folder.path
    for entry in job.struck:
        log_strike(entry, path)
    log_holds(job.holds, path)
    if job.folder.temporary:
        logger.warning(
            "No JOBDIR: this crawl is stored in %s; to resume it later, give -s JOBDIR=that folder",
            path,
        )
    if mode := job.folder.open_to_others:
        logger.warning(
            "Others can get into JOBDIR %s, which has mode %s: chmod 700 keeps them out", path, mode
        )
    if job.mended.files:
        logger.log(
            logging.WARNING if job.mended.bytes_cut else logging.INFO,
            "Mended %d WARC files of a killed crawl: cut off %d bytes without a whole record",
            job.mended.files,
            job.mended.bytes_cut,
        )
    for damaged in job.mended.damaged:
        logger.error("A WARC file is damaged: the data after the damage is in %s", damaged)
    if job.scope is not None:
        stay = "; URLs queued before stay queued" if job.replaces_scope else ""
        logger.info("Scope kept in %s: %s%s", path, job.scope, stay)
    if job.frontier.pending:
        logger.info("Going on with %d URLs queued in %s", job.frontier.pending, path)

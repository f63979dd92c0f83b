"""What `scrapy frontier` does in the folder of a stopped crawl, or with a copy to read from."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.archive.indexes import captures_of, indexes_in
from krowlspider.config.validation import offline
from krowlspider.engine.dupefilter import ImportedIdentity
from krowlspider.errors import JobError
from krowlspider.frontier.admin.export import Imported, import_lines, parse_line
from krowlspider.frontier.admin.view import why_host_of_stopped_crawl_waits
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.pages.rows import PageRows
from krowlspider.frontier.robots.gate import RobotsCache, RobotsGate
from krowlspider.frontier.stopped import read_counters, read_host
from krowlspider.frontier.store.schema import marked_by, seen_prefix
from krowlspider.job.exclude_file import ExcludeFile
from krowlspider.job.explain import Explainer, Explanation
from krowlspider.job.folder import JobFolder, JobHead, JobInUseError, holder_of, lock_folder
from krowlspider.job.parts import (
    delay_policy,
    frontier_limits,
    gemini_delays,
    prefix_reader,
    seen_set,
    site_policies,
    sites,
    trap_rules,
    warc_folder,
)
from krowlspider.programs.program import BAD_NAMED, BadLines
from krowlspider.urls.canonical import IdentityHasher, queued_max
from krowlspider.urls.scope import Scope, ScopeRules
from krowlspider.urls.seeds import PatternList

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy.settings import Settings

    from krowlspider.frontier.store.store import LevelStore
    from krowlspider.politeness.delay import DelayPolicy

# Files of LevelDB that it never changes once they are written.
_TABLES = {".ldb", ".sst"}


def delays_of_stopped(head: JobHead, settings: Settings) -> DelayPolicy:
    """Return the delays of the last start, or else of the settings, with those of the sheets.

    :raises SettingsError: the file of KROWL_POLICIES cannot be read
    """
    policy = head.delays or delay_policy(settings)
    found = sites(site_policies(settings), "")
    return gemini_delays(policy if found is None else found.delays(policy), settings)


def explain(
    folder: JobFolder, head: JobHead, store: LevelStore, settings: Settings, url: str
) -> Explanation:
    """Return where a URL is, by the settings of this project and the scope of the folder.

    :raises SettingsError: the file of KROWL_EXCLUDE or KROWL_POLICIES cannot be read
    :raises ArchiveError: as of `Explainer.explain`
    """
    policy = delays_of_stopped(head, settings)
    robots = RobotsCache(
        store,
        settings["ROBOTSTXT_USER_AGENT"],
        time.time,
        ttl=settings.getfloat("KROWL_ROBOTS_TTL"),
        read_prefixes=prefix_reader(settings),
    )
    gate = RobotsGate(robots, crawl_delay_max=settings.getfloat("KROWL_CRAWL_DELAY_MAX"))
    archive = warc_folder(settings, folder.path)
    return Explainer(
        store=store,
        hasher=IdentityHasher(head.seed),
        scope=Scope(
            head.scope or ScopeRules(),
            max_url_length=settings.getint("URLLENGTH_LIMIT"),
            traps=trap_rules(settings),
        ),
        exclusions=_exclusions(settings),
        policies=None if (sheets := site_policies(settings)) is None else sheets.policies,
        gate=gate,
        agent=settings["ROBOTSTXT_USER_AGENT"],
        obeys_robots=settings.getbool("ROBOTSTXT_OBEY"),
        captures=partial(captures_of, indexes_in(archive).there),
        host_of_crawl=lambda name: read_host(store, name),
        why=lambda host: why_host_of_stopped_crawl_waits(store, host, policy, time.time()),
        is_seen=lambda host, key: key in marked_by(store.items(seen_prefix(host))),
        owner=lambda _: None,
        counters=lambda: read_counters(store),
        wall=time.time,
    ).explain(url)


def _exclusions(settings: Settings) -> PatternList:
    if (path := settings["KROWL_EXCLUDE"]) is None:
        return PatternList()
    found: list[PatternList] = []
    ExcludeFile(Path(path), found.append).apply()
    return found[0]


def import_into(
    folder: JobFolder,
    head: JobHead,
    store: LevelStore,
    settings: Settings,
    lines: Iterable[bytes],
) -> Imported:
    """Queue the new URLs in ``lines``, and return the counts of the import.

    The first bad lines are reported on standard error with their numbers. The store is left as
    after a crash: at the next start, each host waits its delay once.
    """
    pages = PageRows(store, IdentityHasher(head.seed).key)
    frontier = Frontier(
        store,
        seen_set(settings, folder, store),
        frontier_limits(settings),
        delay_policy(settings),
        monotonic=time.monotonic,
        wall=time.time,
        pages=pages,
    )
    url_max = queued_max(settings.getint("URLLENGTH_LIMIT"))
    identify = ImportedIdentity(offline(settings), head.seed)
    key_of_seed = pages.seeds.key_of
    parse = partial(
        parse_line,
        identify=identify,
        url_max=url_max,
        key_of_seed=key_of_seed,
        give_words=pages.seeds.give_words,
    )
    return import_lines(frontier, store, lines, parse, BadLines(BAD_NAMED).add)


def is_writable(jobdir: Path) -> bool:
    """Return whether a process may lock a crawl's folder, and open its frontier."""
    return all(os.access(path, os.W_OK) for path in (jobdir, jobdir / "frontier") if path.exists())


@contextmanager
def locked_tree(tree: Path, *, to_change: bool) -> Iterator[None]:
    """Lock the JOBDIR of several processes, so that none of them is started meanwhile. On a
    read-only disk, from which none can be, only see that no crawl runs.

    :raises JobInUseError: their crawl runs, or another command is at work
    :raises JobError: it cannot be locked, and is ``to_change``
    """
    if not (to_change or is_writable(tree)):
        if (holder := holder_of(tree)) is not None:
            raise JobInUseError(tree, str(holder))
        yield
        return
    try:
        lock = lock_folder(tree)
    except OSError as error:
        raise JobError(f"JOBDIR {tree} cannot be used: {error.strerror}") from error
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def readable_copy(jobdir: Path) -> Iterator[JobFolder]:
    """Make a temporary folder with links to what is in a crawl's folder, and copies of what LevelDB
    writes to when it opens a store.

    :raises JobInUseError: a crawl uses the folder
    :raises JobError: it cannot be read, or copied
    """
    if (holder := holder_of(jobdir)) is not None:
        raise JobInUseError(jobdir, str(holder))
    try:
        with tempfile.TemporaryDirectory(prefix="krowlspider-") as made:
            copy = Path(made) / jobdir.resolve().name
            copy.mkdir()
            for path in jobdir.iterdir():
                if path.name == "frontier":
                    _copy_store(path, copy / path.name)
                elif path.name not in {"lock", "status.json"}:
                    (copy / path.name).symlink_to(path.resolve())
            yield JobFolder(copy)
    except OSError as error:
        raise JobError(f"JOBDIR {jobdir} is read-only, and cannot be read: {error}") from error


def _copy_store(source: Path, target: Path) -> None:
    target.mkdir()
    for path in source.iterdir():
        if path.suffix in _TABLES:
            (target / path.name).symlink_to(path.resolve())
        elif path.name != "LOCK":
            shutil.copyfile(path, target / path.name)

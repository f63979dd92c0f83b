"""Hand hosts over between the folders of processes that do not run, when their number changes.

Each host goes to the folder of its owner, in the chunks of `krowlspider.frontier.moves`, and
leaves its old folder when the new one is synced. The heads of the folders name the new ring last.
So a death at any point loses nothing: the next start does the rest.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from krowlspider.archive.tools.mend import mend_folder
from krowlspider.crawl.nodes.static import place_of
from krowlspider.crawl.parts import delay_policy, frontier_limits, robots_fetches, seen_set
from krowlspider.engine.imported import ImportedIdentity
from krowlspider.errors import JobError
from krowlspider.frontier.admin.words import counted
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.hosts.holds import NOTES, settle_holds
from krowlspider.frontier.moves.arrival import Arrivals
from krowlspider.frontier.moves.departure import Departures
from krowlspider.frontier.poison import strike
from krowlspider.frontier.seed_table import move_states
from krowlspider.frontier.store.owner import change_ring
from krowlspider.frontier.store.store import LevelStore
from krowlspider.frontier.work_mark import MARK, THREAD_MARK, boot_id, left_key
from krowlspider.node.tree import StoppedError, process_warc_folder, processes
from krowlspider.urls.canonical import URL_MAX, IdentityHasher
from krowlspider.urls.host import domain_of, host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.settings import Settings

    from krowlspider.cluster.ring.ring import Ring
    from krowlspider.crawl.folder import JobFolder, JobHead
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.moves.departure import Departure
    from krowlspider.frontier.part import Identify
    from krowlspider.frontier.store.store import Store
    from krowlspider.node.tree import Tree

logger = logging.getLogger(__name__)

# Hosts that have arrived before the folders are synced and they leave their old ones.
TOGETHER = 1000
# Behind all sequences of an outbox.
_ALL = 2**63


@dataclass(slots=True, eq=False)
class _Part:
    """The open folder of a process."""

    name: str
    folder: JobFolder
    head: JobHead
    store: LevelStore
    frontier: Frontier
    departures: Departures
    arrivals: Arrivals


class FolderHandover:
    """Gives each host of a `Tree` to its owner in ``ring``.

    ``is_stopped`` returns whether to stop. So many hosts leave ``together``.
    """

    def __init__(
        self,
        tree: Tree,
        ring: Ring,
        settings: Settings,
        *,
        is_stopped: Callable[[], bool],
        together: int = TOGETHER,
    ):
        self._tree = tree
        self._ring = ring
        self._wanted = [member.id for member in ring.members]
        self._settings = settings
        self._is_stopped = is_stopped
        self._together = together
        self._moved = 0

    def run(self, heads: dict[str, JobHead]) -> None:
        """Hand over if a folder is of another ring; this blocks. ``heads`` are of the folders that
        are there.

        :raises StoppedError: it was stopped; the next start does the rest
        :raises JobError: a folder cannot be used, or has requests that only its process can read
        """
        if all(head.ring == place_of(name, self._ring) for name, head in heads.items()):
            return
        logger.info("Handing hosts over: %s from now on", processes(len(self._wanted)))
        seed = self._tree.seed
        of_requests, hasher = ImportedIdentity(self._settings, seed), IdentityHasher(seed)

        def identify(entry: Entry) -> bytes | None:
            return of_requests(entry) if entry.request else hasher.key(entry.url)

        names = list(dict.fromkeys([*heads, *self._wanted]))
        like = next(iter(heads.values()))
        with ExitStack() as stack:
            parts = {
                name: stack.enter_context(_open(self._part(name, seed, like, identify)))
                for name in names
            }
            for part in parts.values():
                self._move_hosts(part, parts)
            for part in parts.values():
                self._check_kept(part)
            for part in parts.values():
                self._move_seeds(part, parts)
            self._move_messages(parts)
            for part in parts.values():
                self._mend(part)
                change_ring(part.store, seed, place_of(part.name, self._ring))
                _sync(part)
            for part in parts.values():
                place = place_of(part.name, self._ring)
                part.folder.write_head(msgspec.structs.replace(part.head, ring=place))
        logger.info("Handed over %s", counted(self._moved, "host"))

    def _part(self, name: str, seed: int, like: JobHead, identify: Identify) -> _Part:
        settings, folder = self._settings, self._tree.folder(name)
        head = folder.take(seed=seed)
        if head.new:
            # Spider and scope are those of the crawl: this start may not give them.
            head = msgspec.structs.replace(
                head, spider=like.spider, scope=like.scope, delays=like.delays
            )
            folder.write_head(head)
        store = LevelStore(folder.frontier, create=head.new or folder.untouched)
        boot = boot_id()
        for path in (folder.path / MARK, folder.path / THREAD_MARK):
            strike(store, left_key(path, boot))
            path.unlink(missing_ok=True)
        settle_holds(store, folder.path / NOTES, time.time())
        frontier = Frontier(
            store,
            seen_set(settings, folder, store),
            frontier_limits(settings),
            head.delays or delay_policy(settings),
            monotonic=time.monotonic,
            wall=time.time,
            boot=boot,
        )
        fetches = robots_fetches(settings, frontier, time.time, lambda *_: None)
        departures = Departures(frontier, store, fetches, node=name, identify=identify)
        arrivals = Arrivals(frontier, store, fetches.cache, identify, url_max=URL_MAX)
        return _Part(name, folder, head, store, frontier, departures, arrivals)

    def _owner_for(self, part: _Part) -> Callable[[str], str | None]:
        def owner_of(domain: str) -> str | None:
            owner = self._ring.owner(domain)
            return None if owner == part.name else owner

        return owner_of

    def _move_hosts(self, part: _Part, parts: dict[str, _Part]) -> None:
        arrived: list[Departure] = []
        for step in part.departures.moving(self._owner_for(part)):
            for name, owner in step:
                departure = part.departures.begin(name)
                _arrive(departure, parts[owner].arrivals)
                arrived.append(departure)
            if len(arrived) >= self._together:
                self._end(arrived, parts)
        self._end(arrived, parts)

    def _end(self, arrived: list[Departure], parts: dict[str, _Part]) -> None:
        """Remove hosts that have arrived from their old folder."""
        for part in parts.values():
            _sync(part)
        for departure in arrived:
            for _ in departure.end():
                pass
        self._moved += len(arrived)
        arrived.clear()
        if self._is_stopped():
            raise StoppedError

    def _check_kept(self, part: _Part) -> None:
        if kept := sum(part.departures.kept.values()):
            raise JobError(
                f"{counted(kept, 'request')} in {part.folder.path} with objects that only their"
                " process can read: go on with the number of processes that this crawl had before"
            )

    def _move_seeds(self, part: _Part, parts: dict[str, _Part]) -> None:
        """Move what is known of seeds to the owners of their hosts, where they will end."""

        def store_of(url: str) -> Store:
            return parts[self._ring.owner(domain_of(host_of(url)))].store

        for _ in move_states(part.store, store_of):
            if self._is_stopped():
                raise StoppedError

    def _mend(self, part: _Part) -> None:
        """Finish the WARC files that a process has left open which is no more."""
        folder = process_warc_folder(self._settings, part.folder.path)
        if part.name not in self._wanted and folder.is_dir():
            mend_folder(folder)

    # --- messages ---

    def _move_messages(self, parts: dict[str, _Part]) -> None:
        """Give the messages in the outboxes of processes that are no more to one that goes on."""
        heir = parts[self._wanted[0]]
        for name, part in parts.items():
            if name not in self._wanted:
                _move_outbox(part, heir)


@contextmanager
def _open(part: _Part) -> Iterator[_Part]:
    """Close the frontier of a part at the end, and mark it as cleanly closed unless it failed."""
    is_clean = False
    try:
        yield part
        is_clean = True
    except StoppedError:
        is_clean = True
        raise
    finally:
        if is_clean:
            part.frontier.close()
        else:
            part.store.close()
        part.folder.leave()


def _arrive(departure: Departure, arrivals: Arrivals) -> None:
    arrived = 0
    while True:
        try:
            chunk = departure.chunk(arrived)
        except LookupError:
            # Another transfer of the host has counted these.
            departure.begin_again()
            arrived = 0
            continue
        if chunk is None:
            return
        arrived = arrivals.take(chunk)


def _move_outbox(part: _Part, heir: _Part) -> None:
    """Move all entries of an outbox. When it starts, the heir gives them to their owners."""
    for owner, entries in part.frontier.outbox.lots():
        batch = heir.store.batch(sync=True)
        for host, message in entries:
            heir.frontier.outbox.put(owner, host, message, batch)
        batch.write()
    for owner in part.frontier.outbox.owners():
        for _ in part.frontier.outbox.acknowledge(owner, _ALL):
            pass


def _sync(part: _Part) -> None:
    part.store.batch(sync=True).write()

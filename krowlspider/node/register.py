"""The register of the processes, and which of them are to hand their hosts over."""

from __future__ import annotations

from contextlib import suppress
from secrets import token_bytes
from typing import TYPE_CHECKING

import msgspec

from krowlspider.archive.disk import write_durably
from krowlspider.cluster.allowance import PAGES
from krowlspider.cluster.local.server import RegisterServer
from krowlspider.cluster.membership import SEED_SIZE
from krowlspider.cluster.register.pending_nodes import PENDING, NodeInfo
from krowlspider.cluster.register.port import step
from krowlspider.cluster.ring.live_members import dead_record
from krowlspider.cluster.ring.record import BadRecordError, load_counters
from krowlspider.cluster.signals import SIGNAL, Signal
from krowlspider.errors import JobError
from krowlspider.node.tree import process_folders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from krowlspider.cluster.ring.live_members import RegisterEntry
    from krowlspider.node.tree import Tree


class ProcessRegister:
    """The register in ``tree``, which is taken. ``wanted`` are the processes of this start.

    ``leaving`` are processes of earlier starts that have hosts, or may have: they hand them over.

    :raises JobError: its file cannot be read, or is not that of an earlier start
    """

    def __init__(self, tree: Tree, cluster: str, wanted: Sequence[str]):
        self._server = RegisterServer(tree.register, _write)
        self._root = f"krowlspider/{cluster}/"
        if not self._server.is_new and self._server.store.get(f"{self._root}seed") is None:
            raise JobError(
                f"{tree.register} does not have the identity seed of the cluster {cluster!r}, which"
                " each start writes: put the file back from a copy, or give KROWL_CLUSTER as the"
                " last start had it"
            )
        there = [path.name for path in process_folders(tree.path)]
        known = {each.node for each in self._below(PENDING)} | {
            each.node for each in self._below("nodes") if dead_record(each) is not None
        }
        self.leaving = [name for name in there if name in known and name not in wanted]
        self._all = [*wanted, *self.leaving]

    def _below(self, folder: str) -> Sequence[RegisterEntry]:
        return self._server.store.list(f"{self._root}{folder}/")[1]

    async def open(self, socket: Path, *, anew: bool) -> None:
        """Serve the register; ``anew``: no page of the budget is taken.

        :raises OSError: the file or the socket cannot be written
        """
        # Nobody else has a lease, so none is waited for.
        steps = [step("set", f"{self._root}founded", "1")]
        seed = f"{self._root}seed"
        if self._server.store.get(seed) is None:
            steps.append(step("set", seed, token_bytes(SEED_SIZE).hex()))
        if anew:
            steps.append(step("delete", self._root + PAGES))
        # Without processes nobody could send another signal.
        signal = self._server.store.get(self._root + SIGNAL)
        if signal is not None and signal.value.decode() == Signal.STOP:
            steps.append(step("delete", self._root + SIGNAL))
        # Nobody waits for a process whose folder a person has removed.
        gone = (each for part in ("nodes", PENDING) for each in self._below(part))
        steps += [step("delete", each.key) for each in gone if each.node not in self._all]
        # All wait for each other before they fetch, so that hosts need not move at once.
        note = msgspec.json.encode(NodeInfo())
        steps += [step("set", f"{self._root}{PENDING}/{name}", note) for name in self._all]
        self._server.store.transact(steps)
        await self._server.save()
        await self._server.open(socket)

    def close(self) -> None:
        self._server.close()

    async def end_lease(self, process: str) -> None:
        """End the lease of a process that has died: the next one takes it up at once."""
        with suppress(OSError):
            await self._server.release(process)

    def joined(self) -> set[str]:
        """Return the processes that have a lease, and have sent a heartbeat of their crawl."""
        return set(self._joined())

    def _joined(self) -> Iterator[str]:
        for entry in self._below("beats"):
            with suppress(BadRecordError):
                if entry.session and "beat" in load_counters(entry.value):
                    yield entry.node


def _write(path: Path, text: str) -> None:
    with write_durably(path) as file:
        file.write(text.encode())

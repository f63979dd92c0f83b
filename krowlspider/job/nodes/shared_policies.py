"""The sheets of KROWL_POLICIES that all nodes of a cluster use: those of the newest order.

The register has a head, with the time of the order, the node, and the SHA-256 of the text; and the
text, compressed, in pieces that a register takes.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from scrapy.utils.asyncio import run_in_thread

from krowlspider.cluster.membership import POLL, UnansweredError
from krowlspider.job.site_policies import SIZE_MAX
from krowlspider.policies.sheets import BadPolicies

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.cluster.membership import SharedKeys
    from krowlspider.job.site_policies import PolicyVersion, SitePolicies

logger = logging.getLogger(__name__)

HEAD = "head"
# Bytes of a piece. Consul takes 512 KB for a whole transaction, which has it in base64.
PIECE = 250_000
# Seconds after which sheets that could not be used are tried again: a file that they name may have
# come. Parsing 100,000 sheets takes seconds.
AGAIN = 30.0


class PolicyOrder(msgspec.Struct, frozen=True):
    """An order: its time in epoch seconds, the node that gave it, and the text."""

    time: float
    node: str
    digest: str
    pieces: int

    @property
    def order(self) -> tuple[float, str]:
        """What decides which of two orders is the newer one."""
        return self.time, self.digest


class SharedPolicies:
    """Has a node use the sheets of the newest order of its cluster.

    A change of the file of a node, and a person's order to read it again, are orders of that
    moment. The file with which a node starts is an order of the time at which it was written. So a
    node that starts with an older file uses the sheets of the cluster, and says so. ``wall``
    returns epoch seconds.
    """

    def __init__(
        self,
        keys: SharedKeys,
        policies: SitePolicies,
        node: str,
        wall: Callable[[], float],
        poll: float = POLL,
    ):
        self._keys = keys
        self._policies = policies
        self._node = node
        self._wall = wall
        self._poll = poll
        self._own = (policies.written, policies.version)
        # The order that this node follows; and one that it could not, until when it is left alone.
        self._seen: PolicyOrder | None = None
        self._unusable: PolicyOrder | None = None
        self._again_at = 0.0
        policies.on_order = self._ordered

    def _ordered(self, version: PolicyVersion) -> None:
        self._own = (self._wall(), version)

    async def run(self) -> None:
        """Keep to the newest order, until cancelled. While the register does not answer, the last
        one stands."""
        while True:
            with suppress(UnansweredError):
                await self.agree()
            await asyncio.sleep(self._poll)

    async def agree(self) -> None:
        """Publish the order of this node if it is the newest; else use the cluster's.

        :raises UnansweredError: the register does not answer
        """
        head = await self._head()
        time, version = self._own
        if head is None or (time, version.digest) > head.order:
            await self._publish(PolicyOrder(time, self._node, version.digest, 0), version, head)
        elif head != self._seen and (head != self._unusable or self._wall() >= self._again_at):
            await self._adopt(head)

    async def _head(self) -> PolicyOrder | None:
        if (text := await self._keys.get(HEAD)) is None:
            return None
        try:
            return msgspec.json.decode(text, type=PolicyOrder)
        except msgspec.DecodeError:
            logger.error("The sheets of the cluster cannot be read, so this node gives its own")
            return None

    async def _publish(
        self, head: PolicyOrder, version: PolicyVersion, last: PolicyOrder | None
    ) -> None:
        if last is not None and last.digest == head.digest:
            self._seen = msgspec.structs.replace(head, pieces=last.pieces)
            await self._keys.put(HEAD, msgspec.json.encode(self._seen))
            return
        packed = await run_in_thread(zlib.compress, version.text)
        pieces = [packed[at : at + PIECE] for at in range(0, len(packed), PIECE)]
        # The head last: whoever reads it finds the text.
        for number, piece in enumerate(pieces):
            await self._keys.put(f"{head.digest}/{number}", piece)
        self._seen = msgspec.structs.replace(head, pieces=len(pieces))
        await self._keys.put(HEAD, msgspec.json.encode(self._seen))
        logger.info("KROWL_POLICIES: the sheets of this node are those of all nodes now")
        if last is not None:
            for number in range(last.pieces):
                await self._keys.delete(f"{last.digest}/{number}")

    async def _adopt(self, head: PolicyOrder) -> None:
        if head.digest == self._policies.version.digest:
            self._seen = head
            self._policies.cluster_fault = ""
            return
        pieces = [await self._keys.get(f"{head.digest}/{number}") for number in range(head.pieces)]
        if None in pieces:
            # A newer order has removed them since.
            return
        packed = b"".join(piece for piece in pieces if piece is not None)
        try:
            version = await run_in_thread(self._parse, packed, head.digest)
        except (BadPolicies, zlib.error, ValueError) as error:
            self._refuse(head, error)
            return
        if self._seen is None:
            logger.warning(
                "KROWL_POLICIES: the file of this node is older than the sheets that node %s has"
                " given: those of the cluster are in force; reload it to use it at all nodes",
                head.node,
            )
        else:
            logger.info("KROWL_POLICIES: node %s has given other sheets", head.node)
        self._seen = head
        await run_in_thread(self._policies.use(version).dismantle)

    def _refuse(self, head: PolicyOrder, error: Exception) -> None:
        """Keep the sheets in force, and say why; the log says it once for each order and reason."""
        fault = f"the sheets of the cluster, given by node {head.node}: {error}"
        if (head, fault) != (self._unusable, self._policies.cluster_fault):
            self._policies.failed_count += 1
            logger.error(
                "The sheets of the cluster, given by node %s, are not in force here; the sheets"
                " before them are: %s: mend it here (the next try is in %d s), or give"
                " other sheets there",
                *(head.node, error, AGAIN),
            )
        self._policies.cluster_fault = fault
        self._unusable, self._again_at = head, self._wall() + AGAIN

    def _parse(self, packed: bytes, digest: str) -> PolicyVersion:
        """Return the version in a compressed text.

        :raises BadPolicies: as of `SitePolicies.parse`
        :raises zlib.error: it is damaged
        :raises ValueError: it is another text
        """
        version = self._policies.parse(zlib.decompressobj().decompress(packed, SIZE_MAX))
        if version.digest != digest:
            raise ValueError("the text has another checksum")
        return version

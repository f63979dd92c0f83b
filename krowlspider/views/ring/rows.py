"""The rows of ``scrapy ring``: the last heartbeat of each node, and the inbox in its Redis."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

from krowlspider.cluster.ring.ring import Ring
from krowlspider.cluster.transport.inbox import lengths
from krowlspider.cluster.transport.redis_connection import RedisTrouble, redis_client, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider.cluster.consul.register import Register
    from krowlspider.cluster.ring.record import Record

Row: TypeAlias = dict[str, Any]

# Counters from the heartbeats of a node.
_SAID = ("epoch", "done", "queued", "outbox")
_WAITING = ("requests", "start_urls", "hosts", "processing", "dead")


def static_rows(records: Iterable[Record]) -> list[Row]:
    """Return a row for each member of a static ring."""
    records = list(records)
    ring = Ring(record.member for record in records)
    return [{**_row(record, ring), **_agreement(record, ring)} for record in records]


def _agreement(record: Record, ring: Ring) -> Row:
    """Return whether a node has this ring, as its "state"; empty if it has not reported a ring."""
    said = record.counters.get("ring")
    return {} if said is None else {"state": "agreed" if said == ring.number else "another ring"}


def register_rows(register: Register) -> list[Row]:
    """Return a row for each member that Consul knows, and for each pending node that is gone."""
    members = [
        {**_row(record, register.ring), "state": register.state(node)}
        for node, record in sorted(register.members.items())
    ]
    unreadable = [
        {"id": node, "state": "unreadable", "trouble": reason}
        for node, reason in sorted(register.unreadable.items())
    ]
    gone = [
        {
            "id": node,
            "address": register.pending_nodes[node].address,
            "redis": register.pending_nodes[node].redis,
            "state": "gone",
        }
        for node in register.gone
    ]
    return [*members, *unreadable, *gone]


async def with_inboxes(rows: Iterable[Row], spider: str) -> list[Row]:
    """Return the rows with the inbox lengths of each node, for the spider of this name.

    The URL of each Redis is shown without its password. If a Redis cannot be read, its row has the
    reason as "trouble".
    """
    return list(await asyncio.gather(*(_with_inbox(row, spider) for row in rows)))


def _row(record: Record, ring: Ring | None) -> Row:
    member, counters = record.member, record.counters
    row: Row = {"id": member.id}
    if member.address:
        row["address"] = member.address
    row |= {"redis": member.redis, "weight": member.weight}
    if ring is not None and not record.leaving:
        row["share"] = round(ring.share(member.id), 4)
    row |= {name: int(counters[name]) for name in _SAID if name in counters}
    if "time" in counters:
        row["seconds_ago"] = max(0, round(time.time() - counters["time"]))
    return row


async def _with_inbox(row: Row, spider: str) -> Row:
    url = row.get("redis")
    if not url:
        return row
    found: Row = {**row, "redis": shown(url)}
    try:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(redis_client(url))
            waiting = await lengths(client, spider, row["id"])
    except RedisTrouble as error:
        return {**found, "trouble": f"{error.kind}: {error}"}
    except ValueError as error:
        return {**found, "trouble": str(error)}
    return {**found, **{name: getattr(waiting, name) for name in _WAITING}}


def as_text(rows: list[Row]) -> str:
    """Return the rows as a text table, with a heading line and aligned columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    )

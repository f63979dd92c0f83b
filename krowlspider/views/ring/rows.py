"""The rows of ``scrapy ring``: the last heartbeat of each node, and the inbox in its Redis."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from krowlspider.cluster.ring.ring import Ring
from krowlspider.cluster.transport.inbox import lengths
from krowlspider.cluster.transport.redis_connection import RedisTrouble, redis_client, shown
from krowlspider.crawl.nodes.overview import SILENT_AFTER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider.cluster.consul.register import Register
    from krowlspider.cluster.ring.record import Record

Row: TypeAlias = dict[str, Any]

# Counters of a heartbeat, and lengths of an inbox, that are shown.
_FIGURES = ("epoch", "done", "queued", "outbox")
_LENGTHS = ("requests", "start_urls", "hosts", "dead")


def static_rows(records: list[Record]) -> list[Row]:
    """Return a row for each member of a static list.

    "state" tells whether the node has this ring, or that it has ended; it is missing if the node
    has not reported one.
    """
    ring = Ring(record.member for record in records)
    rows = []
    for record in records:
        row = _row(record, ring)
        if (number := record.counters.get("ring")) is not None:
            row["state"] = "agreed" if number == ring.number else "another ring"
        if record.counters.get("left"):
            row["state"] = "ended"
        rows.append(row)
    return rows


def register_rows(register: Register) -> list[Row]:
    """Return a row for each member that Consul knows, and each pending node that has ended.

    A dead node whose domains wait for it has the seconds until they are taken over.
    """
    members = [_member_row(register, node) for node in sorted(register.members)]
    unreadable = [
        {"id": node, "state": "unreadable", "trouble": reason}
        for node, reason in sorted(register.unreadable.items())
    ]
    ended = [
        {"id": node, "address": info.address, "redis": info.redis, "state": info.state}
        for node, info in sorted(register.ended.items())
        if node not in register.members
    ]
    return [*members, *unreadable, *ended]


def _member_row(register: Register, node: str) -> Row:
    record = register.members[node]
    row: Row = {**_row(record, register.ring), "state": register.state(node)}
    if record.dead and (left := register.takeover_in(node)) is not None:
        row["takeover_in"] = left
    return row


def may_be_silent(row: Row) -> bool:
    """Return whether the last heartbeat of a live node is old, by this machine's clock."""
    is_live = row.get("state") not in {"dead", "stopped", "ended"}
    return is_live and row.get("seconds_ago", 0) >= SILENT_AFTER


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
    row |= {name: int(counters[name]) for name in _FIGURES if name in counters}
    if "time" in counters:
        row["seconds_ago"] = max(0, round(time.time() - counters["time"]))
    return row


async def _with_inbox(row: Row, spider: str) -> Row:
    url = row.get("redis")
    if not url:
        return row
    row = {**row, "redis": shown(url)}
    try:
        async with redis_client(url) as client:
            found = await lengths(client, spider)
    except RedisTrouble as error:
        return {**row, "trouble": f"{error.kind}: {error}"}
    except ValueError as error:
        return {**row, "trouble": str(error)}
    return {**row, **{name: getattr(found, name) for name in _LENGTHS}}


def as_text(rows: list[Row]) -> str:
    """Return the rows as a text table, with a heading line and aligned columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    )

"""``scrapy ring``: show the nodes of a cluster, their inboxes and the owner of a URL.

It also sends the cluster signal, and makes the cluster forget a node that is gone.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from scrapy.exceptions import UsageError

from krowlspider.cluster.membership import ClusterError, Signal, Signals, UnansweredError
from krowlspider.cluster.register.port import Register, RegisterKeys, pages_taken
from krowlspider.cluster.register.state import (
    RegisterState,
    check_forgettable,
    forget,
    read_register,
)
from krowlspider.cluster.registers import open_register
from krowlspider.cluster.transport.inbox import lengths
from krowlspider.cluster.transport.redis_connection import RedisTrouble, redis_client, shown
from krowlspider.config.validation import validate
from krowlspider.errors import SettingsError, counted
from krowlspider.job.folder import register_of
from krowlspider.job.nodes.overview import SILENT_AFTER
from krowlspider.programs.program import Program
from krowlspider.urls.canonical import domain_of, host_of
from krowlspider.urls.seeds import BadSeed, parse_seed

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Iterable

    from scrapy.settings import BaseSettings

    from krowlspider.cluster.ring.ring import MemberRecord, Ring

# Seconds in which a node sends several heartbeats.
_HEARTBEATS = 3.0

Row: TypeAlias = dict[str, Any]

# Counters of a heartbeat, and lengths of an inbox, that are shown.
_FIGURES = ("epoch", "done", "queued", "outbox")
_LENGTHS = ("requests", "start_urls", "hosts", "dead")


class ClusterQuery:
    """The nodes of a cluster, by its register. Each method may raise UnansweredError."""

    def __init__(self, cluster: str, register: Register) -> None:
        self._cluster = cluster
        self._register = register
        self.keys = RegisterKeys(register, cluster)

    async def state(self) -> RegisterState:
        """:raises ClusterError: the register knows no such cluster"""
        state = await read_register(self._register, self._cluster)
        if state is None:
            raise ClusterError(
                f"{self._register.name} knows no cluster {self._cluster!r}: is KROWL_CLUSTER"
                " that of its nodes?"
            )
        return state

    async def nodes(self) -> tuple[dict[str, Any], list[Row]]:
        """Return the state of the ring as a dict, and a row for each node."""
        register = await self.state()
        ring = register.ring
        head = {"epoch": register.epoch, "ring": ring.checksum if ring else None}
        return head, register_rows(register)

    async def owner(self, domain: str) -> dict[str, str | None]:
        """Return the ``owner`` of a domain, and its ``fetcher``: None during a hand-over."""
        register = await self.state()
        owner = register.ring.owner(domain) if register.ring else None
        return {"owner": owner, "fetcher": register.fetcher(domain)}

    async def forget(self, node: str) -> str:
        """Forget a dead node; return what becomes of its work, as sentences.

        :raises ClusterError: the node is live, or not pending
        :raises UnansweredError: the register does not answer: the node is still waited for
        """
        check_forgettable(await self.state(), self._cluster, node)
        await forget(self._register, self._cluster, node)
        return (
            f"Node {node} is forgotten: nobody waits for it. URLs that other nodes found for it go"
            " to the new owners. What only its disk has is not fetched, unless the node is started"
            " again with its JOBDIR."
        )


async def look(query: ClusterQuery, settings: BaseSettings) -> tuple[dict[str, Any], list[Row]]:
    """Return the state of the cluster as a dict, and a row for each node.

    If the signal or the page budget cannot be read, the dict has the reason as "trouble". A node
    that seems to have sent no heartbeat for SILENT_AFTER seconds is looked at twice, as clocks
    differ: without a heartbeat in between, it is "silent".
    """
    head, rows = await query.nodes()
    if any(map(may_be_silent, rows)):
        await asyncio.sleep(_HEARTBEATS)
        before = {row["id"]: row for row in rows if may_be_silent(row)}
        head, rows = await query.nodes()
        for row in rows:
            if row["id"] in before and row["seconds_ago"] > before[row["id"]]["seconds_ago"]:
                row["state"] = "silent"
    head = {"cluster": settings["KROWL_CLUSTER"], **head}
    try:
        head["signal"] = str(await Signals(query.keys).read())
        if pages := settings.getint("KROWL_CLUSTER_PAGES"):
            head |= {"pages_taken": await pages_taken(query.keys), "pages": pages}
    except UnansweredError as error:
        head["trouble"] = str(error)
    return head, rows


@asynccontextmanager
async def open_query(settings: BaseSettings) -> AsyncIterator[ClusterQuery]:
    """Connect to the cluster that the settings name; disconnect at the end.

    :raises SettingsError: the settings name no cluster
    :raises ClusterError: the register knows no such cluster
    """
    if not settings["KROWL_CONSUL"]:
        raise SettingsError(
            "no cluster: give -s KROWL_CONSUL=http://127.0.0.1:8500, or the JOBDIR of scrapy node"
        )
    register = open_register(settings)
    try:
        query = ClusterQuery(settings["KROWL_CLUSTER"], register)
        await query.state()
        yield query
    finally:
        register.close()


def register_rows(register: RegisterState) -> list[Row]:
    """Return a row for each member, and each pending node that has ended.

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


def _member_row(register: RegisterState, node: str) -> Row:
    record = register.members[node]
    row: Row = {**_row(record, register.ring), "state": register.state(node)}
    if record.dead and (left := register.takeover_in(node)) is not None:
        row["takeover_in"] = left
    return row


def may_be_silent(row: Row) -> bool:
    """Return whether the last heartbeat of a live node is old, by this machine's clock."""
    is_live = row.get("state") not in {"dead", "stopped"}
    return is_live and row.get("seconds_ago", 0) >= SILENT_AFTER


async def with_inboxes(rows: Iterable[Row], spider: str) -> list[Row]:
    """Return the rows with the inbox lengths of each node, for the spider of this name.

    The URL of each Redis is shown without its password. If a Redis cannot be read, its row has the
    reason as "trouble".
    """
    return list(await asyncio.gather(*(_with_inbox(row, spider) for row in rows)))


def _row(record: MemberRecord, ring: Ring | None) -> Row:
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


async def show(args: list[str], opts: argparse.Namespace, settings: BaseSettings) -> int:
    """Forget a node, send a signal, or print the owners of URLs or the nodes of the cluster.

    If the first of ``args`` is a folder, the cluster is the processes of its `scrapy node`. Return
    the exit code: 1 if a printed node has "trouble" or a "state" other than agreed, else 0.

    :raises KrowlError: bad input
    :raises UnansweredError: a server does not answer
    :raises UsageError: one of ``args`` is no URL
    """
    settings, args = _checked(settings, args)
    async with open_query(settings) as query:
        if opts.forget:
            print(await query.forget(opts.forget))
        elif opts.signal:
            await Signals(query.keys).send(Signal(opts.signal))
            print(f"The signal of the cluster {settings['KROWL_CLUSTER']} is {opts.signal}")
        elif args:
            owned = [await _owned(url, query) for url in args]
            print(json.dumps(owned, indent=1) if opts.json else as_text(owned))
        else:
            head, rows = await look(query, settings)
            rows = await with_inboxes(rows, opts.spider)
            text = json.dumps({**head, "nodes": rows}, indent=1) if opts.json else _text(head, rows)
            print(text)
            return int(any(_has_fault(row) for row in (head, *rows)))
    return 0


def _checked(settings: BaseSettings, args: list[str]) -> tuple[BaseSettings, list[str]]:
    """Return the settings once they are checked, and the URLs in ``args``.

    :raises JobError: the folder that is given is not of `scrapy node`
    :raises SettingsError: a setting is wrong
    """
    # A crawl needs a contact and a Redis of its own, but this command does not.
    settings = settings.copy()
    if args and (jobdir := Path(args[0])).is_dir():
        settings.set("KROWL_CONSUL", register_of(jobdir), priority="cmdline")
        args = args[1:]
    settings.set("KROWL_CONTACT", "nobody@offline.internal", priority="cmdline")
    if settings["KROWL_CONSUL"] and not (settings["REDIS_URL"] or settings["REDIS_URL_FILE"]):
        settings.set("REDIS_URL", "unix:///")
    validate(settings)
    return settings, args


async def _owned(text: str, query: ClusterQuery) -> Row:
    """Return the row of a URL: its normal form, domain, owner and fetcher.

    :raises UsageError: ``text`` is no URL
    """
    try:
        seed = parse_seed(text.encode())
    except BadSeed as error:
        raise UsageError(f"{text}: {error}") from error
    if seed is None:
        raise UsageError(f"{text!r} is no URL")
    domain = domain_of(host_of(seed.url))
    return {"url": seed.url, "domain": domain, **await query.owner(domain)}


def _has_fault(row: Row) -> bool:
    return "trouble" in row or row.get("state", "agreed") != "agreed"


def _text(head: Row, rows: list[Row]) -> str:
    parts = [f"cluster {head['cluster']}: {head.get('signal', head.get('trouble'))}"]
    if "pages_taken" in head:
        parts.append(f"{head['pages_taken']:,} of {counted(head['pages'], 'page')} taken")
    parts += [f"{name} {head[name]}" for name in ("epoch", "ring") if head.get(name)]
    return "\n".join([", ".join(parts), as_text(rows) if rows else "no node is live"])


class Command(Program):
    def syntax(self) -> str:
        return "[options] [JOBDIR] [URL ...]"

    def short_desc(self) -> str:
        return "Show the nodes of a cluster and what waits for each, or who owns a URL"

    def long_desc(self) -> str:
        return (
            f"{self.short_desc()}. The cluster is given as for a crawl: -s KROWL_CONSUL=..."
            " -s KROWL_CLUSTER=... , or as the JOBDIR of a scrapy node that runs."
            " Columns: id, address and redis of the node, its weight (which grows while it"
            " joins), and its share of the domains; state (agreed, joining,"
            " handing over, leaving, unreadable; silent: no heartbeat for"
            " 10 s; stopped or dead with work on its disk); takeover_in: seconds until other nodes"
            " take over the domains of a dead one;"
            " epoch of the register that the node goes by; done, queued, outbox: pages"
            " fetched, URLs that wait there, and URLs on their way to other nodes, as of its last"
            " heartbeat, seconds_ago; requests, start_urls, hosts, dead: messages in"
            " its Redis; trouble: why that, or the node's record, cannot be read."
            " Exit code 1: a node or a server does not answer, the nodes do not agree on the ring,"
            " or one has ended with work on its disk; 2: bad input"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")
        parser.add_argument(
            "--spider", default="broad", help="spider whose inboxes are shown (default: broad)"
        )
        parser.add_argument(
            "--signal",
            choices=[str(each) for each in Signal],
            help="tell all nodes to go on, to pause or to stop",
        )
        parser.add_argument(
            "--forget",
            metavar="ID",
            help="give up a dead node: what other nodes have found for it goes to the new owners,"
            " and nobody waits for what is on its disk",
        )

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        self.exitcode = asyncio.run(show(args, opts, self.settings))
        sys.stdout.flush()

    def failure(self, error: Exception) -> tuple[str, int]:
        text, code = super().failure(error)
        return text, 1 if isinstance(error, UnansweredError) else code

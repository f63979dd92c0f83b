"""``scrapy ring``: the members of KROWL_RING, what waits for each, and who owns a URL."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from krowlspider.cluster.inbox import lengths
from krowlspider.cluster.membership import UnansweredError, parse_ring
from krowlspider.cluster.redisio import RedisTrouble, redis_client, shown
from krowlspider.cluster.ring import Ring
from krowlspider.cluster.signals import RedisBoard
from krowlspider.commands.crawl import BAD_INPUT
from krowlspider.errors import KrowlError, SettingsError
from krowlspider.urls.host import domain_of, host_of
from krowlspider.urls.seeds import BadSeed, parse_seed
from krowlspider.validation import validate

if TYPE_CHECKING:
    import argparse

    from krowlspider.cluster.membership import Counters
    from krowlspider.cluster.ring import Member

# What a node says of itself in its heartbeats, and how it is called here.
_SAID = {"done": "done", "queued": "queued", "outbox": "outbox"}
_WAITING = ("requests", "start_urls", "processing", "dead")


class Command(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        return "[options] [URL ...]"

    def short_desc(self) -> str:
        return "Show the members of KROWL_RING and what waits for each, or who owns a URL"

    def long_desc(self) -> str:
        return f"{self.short_desc()}. The ring is given as for a crawl: -s KROWL_RING=..."

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")
        parser.add_argument(
            "--spider", default="broad", help="whose inboxes are looked at (default: broad)"
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        assert self.settings is not None
        try:
            validate(self.settings)
            members = parse_ring(self.settings.getlist("KROWL_RING"))
            if not members:
                raise SettingsError('no ring: give -s KROWL_RING="a=redis://host:6379/0,b=..."')
            if args:
                found = [_owned(url, Ring(members)) for url in args]
            else:
                found = asyncio.run(_look(members, self.settings["KROWL_CLUSTER"], opts.spider))
        except KrowlError as error:
            print(f"krowlspider: {error}", file=sys.stderr)
            self.exitcode = BAD_INPUT
            return
        print(json.dumps(found, indent=1) if opts.json else _text(found))
        self.exitcode = int(any("trouble" in row for row in found))


def _owned(text: str, ring: Ring) -> dict[str, Any]:
    """:raises UsageError: it is no URL"""
    try:
        seed = parse_seed(text.encode())
    except BadSeed as error:
        raise UsageError(f"{text}: {error}") from error
    if seed is None:
        raise UsageError(f"{text!r} is no URL")
    domain = domain_of(host_of(seed.url))
    return {"url": seed.url, "domain": domain, "owner": ring.owner(domain)}


async def _look(members: list[Member], cluster: str, spider: str) -> list[dict[str, Any]]:
    """A row for each member."""
    ring = Ring(members)
    said = await _said(members[0], cluster)
    rows = []
    for member in members:
        counters = said.get(member.id, {})
        row: dict[str, Any] = {
            "id": member.id,
            "redis": shown(member.redis),
            "share": round(ring.share(member.id), 4),
            **{name: int(counters[key]) for key, name in _SAID.items() if key in counters},
        }
        if "time" in counters:
            row["seconds_ago"] = max(0, round(time.time() - counters["time"]))
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(redis_client(member.redis))
            try:
                waiting = await lengths(client, spider, member.id)
            except RedisTrouble as error:
                row["trouble"] = f"{error.kind}: {error}"
            else:
                row |= {name: getattr(waiting, name) for name in _WAITING}
        rows.append(row)
    return rows


async def _said(first: Member, cluster: str) -> dict[str, Counters]:
    """What the nodes have said of themselves; nothing while nobody knows."""
    async with redis_client(first.redis) as client:
        try:
            return dict(await RedisBoard(client, cluster).read())
        except UnansweredError:
            return {}


def _text(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    )

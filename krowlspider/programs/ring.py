"""``scrapy ring``: show the nodes of a cluster, their inboxes and the owner of a URL.

It also sends the cluster signal, and makes the cluster forget a node that is gone.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.signals import Signal, Signals
from krowlspider.config.validation import validate
from krowlspider.crawl.folder import register_of
from krowlspider.frontier.admin.words import counted
from krowlspider.programs.program import Program
from krowlspider.urls.host import domain_of, host_of
from krowlspider.urls.seeds import BadSeed, parse_seed
from krowlspider.views.ring import ClusterQuery, Row, as_text, look, open_query, with_inboxes

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings


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

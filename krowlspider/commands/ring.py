"""``scrapy ring``: the nodes of a cluster, what waits for each, and who owns a URL; its signal, and whom it waits for."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.signals import Signal
from krowlspider.commands.clusters import cluster_of
from krowlspider.commands.crawl import BAD_INPUT
from krowlspider.commands.ringrows import as_text, with_inboxes
from krowlspider.errors import KrowlError
from krowlspider.urls.host import domain_of, host_of
from krowlspider.urls.seeds import BadSeed, parse_seed
from krowlspider.validation import validate

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

    from krowlspider.commands.clusters import Cluster
    from krowlspider.commands.ringrows import Row


class Command(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        return "[options] [URL ...]"

    def short_desc(self) -> str:
        return "Show the nodes of a cluster and what waits for each, or who owns a URL"

    def long_desc(self) -> str:
        return (
            f"{self.short_desc()}. The cluster is given as for a crawl: -s KROWL_CONSUL=... -s KROWL_CLUSTER=..., or"
            " -s KROWL_RING=... . Exit code 1: a node or a server does not answer, the nodes do not agree on the ring, or"
            " one is gone; 2: bad input"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")
        parser.add_argument(
            "--spider", default="broad", help="whose inboxes are looked at (default: broad)"
        )
        parser.add_argument(
            "--signal",
            choices=[str(each) for each in Signal],
            help="tell all nodes to go on, to pause or to stop",
        )
        parser.add_argument(
            "--forget",
            metavar="ID",
            help="wait no longer for a node that is gone: what is on its disk is left out",
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        assert self.settings is not None
        try:
            asyncio.run(self._run(args, opts, _checked(self.settings)))
        except (KrowlError, UnansweredError) as error:
            print(f"krowlspider: {error}", file=sys.stderr)
            self.exitcode = BAD_INPUT if isinstance(error, KrowlError) else 1

    async def _run(self, args: list[str], opts: argparse.Namespace, settings: BaseSettings) -> None:
        async with cluster_of(settings) as cluster:
            if opts.forget:
                await cluster.forget(opts.forget)
                print(f"Node {opts.forget} is not waited for any more")
            elif opts.signal:
                await cluster.signals.send(Signal(opts.signal))
                print(f"The signal of the cluster {cluster.name} is {opts.signal}")
            elif args:
                owned = [await _owned(url, cluster) for url in args]
                print(json.dumps(owned, indent=1) if opts.json else as_text(owned))
            else:
                head, rows = await cluster.look()
                rows = await with_inboxes(rows, opts.spider)
                told = json.dumps({**head, "nodes": rows}, indent=1)
                print(told if opts.json else _text(head, rows))
                self.exitcode = int(any(_is_amiss(row) for row in (head, *rows)))


def _checked(settings: BaseSettings) -> BaseSettings:
    """:raises SettingsError: one of them is wrong"""
    if settings["KROWL_CONSUL"] and not settings["REDIS_URL"]:
        # A crawl must have one; who only looks has none of its own.
        settings = settings.copy()
        settings.set("REDIS_URL", "unix:///")
    validate(settings)
    return settings


async def _owned(text: str, cluster: Cluster) -> Row:
    """:raises UsageError: it is no URL"""
    try:
        seed = parse_seed(text.encode())
    except BadSeed as error:
        raise UsageError(f"{text}: {error}") from error
    if seed is None:
        raise UsageError(f"{text!r} is no URL")
    domain = domain_of(host_of(seed.url))
    return {"url": seed.url, "domain": domain, **await cluster.owner(domain)}


def _is_amiss(said: Row) -> bool:
    return "trouble" in said or said.get("state", "agreed") != "agreed"


def _text(head: Row, rows: list[Row]) -> str:
    parts = [f"cluster {head['cluster']}: {head.get('signal', head.get('trouble'))}"]
    if "pages_taken" in head:
        parts.append(f"{head['pages_taken']:,} of {head['pages']:,} pages taken")
    parts += [f"{name} {head[name]}" for name in ("epoch", "ring") if head.get(name)]
    return "\n".join([", ".join(parts), as_text(rows) if rows else "no node is live"])

"""``scrapy ring``: show the nodes of a cluster, their inboxes and the owner of a URL.

It also sends the cluster signal, and makes the cluster forget a node that is gone.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.signals import Signal
from krowlspider.programs.program import Program
from krowlspider.views.ring.show import show

if TYPE_CHECKING:
    import argparse


class Command(Program):
    def syntax(self) -> str:
        return "[options] [URL ...]"

    def short_desc(self) -> str:
        return "Show the nodes of a cluster and what waits for each, or who owns a URL"

    def long_desc(self) -> str:
        return (
            f"{self.short_desc()}. The cluster is given as for a crawl: -s KROWL_CONSUL=..."
            " -s KROWL_CLUSTER=..., or -s KROWL_STATIC_NODES=... . Columns: id, address and redis"
            " of the node, its weight (which grows while it joins), and its share of the"
            " domains; state (agreed, joining,"
            " handing over, leaving, another ring, ended, unreadable; silent: no heartbeat for"
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

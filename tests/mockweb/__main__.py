"""`python -m tests.mockweb`: serve one mock web until SIGTERM or the end of stdin."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from tests.mockweb.folder import FolderSite
from tests.mockweb.graph import Graph
from tests.mockweb.render import GraphSite
from tests.mockweb.server import serve
from tests.mockweb.spec import SpecSite, read_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mockweb.reply import Site


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mockweb", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--sites", type=Path, metavar="SPEC.json", help="rules, see spec.py")
    what.add_argument("--graph", type=Graph.parse, metavar="hosts=300,pages=20,seed=7")
    what.add_argument("--folder", type=Path, metavar="DIR", help="serve the *.html files in DIR")
    parser.add_argument(
        "--hosts", type=int, default=1, help="number of hosts that share the files of DIR"
    )
    parser.add_argument("--tls", action="store_true", help="listen for TLS too, on another port")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append the request log here")
    parser.add_argument("--port", type=int, default=0)
    return parser.parse_args()


def _maker(args: argparse.Namespace) -> Callable[[int, int], Site]:
    if args.sites is not None:
        rules = read_spec(args.sites)
        return lambda port, tls_port: SpecSite(rules, port, tls_port)
    if args.folder is not None:
        return lambda port, _: FolderSite(args.folder, args.hosts, port)
    graph: Graph = args.graph
    return lambda port, tls_port: GraphSite(replace(graph, port=port, tls_port=tls_port))


def main() -> None:
    """Run the command."""
    args = _arguments()
    tls = args.tls or (args.graph is not None and args.graph.tls)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(_maker(args), port=args.port, tls=tls, log=args.log))


if __name__ == "__main__":
    main()

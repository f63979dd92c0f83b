"""``scrapy search``: search the pages of an index, in a terminal, for a program or a browser."""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from krowlspider.config.checks import host_and_port
from krowlspider.config.validation import offline, validate
from krowlspider.errors import KrowlError
from krowlspider.programs import http_serving
from krowlspider.programs.program import FOUND_WRONG, Program

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from krowlspider.job.monitoring.endpoint import Route

# As in krowlspider.search, which is imported once the command line is checked.
_RANKS = ("bm25", "salsa", "hits")
_LIMIT, _LIMIT_MAX = 10, 100
_PREFIX = re.compile(r"https?://[^\s\"'<>]+/")
_FILTERS = {
    "host": ("NAME", "only pages of this host"),
    "lang": ("CODE", "only pages in this language, such as en"),
    "since": ("DATE", "only pages fetched since this date, such as 2026-11"),
    "type": ("TYPE", "only pages of this media type, such as text/gemini, or html"),
}


class Command(Program):
    def syntax(self) -> str:
        return '<INDEX> "<QUERY>" [options], or <INDEX> --serve HOST:PORT'

    def short_desc(self) -> str:
        return "Search the pages of an index"

    def long_desc(self) -> str:
        return (
            "Search an index that `scrapy index` has made, also while it is written. A query has"
            ' words, "phrases", beginnings of words (craw*), OR, -excluded words, and filters:'
            " site: host: lang: type: size:>10k date:2026-11.. intitle: (docs/search.md). The exit"
            " code is 1 if nothing is found."
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        for name, (metavar, text) in _FILTERS.items():
            parser.add_argument(f"--{name}", metavar=metavar, default="", help=text)
        parser.add_argument(
            "--limit", metavar="N", type=int, default=_LIMIT,
            help=f"number of pages, {_LIMIT_MAX} at most ({_LIMIT})",
        )  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print the answer as JSON")
        parser.add_argument(
            "--explain", action="store_true", help="show what the score of each page is made of"
        )
        parser.add_argument(
            "--rank", choices=_RANKS, default=_RANKS[0],
            help="rank by text and hosts, or by the links around the results as TLGS does",
        )  # fmt: skip
        parser.add_argument(
            "--serve", metavar="HOST:PORT", help="serve a page for browsers, and JSON"
        )
        parser.add_argument(
            "--replay", metavar="URL", default="",
            help="with --serve: link to captures in pywb, at http://HOST:PORT/COLLECTION/",
        )  # fmt: skip

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        if len(args) != (1 if opts.serve else 2):
            raise UsageError(f"scrapy search {self.syntax()}")
        if not 1 <= opts.limit <= _LIMIT_MAX:
            raise KrowlError(f"--limit {opts.limit}: give 1 to {_LIMIT_MAX}")
        if opts.replay and not opts.serve:
            raise KrowlError("--replay goes with --serve")
        if opts.replay and not _PREFIX.fullmatch(opts.replay):
            raise KrowlError(
                f"--replay {opts.replay} is no collection: give http://127.0.0.1:8080/crawl/"
            )
        validate(offline(self.settings))
        if opts.serve:
            self._serve(Path(args[0]), opts.serve, opts.replay)
        else:
            self._ask(Path(args[0]), args[1], opts)

    def _ask(self, folder: Path, text: str, opts: argparse.Namespace) -> None:
        from krowlspider.search.formats import as_object, as_text, query_of  # noqa: PLC0415
        from krowlspider.search.searcher import Searcher  # noqa: PLC0415

        try:
            query = query_of(text, {name: getattr(opts, name) for name in _FILTERS})
        except ValueError as error:
            name, _, rest = str(error).partition(":")
            raise KrowlError(f"--{name} {rest}") from error
        if query.is_empty:
            said = query.notes[0] if query.notes else "give words or filters"
            raise KrowlError(f"the query {text!r} asks for nothing: {said}")
        found = Searcher(folder).search(
            query, limit=opts.limit, rank=opts.rank, explain=opts.explain
        )
        if opts.json:
            self.say(json.dumps(as_object(found), ensure_ascii=False))
        else:
            self.say(as_text(found, 1, is_terminal=sys.stdout.isatty()))
        if not found.results:
            self.exitcode = FOUND_WRONG

    def _serve(self, folder: Path, address: str, replay: str) -> None:
        from krowlspider.search.searcher import Searcher  # noqa: PLC0415

        if (place := host_and_port(address)) is None:
            raise KrowlError(f"--serve {address} is not HOST:PORT: give 127.0.0.1:8092")
        # A folder without an index is refused here, not at the first query.
        Searcher(folder).opened.view()
        http_serving.serve(
            *place,
            partial(_routes, folder, replay),
            listens=lambda url: self.say(
                f"Search of {folder} at {url}/search; stop it with Ctrl-C"
            ),
            way="--serve",
        )


def _routes(folder: Path, replay: str, _: str) -> Mapping[str, Route]:
    # aiohttp is slow to import.
    from krowlspider.job.monitoring.endpoint import health  # noqa: PLC0415
    from krowlspider.search.formats import Captures  # noqa: PLC0415
    from krowlspider.search.route import SearchRoute, to_search  # noqa: PLC0415

    routes = SearchRoute(folder, Captures(replay)).routes()
    return {**routes, "/": to_search, "/healthz": health}

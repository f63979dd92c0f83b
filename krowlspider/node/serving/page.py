"""The page of a crawl of several processes: their sums, with links to the page of each."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from aiohttp import web

from krowlspider.crawl.monitoring.access import PAGE, noted_url

if TYPE_CHECKING:
    from krowlspider.crawl.monitoring.endpoint import Route
    from krowlspider.node.figures import Figures
    from krowlspider.node.tree import Tree

_COLUMNS = {
    "done": "pages done",
    "pages_per_second": "pages/s",
    "queued": "URLs queued",
    "hosts": "hosts",
    "in_flight": "in flight",
    "deferred": "deferred",
    "dropped": "dropped",
    "archive_mb": "WARC, MB",
}
# A page of another site can neither frame nor read it. It loads nothing.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Refresh": "5",
}
_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>krowlspider</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body { font: 1rem sans-serif; margin: 2rem } td, th { padding: .2rem 1rem }
td, th { text-align: right } td:first-child, th:first-child { text-align: left }
tr:last-child { font-weight: bold } h1 { font-size: 1.3rem; overflow-wrap: anywhere }
div { overflow-x: auto }</style>
"""
_ORDERS = """</table></div><p>The page of each process has buttons. An order given there, such as a
pause, a block or a delay, holds for all processes."""


def routes(tree: Tree, figures: Figures) -> dict[str, Route]:
    """Return what answers at each path."""

    def page(_: web.BaseRequest) -> web.Response:
        text = _page(tree, figures.of_processes(), figures.total(), figures.paused())
        return web.Response(text=text, content_type="text/html", headers=_HEADERS)

    def status(_: web.BaseRequest) -> web.Response:
        total = {**figures.total(), "fetched": figures.fetched()}
        found = {"total": total, "processes": figures.of_processes()}
        return web.Response(text=json.dumps(found), content_type="application/json")

    return {"/": page, "/api/v1/status": status}


def _page(tree: Tree, each: dict[str, dict[str, Any]], total: dict[str, Any], paused: str) -> str:
    names = "".join(f"<th>{name}" for name in _COLUMNS.values())
    rows = [_row(_link(tree, process), figures) for process, figures in each.items()]
    place = escape(str(tree.path))
    return "\n".join(
        [
            f"{_HEAD}<h1>{place}</h1><p>{escape(paused)}",
            f"<div><table><tr><th>process{names}",
            *rows,
            _row("all", total),
            _ORDERS,
        ]
    )


def _link(tree: Tree, process: str) -> str:
    if url := noted_url(tree.path / process, PAGE):
        return f'<a href="{escape(url)}/">{process}</a>'
    return process


def _row(name: str, figures: dict[str, Any]) -> str:
    return f"<tr><td>{name}" + "".join(f"<td>{figures[key]:,.10g}" for key in _COLUMNS)

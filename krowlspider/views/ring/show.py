"""The actions of ``scrapy ring``, and their output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from krowlspider.cluster.signals import Signal, Signals
from krowlspider.config.validation import validate
from krowlspider.frontier.admin.words import counted
from krowlspider.urls.host import domain_of, host_of
from krowlspider.urls.seeds import BadSeed, parse_seed
from krowlspider.views.ring.queries import ClusterQuery, look, open_query
from krowlspider.views.ring.rows import Row, as_text, with_inboxes

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings


async def show(args: list[str], opts: argparse.Namespace, settings: BaseSettings) -> int:
    """Forget a node, send a signal, or print the owners of URLs or the nodes of the cluster.

    Return the exit code: 1 if a printed node has "trouble" or a "state" other than agreed, else 0.

    :raises KrowlError: bad input
    :raises UnansweredError: a server does not answer
    :raises UsageError: one of ``args`` is no URL
    """
    settings = _checked(settings)
    async with open_query(settings) as query:
        if opts.forget:
            print(await query.forget(opts.forget, spider=opts.spider))
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


def _checked(settings: BaseSettings) -> BaseSettings:
    """Return the settings once they are checked.

    :raises SettingsError: a setting is wrong
    """
    # A crawl needs a contact and a Redis of its own, but this command does not.
    settings = settings.copy()
    settings.set("KROWL_CONTACT", "nobody@offline.internal", priority="cmdline")
    if settings["KROWL_CONSUL"] and not (settings["REDIS_URL"] or settings["REDIS_URL_FILE"]):
        settings.set("REDIS_URL", "unix:///")
    validate(settings)
    return settings


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
    return "trouble" in row or row.get("state", "agreed") not in {"agreed", "ended"}


def _text(head: Row, rows: list[Row]) -> str:
    parts = [f"cluster {head['cluster']}: {head.get('signal', head.get('trouble'))}"]
    if "pages_taken" in head:
        parts.append(f"{head['pages_taken']:,} of {counted(head['pages'], 'page')} taken")
    parts += [f"{name} {head[name]}" for name in ("epoch", "ring") if head.get(name)]
    return "\n".join([", ".join(parts), as_text(rows) if rows else "no node is live"])

"""The links between the results of a query and the pages that link to them, as TLGS has them."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# How results are ranked; the first is usual.
RANKS_BY = ("bm25", "salsa", "hits")
# Links to a result, and those of one, that are looked at.
_LINKS_MAX = 300


def authorities(links: Path, hosts: Mapping[str, str], rank: str) -> dict[str, float]:
    """Return the authority of each page, given the hosts of the results by URL.

    A link within a host is none, as nobody else gives it. ``rank`` is salsa or hits.

    :raises KrowlError: the index has no links
    """
    from krowlspider.graph.salsa import EDGES_MAX, hits, salsa  # noqa: PLC0415
    from krowlspider.search.link_store import LinkStore  # noqa: PLC0415

    if not links.is_dir():
        raise KrowlError(f"there are no links in {links}: make the index again")
    edges: dict[str, set[str]] = {}
    count = 0
    with closing(LinkStore.of_copy(links)) as store:
        for url, host in hosts.items():
            sources = [source for source, _ in store.incoming(url)[:_LINKS_MAX]]
            found = [(source, url) for source in sources if _host(source) != host]
            targets = store.outgoing(url)[:_LINKS_MAX]
            found += [(url, each) for each in targets if hosts.get(each, host) != host]
            for source, target in found:
                if count < EDGES_MAX and target not in edges.setdefault(source, set()):
                    edges[source].add(target)
                    count += 1
    scores = {"salsa": salsa, "hits": hits}[rank](edges)
    return {url: authority for url, (_, authority) in scores.items()}


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""

"""Export a frontier's URLs for URLFrontier: JSON lines as its client's PutURLs reads them.

A line is the message URLItem of https://github.com/crawler-commons/url-frontier in the JSON mapping
of Protocol Buffers. Names of metadata are those of StormCrawler.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import all_entries
from krowlspider.frontier.store.schema import host_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.store.store import Store

# The name of URLFrontier for a crawl without a name.
_CRAWL = "DEFAULT"
_PORT = re.compile(r":\d+$")


def url_items(store: Store, now: float) -> Iterator[str | None]:
    """Yield a line for each queued entry, then for each poison one; None for a whole request.

    ``now`` is the time in epoch seconds. A retry that is not due is known, and refetchable from its
    due time on. A poison page is known and never refetchable.
    """
    for key, value in all_entries(store):
        entry = entry_of(key, value)
        later = entry.due if entry.due > now else 0
        yield _line(entry, host_in(key), is_known=later > 0, later=later)
    for key, value in store.items(schema.POISON):
        yield _line(entry_of(key, value), host_in(key), is_known=True)


def _line(entry: Entry, host: str, *, is_known: bool, later: float = 0) -> str | None:
    if not entry.is_plain:
        return None
    # Without a port: that is how URLFrontier and StormCrawler name the queue of a URL.
    info = {
        "url": entry.url,
        "key": _PORT.sub("", host),
        "metadata": {name: {"values": values} for name, values in _metadata(entry).items()},
        "crawlID": _CRAWL,
    }
    item: dict[str, Any] = {"info": info}
    if later:
        # Rounded up, because the date has whole seconds.
        item["refetchable_from_date"] = int(later) + 1
    return msgspec.json.encode({"known" if is_known else "discovered": item}).decode()


def _metadata(entry: Entry) -> dict[str, list[str]]:
    found = {"depth": [str(entry.depth)]}
    if path := [*([entry.via] if entry.via else []), *entry.chain]:
        found["url.path"] = path
    if errors := entry.retries + entry.throttling:
        found["fetch.error.count"] = [str(errors)]
    return found

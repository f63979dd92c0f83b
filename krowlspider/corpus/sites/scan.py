"""Find robots.txt, ai.txt and tdmrep.json in a WARC file."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from krowlspider.archive.index.cdxj import target
from krowlspider.archive.payloads.payload import payload_of
from krowlspider.corpus.pages import codings_of, head_of, records
from krowlspider.corpus.sites.answers import FILES, READ_MAX, Site, site_of
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fastwarc.warc import WarcRecord

# Hosts remembered by the origin of a URL.
_HOSTS_CACHED = 4096


class Finding(msgspec.Struct):
    """A file of a host, when it was fetched, and what it says."""

    host: str
    path: str
    date: str
    offset: int
    site: Site


def findings(path: Path, decode: Callable[[bytes, str], bytes]) -> Iterator[Finding]:
    """Yield the answers of hosts in a WARC file. Raises OSError."""
    with path.open("rb") as stream:
        for offset, record in records(stream, 0, lambda *_: None):
            url = target(record)
            name = f"/{url.split('/', 3)[-1]}"
            if name not in FILES:
                continue
            found = _answer(record, decode)
            host = host_named(url)
            if found is not None and host:
                date = record.headers.get("WARC-Date") or ""
                yield Finding(host, name, date, offset, site_of(name, found))


def _answer(record: WarcRecord, decode: Callable[[bytes, str], bytes]) -> bytes | None:
    """Return the file; empty if the host has none; None if the response leaves that open."""
    try:
        block = record.reader.read(READ_MAX)
    except OSError as error:
        if error.errno is not None:
            raise
        return None
    status, headers = head_of(block)
    if status in {"404", "410"}:
        return b""
    if status != "200":
        return None
    try:
        return decode(payload_of(block), codings_of(headers))
    except ValueError:
        return None


def host_named(url: str) -> str:
    """Return the host of a URL in normal form; empty if it has none."""
    return _host("/".join(url.split("/", 3)[:3]))


@lru_cache(_HOSTS_CACHED)
def _host(origin: str) -> str:
    found = normalise(f"{origin}/")
    return host_of(found) if found else ""

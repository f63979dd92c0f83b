"""Find robots.txt, ai.txt and tdmrep.json in a WARC file."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from fastwarc.warc import WarcRecordType

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

_KINDS = WarcRecordType.response | WarcRecordType.revisit
# Hosts remembered by the origin of a URL.
_HOSTS_CACHED = 4096


class Finding(msgspec.Struct):
    """A file of a host, when it was fetched, and what it says.

    ``digest`` is its WARC-Payload-Digest, empty if there is no file or no digest. If
    ``is_revisit``, ``site`` is empty: a response to the same path with this digest has the content.
    """

    host: str
    path: str
    date: str
    offset: int
    site: Site
    digest: str = ""
    is_revisit: bool = False


def findings(path: Path, decode: Callable[[bytes, str], bytes]) -> Iterator[Finding]:
    """Yield the answers of hosts in a WARC file. Raises OSError."""
    with path.open("rb") as stream:
        for offset, record in records(stream, 0, lambda *_: None, _KINDS):
            url = target(record)
            name = f"/{url.split('/', 3)[-1]}"
            if name not in FILES:
                continue
            host, answer = host_named(url), _answer(record, decode)
            if answer is None or not host:
                continue
            fields = record.headers
            date, digest = (fields.get(f"WARC-{each}") or "" for each in ("Date", "Payload-Digest"))
            site = site_of(name, answer.content)
            if not answer.is_file:
                digest = ""
            yield Finding(host, name, date, offset, site, digest, answer.is_revisit)


class _Answer(NamedTuple):
    """Whether a host has the file. ``content`` is empty if it has none, or if ``is_revisit``: then
    another record has the payload."""

    is_file: bool
    content: bytes = b""
    is_revisit: bool = False


def _answer(record: WarcRecord, decode: Callable[[bytes, str], bytes]) -> _Answer | None:
    """Return what a record says of a file; None if it leaves open whether there is one."""
    try:
        block = record.reader.read(READ_MAX)
    except OSError as error:
        if error.errno is not None:
            raise
        return None
    status, headers = head_of(block)
    if status in {"404", "410"}:
        return _Answer(is_file=False)
    if status != "200":
        return None
    if record.record_type == WarcRecordType.revisit:
        return _Answer(is_file=True, is_revisit=True)
    try:
        return _Answer(is_file=True, content=decode(payload_of(block), codings_of(headers)))
    except ValueError:
        return None


def host_named(url: str) -> str:
    """Return the host of a URL in normal form; empty if it has none."""
    return _host("/".join(url.split("/", 3)[:3]))


@lru_cache(_HOSTS_CACHED)
def _host(origin: str) -> str:
    found = normalise(f"{origin}/")
    return host_of(found) if found else ""

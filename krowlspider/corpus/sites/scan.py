"""Find robots.txt, ai.txt, tdmrep.json and RSL licences in a WARC file."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from fastwarc.warc import WarcRecordType

from krowlspider.archive.index.cdxj import payload_digest, target
from krowlspider.archive.payloads.payload import body_of
from krowlspider.corpus.folder import LINES
from krowlspider.corpus.pages import BLOCK_MAX, SEGMENT, codings_of, head_of, records
from krowlspider.corpus.sites.answers import FILES, LICENCE, READ_MAX, Site, site_of
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fastwarc.warc import WarcRecord

# Bytes of a block in which a licence shows itself: by its media type or its namespace.
PEEK = 2048
_MARKS = (b"rsl+xml", b"rslstandard.org/rsl")
# Names that licences have, if their content is compressed and has no media type of its own.
_NAME = re.compile(r"(?:licen[cs]e|(?<![a-z])rsl|royalty)[^/?]*(?:\?[^/]*)?\Z", re.IGNORECASE)

_KINDS = WarcRecordType.response | WarcRecordType.revisit
# Hosts remembered by the origin of a URL.
_HOSTS_CACHED = 4096


def may_be_licence(url: str, start: bytes) -> bool:
    """Return whether a record may be a licence, by its URL and the start of its block."""
    lower = start.lower()
    return any(mark in lower for mark in _MARKS) or _NAME.search(url) is not None


def key_of(url: str) -> str:
    """Return a key of a licence, the same for http and https, that is no host; or an empty text."""
    return (normalise(url) or "").partition("://")[2]


class Finding(msgspec.Struct):
    """A file of a host, when it was fetched, and what it says.

    An RSL licence has the path LICENCE, and its own key in the place of a host.
    ``payload`` names the bytes of the file by payload digest and content codings; it is empty if
    there is no file or no digest. ``others`` has what these bytes say at each other path. If
    ``is_revisit``, ``site`` is empty: a response with this payload has the content.
    """

    host: str
    path: str
    date: str
    offset: int
    site: Site
    payload: str = ""
    others: dict[str, Site] = {}
    is_revisit: bool = False


def findings_file(name: str) -> str:
    """Return the name of the file with the findings in the WARC file ``name``."""
    return f"{name}.sites{LINES}"


def findings(path: Path, decode: Callable[[bytes, str], bytes]) -> Iterator[Finding]:
    """Yield the answers of hosts in a WARC file. Raises OSError."""
    with path.open("rb") as stream:
        for offset, record in records(stream, 0, lambda *_: None, _KINDS):
            url = target(record)
            name, start = f"/{url.split('/', 3)[-1]}", b""
            if name not in FILES:
                start, name = _read(record, PEEK) or b"", LICENCE
                if not may_be_licence(url, start):
                    continue
            host = key_of(url) if name == LICENCE else host_named(url)
            answer = _answer(record, decode, start)
            if answer is None or not host:
                continue
            site = site_of(name, answer.content)
            if name == LICENCE and site.terms is None and not answer.is_revisit:
                continue
            site.record_id = (record.record_id or "").strip("<>")
            found = Finding(
                host, name, record.headers.get("WARC-Date") or "", offset, site,
                is_revisit=answer.is_revisit,
            )  # fmt: skip
            if answer.digest:
                found.payload = f"{answer.digest} {answer.codings}"
            if found.payload and not found.is_revisit and name != LICENCE:
                others = FILES - {name}
                found.others = {path: site_of(path, answer.content) for path in others}
            yield found


class _Answer(NamedTuple):
    """The content of a file, with the digest of its payload and its content codings.

    All are empty if the host has no such file. ``is_revisit``: another record has the content.
    """

    content: bytes = b""
    digest: str = ""
    codings: str = ""
    is_revisit: bool = False


def _answer(
    record: WarcRecord, decode: Callable[[bytes, str], bytes], start: bytes
) -> _Answer | None:
    """Return what a record says of a file; None if it leaves open whether there is one, or has part
    of it.

    ``start`` was read of its block already.
    """
    if SEGMENT in record.headers:
        return None
    rest = _read(record, BLOCK_MAX)
    if rest is None:
        return None
    block = start + rest
    status, headers = head_of(block)
    if status in {"404", "410"}:
        return _Answer()
    if status != "200":
        return None
    codings = codings_of(headers)
    digest = payload_digest(record, block)
    if record.record_type == WarcRecordType.revisit:
        return _Answer(b"", digest, codings, is_revisit=True)
    try:
        return _Answer(body_of(block[:READ_MAX], decode), digest, codings)
    except ValueError:
        return None


def _read(record: WarcRecord, size: int) -> bytes | None:
    """Return the next bytes of a block, at most ``size``; None if they are damaged.

    Raises OSError if the file cannot be read.
    """
    try:
        return record.reader.read(size)
    except OSError as error:
        if error.errno is not None:
            raise
        return None


def host_named(url: str) -> str:
    """Return the host of a URL in normal form; empty if it has none."""
    return _host("/".join(url.split("/", 3)[:3]))


@lru_cache(_HOSTS_CACHED)
def _host(origin: str) -> str:
    found = normalise(f"{origin}/")
    return host_of(found) if found else ""

"""Find out which pages of an archive are its seeds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from krowlspider.archive.errors import RecordError
from krowlspider.archive.index.cdxj import SEEDS_URI, index_path
from krowlspider.archive.index.indexes import parsed
from krowlspider.archive.index.lookup import lines_with
from krowlspider.archive.payloads.payload import header
from krowlspider.archive.reading import read_record
from krowlspider.urls.canonical import normalise
from krowlspider.urls.page.headers import escape_octets
from krowlspider.urls.seeds import BadSeed, parse_seed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from krowlspider.archive.index.indexes import FileDamage

_REDIRECT = re.compile(rb'"status": ?"30[12378]"')
# Redirects followed from a seed, as by a crawl.
_REDIRECTS_MAX = 10


def seed_urls(warcs: Sequence[Path], damage: FileDamage) -> set[str]:
    """Return the seeds that the files hold, and the URLs that these were redirected to.

    The set is empty if no crawl has archived its seeds. A file that is gone is skipped. A damaged
    record is skipped too, and ``damage`` is called with its file and its error.

    :raises ArchiveError: an index is broken
    """
    found = new = set(_archived_seeds(warcs, damage))
    for _ in range(_REDIRECTS_MAX):
        if not new:
            break
        new = set(_targets(warcs, new, damage)) - found
        found = found | new
    return found


def _archived_seeds(warcs: Sequence[Path], damage: FileDamage) -> Iterator[str]:
    for warc in warcs:
        for line in lines_with(index_path(warc), f"{SEEDS_URI} "):
            for each in _block(warc, line.offset, damage).splitlines():
                yield from _urls_in(each)


def _urls_in(line: bytes) -> Iterator[str]:
    """Yield the URL of a seed, and also that with http if the seed has no scheme."""
    try:
        seed = parse_seed(line)
    except BadSeed:
        return
    if seed is not None:
        yield seed.url
        if seed.bare and (plain := normalise(f"http{seed.url.removeprefix('https')}")):
            yield plain


def _targets(warcs: Sequence[Path], urls: set[str], damage: FileDamage) -> Iterator[str]:
    """Yield where ``urls`` were redirected to."""
    for warc in warcs:
        index = index_path(warc)
        with index.open("rb") as file:
            for line in parsed(index, filter(_REDIRECT.search, file)):
                if line.url not in urls:
                    continue
                message = _block(warc, line.offset, damage)
                location = escape_octets(header(message, "Location").encode("latin-1"))
                if target := normalise(location, line.url):
                    yield target


def _block(warc: Path, offset: int, damage: FileDamage) -> bytes:
    """Return the block of a record; empty if it is damaged, or its file is gone."""
    try:
        return read_record(warc, offset)[1]
    except FileNotFoundError:
        return b""
    except RecordError as error:
        damage(warc, error)
        return b""

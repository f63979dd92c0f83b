"""Find the pages of an archive for a WACZ: their titles and texts, and which of them are seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from krowlspider.archive.errors import RecordError
from krowlspider.archive.index.cdxj import REVISIT, SEEDS_URI, index_path, timestamp
from krowlspider.archive.index.indexes import parsed
from krowlspider.archive.index.lookup import lines_with
from krowlspider.archive.payloads.payload import body_of, header, type_of
from krowlspider.archive.reading import Advance, read_member, read_record
from krowlspider.urls.canonical import normalise
from krowlspider.urls.media_type import HTML, computed_type
from krowlspider.urls.page.headers import escape_octets
from krowlspider.urls.page.links import read_text
from krowlspider.urls.seeds import BadSeed, parse_seed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from krowlspider.archive.index.indexes import FileDamage
    from krowlspider.archive.payloads.payload import Decode

# Begins a step of a name and a size in bytes.
Progress = Callable[[str, int], AbstractContextManager[Advance]]


class Pages:
    """The lists of pages: seeds and others. Without known seeds all pages are in the first list.

    ``main`` is the first page of the URL ``wanted``, else of a seed; None without such a page.
    """

    def __init__(self, listed: BinaryIO, others: BinaryIO, seeds: set[str], wanted: str) -> None:
        self._listed, self._others = listed, others
        self._seeds = seeds
        self._wanted = wanted
        self.count = 0
        self.main: dict[str, str] | None = None
        _write_json(listed, _head("pages", "Seed Pages" if seeds else "All Pages"))
        _write_json(others, _head("extra-pages", "Non-Seed Pages"))

    def add(self, page: dict[str, str]) -> None:
        is_seed = page["url"] in self._seeds
        is_main = page["url"] == self._wanted if self._wanted else is_seed
        if is_main and self.main is None:
            self.main = page
        self.count += 1
        file = self._listed if is_seed or not self._seeds else self._others
        _write_json(file, {**page, "seed": True} if is_seed else page)

    def lists(self) -> Iterator[tuple[str, BinaryIO]]:
        """Yield the file name of each list in the package, and its content."""
        lists = {"pages.jsonl": self._listed}
        if self._seeds:
            lists["extraPages.jsonl"] = self._others
        for name, file in lists.items():
            file.seek(0)
            yield name, file


def _head(identity: str, title: str) -> dict[str, object]:
    return {"format": "json-pages-1.0", "id": identity, "title": title, "hasText": True}


def list_pages(
    warc: Path,
    stream: BinaryIO,
    out: Pages,
    decode: Decode,
    progress: Progress,
    *,
    damage: FileDamage,
) -> None:
    """Add a file's HTML pages to ``out``, by the order of their records."""
    pages = _pages_of(index_path(warc))
    with progress(f"pages of {warc.name}", sum(page.length for page in pages)) as advance:
        for page in pages:
            found: tuple[str, str] | None = ("", "")
            try:
                found = _read(stream, page, decode)
            except RecordError as error:
                damage(warc, error)
            if found is not None:
                out.add(_page(page.url, page.stamp, *found))
            advance(page.length)


class _Listed(NamedTuple):
    """The place of a capture in a file, and that of its payload: None if it is in no known place.

    A doubtful one may be of anything: a revisit, or a response without a usable media type.
    """

    offset: int
    length: int
    url: str
    stamp: str
    content: int | None
    is_doubtful: bool


def _pages_of(index: Path) -> list[_Listed]:
    """Return a file's pages, and what is doubtful, sorted by offset."""
    found: list[_Listed] = []
    # The places of the revisits in ``found``, and their digests.
    revisits: dict[int, str] = {}
    with index.open("rb") as file:
        for line in parsed(index, file):
            if line.status != "200" or line.is_bare or line.method:
                continue
            is_revisit = line.mime == REVISIT
            if is_revisit and line.digest:
                revisits[len(found)] = line.digest
            named = computed_type([line.mime.encode()], (), b"").essence
            if is_revisit or not named or named in HTML:
                content = None if is_revisit else line.offset
                place = (line.offset, line.length, line.url, line.timestamp)
                found.append(_Listed(*place, content, is_revisit or not named))
        if revisits:
            file.seek(0)
            wanted = set(revisits.values())
            originals = {
                line.digest: line.offset
                for line in parsed(index, file)
                if line.digest in wanted and line.mime != REVISIT
            }
            for at, digest in revisits.items():
                found[at] = found[at]._replace(content=originals.get(digest))
    return sorted(found)


def _page(url: str, stamp: str, title: str, text: str) -> dict[str, str]:
    full = timestamp(stamp)
    date = f"{full[:4]}-{full[4:6]}-{full[6:8]}"
    page = {
        "id": str(uuid5(NAMESPACE_URL, f"{stamp}/{url}")),
        "url": url,
        "ts": f"{date}T{full[8:10]}:{full[10:12]}:{full[12:]}Z",
    }
    return page | {name: value for name, value in (("title", title), ("text", text)) if value}


def _read(stream: BinaryIO, page: _Listed, decode: Decode) -> tuple[str, str] | None:
    """Return the title and the text of a page, None if it is no page.

    They are empty if it has none, cannot be decoded, or is not in this file.
    """
    head, body = _message(stream, page.offset), b""
    if page.content is not None:
        message = head if page.content == page.offset else _message(stream, page.content)
        with suppress(ValueError):
            body = body_of(message, decode)
    media_type, charset = type_of(head, body)
    if page.is_doubtful and media_type not in HTML:
        return None
    return read_text(body, charset)


def _message(stream: BinaryIO, offset: int) -> bytes:
    message: bytes = read_member(stream, offset).record().reader.read()
    return message


def _write_json(file: BinaryIO, values: Mapping[str, object]) -> None:
    file.write(f"{json.dumps(values)}\n".encode())


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

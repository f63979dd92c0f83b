"""Find the fetches of a URL that differ from the fetch before, and compare their bodies."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from krowlspider.archive import gemini
from krowlspider.archive.cdxj import REVISIT, IndexLine, key_of, parse
from krowlspider.archive.disk import ArchiveError
from krowlspider.archive.indexes import merged
from krowlspider.archive.payload import Decode, are_equal, body_of, type_of
from krowlspider.changes.comparison import Difference, difference, is_same_text, similarity
from krowlspider.urls.encoding import HTML
from krowlspider.urls.page.links import lines_of_html, lines_of_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

GONE = frozenset({"404", "410"})
# Versions that are kept. Keys are in lower case, so a host can make many URLs of one key.
URLS_MAX = 1_000
# Pairs that are sorted at a time.
SORTED_AT_ONCE = 10_000


class VersionPair(Struct, frozen=True):
    """Two versions of a page: the captures that have them first.

    ``fetched_between`` counts the fetches between that found the version of ``before`` again, and
    ``unchanged_until`` is the timestamp of the last one that did.
    """

    before: IndexLine
    after: IndexLine
    fetched_between: int
    unchanged_until: str


class _Version(Struct):
    """The version that a page had last: its first capture, and the fetches that found it again."""

    first: IndexLine
    again: int
    until: str


def pairs_of(lines: Iterable[bytes], since: str = "", host: str = "") -> Iterator[VersionPair]:
    """Yield the changes of each URL, given all index lines in their order.

    A change is a 200 with another payload than the 200 before it, a 404 or 410 after a 200, or the
    reverse. Fetches with another status are passed over, and so is a 200 without payload, which may
    be the answer to HEAD. ``since`` is a timestamp of 14 digits: earlier changes are left out.
    ``host`` is a name in lower case, for all ports, or a name with a port.

    :raises ArchiveError: a line is broken
    """
    # All fetches of a URL are together, but for those of other URLs with the same key.
    versions: dict[str, _Version] = {}
    fetches = _fetches(lines, host)
    for _, group in groupby(fetches, lambda line: (line.key, line.timestamp)):
        # The order of lines within a second is not that of time.
        for line in sorted(group, key=lambda each: (each.filename, each.offset)):
            known = versions.pop(line.url, None)
            found = _version_after(known, line)
            if found is not None:
                versions[line.url] = found
                if len(versions) > URLS_MAX:
                    del versions[next(iter(versions))]
            if known is not None and found is not known and line.timestamp >= since:
                yield VersionPair(known.first, line, known.again, known.until)


def _fetches(lines: Iterable[bytes], host: str) -> Iterator[IndexLine]:
    """Yield the captures of a host, or of all hosts, that tell of a page's state."""
    beginning = key_of(f"http://{host}/").removesuffix(")/").encode() if host else b""
    for text in lines:
        if not text.startswith(beginning):
            continue
        line = _parsed(text)
        is_told = line.status in GONE or line.status == "200" or _is_304(line)
        if is_told and not line.method and not line.is_bare and _is_of(line.url, host):
            yield line


def _parsed(text: bytes) -> IndexLine:
    try:
        line = parse(text)
        if b"\\ud" in text:
            # Half a surrogate pair can be escaped in JSON, but is no text.
            msgspec.json.encode(line)
    except ValueError as error:
        raise ArchiveError(
            f"an index has a line that is broken, {text[:80]!r}: remove that index, and scrapy warc"
            " index makes it anew"
        ) from error
    return line


def _is_of(url: str, host: str) -> bool:
    place = url.partition("://")[2].partition("/")[0].rpartition("@")[2].lower()
    return host in {"", place, place.partition(":")[0]}


def _is_304(line: IndexLine) -> bool:
    """Return whether a capture is the answer 304 that confirms an earlier one."""
    return (line.mime, line.status) == (REVISIT, "304")


def _version_after(known: _Version | None, line: IndexLine) -> _Version | None:
    """Return the version of a page after a fetch: ``known`` itself if it has not changed."""
    if known is None:
        return None if _is_304(line) else _Version(line, 0, line.timestamp)
    if not _is_same(known.first, line):
        return _Version(line, 0, line.timestamp)
    known.again += 1
    known.until = line.timestamp
    return known


def _is_same(known: IndexLine, line: IndexLine) -> bool:
    """Return whether a fetch found the version again whose first capture is ``known``."""
    if _is_304(line):
        return True
    if known.status in GONE or line.status in GONE:
        return known.status in GONE and line.status in GONE
    return bool(line.digest) and are_equal(known.digest, line.digest)


def in_time(pairs: Iterable[VersionPair], scratch: Path) -> Iterator[VersionPair]:
    """Yield the pairs in the order of the time of ``after``; ``scratch`` holds sorted parts.

    :raises OSError: a part cannot be written or read
    """
    parts: list[Path] = []
    texts: list[bytes] = []
    for number, pair in enumerate(pairs):
        # Those of one second keep their order.
        head = f"{pair.after.timestamp} {number:012} ".encode()
        texts.append(head + msgspec.json.encode(pair) + b"\n")
        if len(texts) == SORTED_AT_ONCE:
            parts.append(_sorted_part(texts, scratch / f"part-{len(parts)}"))
            texts = []
    parts.append(_sorted_part(texts, scratch / f"part-{len(parts)}"))
    for text in merged(parts, scratch):
        yield msgspec.json.decode(text.split(b" ", 2)[2], type=VersionPair)


def _sorted_part(texts: list[bytes], path: Path) -> Path:
    with path.open("wb") as file:
        file.writelines(sorted(texts))
    return path


# Bytes of a stored response, and of a decoded body, that are compared.
BODY_MAX = 16 * 1024 * 1024
# Bytes of a record that must be read for it: the rest are the fields of the record.
READ_MAX = BODY_MAX + 64 * 1024


class Body(NamedTuple):
    """The decoded body of a capture; ``content`` is None if it is too large or cannot be decoded.

    ``media_type`` is what browsers take it for, ``charset`` the encoding that its header names.
    """

    media_type: str
    charset: str | None
    content: bytes | None
    is_truncated: bool


class Compared(NamedTuple):
    """What is known of two versions; each value is None if it is not known.

    ``media_type`` is that of the new version.
    """

    media_type: str | None = None
    similarity: float | None = None
    text_changed: bool | None = None
    is_truncated: bool | None = None
    difference: Difference | None = None


def body_in(fields: Mapping[str, str], block: bytes, decode: Decode) -> Body:
    """Return the body in a record that has these fields and this block, up to READ_MAX bytes."""
    content = None
    if gemini.is_gemini(fields.get("Content-Type")):
        found = gemini.read(block)
        content = found.payload if len(block) <= BODY_MAX else None
        return Body(*found.type, content, "WARC-Truncated" in fields)
    if len(block) <= BODY_MAX:
        try:
            content = body_of(block, decode)
        except ValueError:
            content = None
    media_type, charset = type_of(block, content or b"")
    return Body(media_type, charset, content, "WARC-Truncated" in fields)


def compared(before: Body, after: Body, *, with_difference: bool) -> Compared | None:
    """Return how two versions differ; None if they do not, once decoded."""
    if before.content is not None and before.content == after.content:
        return None
    media_type = after.media_type or None
    is_truncated = before.is_truncated or after.is_truncated
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        return Compared(media_type, is_truncated=is_truncated)
    return Compared(
        media_type,
        similarity(old, new),
        not is_same_text(old, new),
        is_truncated,
        difference(old, new) if with_difference else None,
    )


def _lines(body: Body) -> list[str] | None:
    """Return the text that a reader sees; None of what is neither HTML nor text."""
    if body.content is None:
        return None
    if body.media_type in HTML:
        return lines_of_html(body.content, body.charset)
    if body.media_type.startswith("text/"):
        return lines_of_text(body.content, body.charset)
    return None

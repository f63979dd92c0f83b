"""Changes of pages, as lines of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Struct, UnsetType

from krowlspider.archive.disk import OPEN

if TYPE_CHECKING:
    from krowlspider.archive.index.cdxj import IndexLine
    from krowlspider.changes.bodies import Compared
    from krowlspider.changes.pairs import Pair


class _Fetch(Struct):
    """A fetch, and the place of its record: final name of the WARC file, offset of its member."""

    time: str
    status: int
    digest: str | None
    file: str
    offset: int


class _Change(Struct):
    """The values of a line; `docs/recrawl.md` says what they are."""

    url: str
    before: _Fetch
    after: _Fetch
    fetched_between: int
    unchanged_until: str
    media_type: str | None
    similarity: float | None
    text_changed: bool | None
    truncated: bool | None
    diff: str | UnsetType | None = UNSET
    diff_cut: bool | UnsetType | None = UNSET


def change_line(pair: Pair, compared: Compared, *, with_difference: bool) -> str:
    """Return the line of a change, without its line break."""
    change = _Change(
        pair.after.url,
        _fetch(pair.before),
        _fetch(pair.after),
        pair.fetched_between,
        _time(pair.unchanged_until),
        compared.media_type,
        compared.similarity,
        compared.text_changed,
        compared.is_truncated,
    )
    if with_difference:
        change.diff, change.diff_cut = compared.difference or (None, None)
    return msgspec.json.encode(change).decode()


def _fetch(line: IndexLine) -> _Fetch:
    return _Fetch(
        _time(line.timestamp),
        int(line.status),
        line.digest or None,
        line.filename.removesuffix(OPEN),
        line.offset,
    )


def _time(stamp: str) -> str:
    """Return 14 digits as in ISO 8601; other text, as in an index of another tool, as it is."""
    if len(stamp) != 14 or not stamp.isdigit():
        return stamp
    return f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}T{stamp[8:10]}:{stamp[10:12]}:{stamp[12:]}Z"

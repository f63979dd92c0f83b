"""The row of a page, and its format on disk."""

from __future__ import annotations

import re
import struct
from datetime import datetime, timedelta
from math import inf

from msgspec import Struct

from krowlspider.frontier.entry import AGAIN, SITEMAP, Entry, lengthen, shorten
from krowlspider.frontier.store.schema import SEED_SIZE
from krowlspider.recrawl.gone import TEXT_SIZE, Absence, State
from krowlspider.recrawl.prior import Kind
from krowlspider.recrawl.validators import http_date

# The first byte of each row. A row with another one, or with a flag that is not known here, is of
# another version: it is kept as it is.
_FORMAT = 2
_HEAD = struct.Struct(">BIHHd")
_HISTORY = struct.Struct(">IIHHH")
_SECONDS = struct.Struct(">I")
_EXACT = struct.Struct(">d")
_SHORT = struct.Struct(">f")
_FLOATS = struct.Struct(">ff")
_LENGTH = _NUMBER = struct.Struct(">H")
_PLAN = struct.Struct(">II")
_ABSENCE = struct.Struct(">BBI")
_BITS = struct.Struct(">B")
# Flags: the fields that follow the head, in this order.
_HISTORICAL = 1
_STORED = 2
_UNSTORED = 4
_ELSEWHERE = 8
_ETAG = 16
_DATED = 32
_MODIFIED = 64
_SHA1 = 128
_SHA256 = 256
_ESTIMATE = 512
_PASS = 1024
_PLANNED = 2048
_ABSENT = 4096
_TEXT = 1 << 13
_NAMED = 1 << 14
_LIST = 1 << 15
_SEED = 1 << 16
_WEIGHT = 1 << 17
_PRICE = 1 << 18
_KNOWN = (2 * _PRICE) - 1
# The highest count that a row holds.
COUNT_MAX = 0xFFFF
# The latest time that a row holds in whole seconds, in 2106.
SECONDS_MAX = 0xFFFFFFFF
_DAYS = (b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun")
_MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_MONTH_NUMBERS = {name: number for number, name in enumerate(_MONTHS, 1)}
_DATE = re.compile(rb"(...), (\d\d) (...) (\d{4}) (\d\d):(\d\d):(\d\d) GMT", re.DOTALL)
# Bytes of an IMF-fixdate.
_FIXDATE = 29
# UTC, but naive: that is faster.
_EPOCH = datetime(1970, 1, 1)


class LaterRow(Exception):
    """A row of another version, which this one cannot read."""


class PageRow(Struct):
    """What is known of a page. Times are in seconds since the epoch.

    - ``depth``: its depth in the crawl. ``status``: of the last answer but 304.
    - ``first``, ``last``: the begin of its first and its last fetch. ``changed``: of the fetch that
      found its last change; 0 if each answer was an error that may pass. Such an error, and the
      first answer that the page is missing, leave ``payload``, ``text`` and all that names the
      record as they were.
    - ``stored``: the WARC-Date of the record that has its payload; 0 without one. With the URL it
      names the record (`scrapy warc JOBDIR --cat URL --at DATE`). ``elsewhere``: the URL of that
      record if it is another one.
    - ``etag``, ``modified``: ETag and Last-Modified as the server sent them; empty without.
    - ``payload``: its digest, 20 or 32 bytes; empty without a record.
    - ``text``: the digest of its main text (`krowlspider.recrawl.text`), 8 bytes; empty if it has
      none, or was fetched without KROWL_RECRAWL.
    - ``fetches``: answers in all. ``unmodified``: those with status 304. ``changes``: those with
      another text than before, or payload if no text is known. Each counts up to COUNT_MAX.
    - ``estimate``: of its rate of change, see `krowlspider.recrawl.estimate.Estimate`, two 4-byte
      floats; None before its second fetch, unless the schedule has planned it.
    - ``passed``: the number of the pass of its last fetch, see ``RecrawlPass``; 0 outside of one.
    - ``due``: when it is fetched again by the schedule, in whole seconds of the job clock; 0 for a
      page that is queued for it, or is not planned. ``planned``: the seconds from the plan to the
      time that it chose; 0 for a page that is not planned, or was planned by another node.
    - ``named``: who said since its last fetch that it has changed, ``tried``: by which of them it
      was brought forward. Bits of `Source` and PUSHED, see `krowlspider.recrawl.hints`.
    - ``listing``: of a sitemap or a feed: its level, a byte, and the host that it speaks for, see
      `SitemapReader`; empty for a page.
    - ``absence``: the last answers in a row that say that it is missing or moved; without the
      schedule, the first that says that it is missing.
    - ``seed``: the key of the seed that it came from, as in its entry.
    - ``weight``: that of the plan, a 4-byte float: what it added to the demand of its host goes by
      it, whatever the weight of its site is now.
    - ``price``: what its last answer but 304 asked for, as in an item; empty for nearly all.
    """

    url: str
    status: int
    first: int
    last: float
    depth: int = 0
    changed: int = 0
    stored: float = 0.0
    elsewhere: str = ""
    etag: bytes = b""
    modified: bytes = b""
    payload: bytes = b""
    fetches: int = 1
    unmodified: int = 0
    changes: int = 0
    estimate: tuple[float, float] | None = None
    passed: int = 0
    due: int = 0
    planned: int = 0
    absence: Absence = Absence()
    seed: bytes = b""
    named: int = 0
    tried: int = 0
    listing: bytes = b""
    text: bytes = b""
    weight: float = 1.0
    price: str = ""

    @property
    def kind(self) -> Kind:
        """Return what it is, as far as its estimate goes."""
        return Kind.LIST if self.listing else Kind.PAGE

    @property
    def is_planned(self) -> bool:
        """Return whether it has a next time, or is queued as that has come."""
        return bool(self.due or self.planned)

    @property
    def next_fetch(self) -> int:
        """Return when the schedule fetches it again, in whole seconds of the job clock: a time in
        the past if it is due or queued, 0 if it is not planned."""
        if self.due or not self.planned:
            return self.due
        return second_of(self.last + self.planned)

    def encode(self, host: str) -> bytes:
        """Return the row as it is stored under a key of its host: only what is not default."""
        flags = 0
        fields: list[bytes] = []
        counts = (self.fetches, self.unmodified, self.changes)
        if counts != (1, 0, 0) or not self.changed == self.first == second_of(self.last):
            flags |= _HISTORICAL
            fields.append(
                _HISTORY.pack(self.first, self.changed, *(min(each, COUNT_MAX) for each in counts))
            )
        if not self.stored:
            flags |= _UNSTORED
        elif self.stored != self.last:
            flags |= _STORED
            fields.append(_EXACT.pack(self.stored))
        if self.elsewhere:
            flags |= _ELSEWHERE
            fields.append(_with_length(self.elsewhere.encode()))
        if self.etag or self.modified:
            flags |= self._put_validators(fields)
        if self.payload:
            flags |= _SHA1 if len(self.payload) == 20 else _SHA256
            fields.append(self.payload)
        flags |= self._put_schedule(fields)
        if self.seed:
            flags |= _SEED
            fields.append(self.seed)
        if self.price:
            flags |= _PRICE
            fields.append(_with_length(self.price.encode()))
        head = _HEAD.pack(_FORMAT, flags, self.status, min(self.depth, 0xFFFF), self.last)
        return b"".join((head, *fields, shorten(self.url, host).encode()))

    def _put_schedule(self, fields: list[bytes]) -> int:
        """Add what decides when it is fetched again to the fields, and return their flags."""
        flags = 0
        if self.estimate is not None:
            flags |= _ESTIMATE
            fields.append(_FLOATS.pack(*self.estimate))
        if self.passed:
            flags |= _PASS
            fields.append(_NUMBER.pack(self.passed))
        if self.due or self.planned:
            flags |= _PLANNED
            fields.append(_PLAN.pack(self.due, self.planned))
        if self.absence.answers:
            flags |= _ABSENT
            state, answers, since = self.absence
            fields.append(_ABSENCE.pack(state, answers, second_of(since)))
        if self.named or self.tried:
            flags |= _NAMED
            fields.append(_BITS.pack(self.named | self.tried << 4))
        if self.listing:
            flags |= _LIST
            fields.append(_with_length(self.listing))
        if self.text:
            flags |= _TEXT
            fields.append(self.text)
        if self.planned and self.weight != 1.0:
            flags |= _WEIGHT
            fields.append(_SHORT.pack(self.weight))
        return flags

    def _put_validators(self, fields: list[bytes]) -> int:
        """Add the validators to the fields, and return their flags."""
        flags = 0
        if self.etag:
            flags |= _ETAG
            fields.append(_with_length(self.etag))
        if self.modified:
            seconds = seconds_of_date(self.modified)
            if seconds is None:
                flags |= _MODIFIED
                fields.append(_with_length(self.modified))
            else:
                flags |= _DATED
                fields.append(_SECONDS.pack(seconds))
        return flags


def decode_row(data: bytes, host: str) -> PageRow:
    """Return the row that `PageRow.encode` stored under a key of ``host``.

    :raises LaterRow: another version stored it
    """
    if data[:1] != b"\2":
        raise LaterRow(f"a row of format {data[:1].hex()}")
    _, flags, status, depth, last = _HEAD.unpack_from(data)
    if flags & ~_KNOWN:
        raise LaterRow(f"a row with flags {flags:x}")
    at = _HEAD.size
    row = PageRow("", status, 0, last, depth)
    if flags & _HISTORICAL:
        row.first, row.changed, *counts = _HISTORY.unpack_from(data, at)
        row.fetches, row.unmodified, row.changes = counts
        at += _HISTORY.size
    else:
        row.first = row.changed = second_of(last)
    if flags & _STORED:
        (row.stored,) = _EXACT.unpack_from(data, at)
        at += _EXACT.size
    elif not flags & _UNSTORED:
        row.stored = last
    if flags & _ELSEWHERE:
        elsewhere, at = _read(data, at)
        row.elsewhere = elsewhere.decode()
    if flags & (_ETAG | _DATED | _MODIFIED):
        at = _read_validators(row, flags, data, at)
    if flags & (_SHA1 | _SHA256):
        size = 20 if flags & _SHA1 else 32
        row.payload, at = data[at : at + size], at + size
    at = _read_schedule(row, flags, data, at)
    if flags & _SEED:
        row.seed, at = data[at : at + SEED_SIZE], at + SEED_SIZE
    if flags & _PRICE:
        price, at = _read(data, at)
        row.price = price.decode()
    row.url = lengthen(data[at:].decode(), host)
    return row


def read_row(data: bytes, host: str) -> PageRow | None:
    """Return a stored row; None for one of another version."""
    try:
        return decode_row(data, host)
    except LaterRow:
        return None


def entry_again(row: PageRow) -> Entry:
    """Return the entry of a page that is fetched again."""
    what = AGAIN + SITEMAP + row.listing if row.listing else AGAIN
    return Entry(row.url, row.depth, request=what, seed=row.seed)


def last_fetch(data: bytes, host: str) -> float:
    """Return the time of the last fetch in a stored row; infinity for one of another version."""
    try:
        return decode_row(data, host).last
    except LaterRow:
        return inf


def without_plan(data: bytes, host: str) -> bytes:
    """Return a stored row without the plan of another node: its time is of that node's clock."""
    row = read_row(data, host)
    if row is None or not row.is_planned:
        return data
    row.due = row.planned = row.tried = 0
    return row.encode(host)


def second_of(time: float) -> int:
    """Return a time, which may be any, as the whole seconds that a row holds."""
    return int(min(max(time, 0.0), SECONDS_MAX))


def _read_schedule(row: PageRow, flags: int, data: bytes, at: int) -> int:
    """Set what decides when a page is fetched again, and return where it ends."""
    if flags & _ESTIMATE:
        row.estimate = _FLOATS.unpack_from(data, at)
        at += _FLOATS.size
    if flags & _PASS:
        (row.passed,) = _NUMBER.unpack_from(data, at)
        at += _NUMBER.size
    if flags & _PLANNED:
        row.due, row.planned = _PLAN.unpack_from(data, at)
        at += _PLAN.size
    if flags & _ABSENT:
        state, answers, since = _ABSENCE.unpack_from(data, at)
        row.absence = Absence(State(state), answers, since)
        at += _ABSENCE.size
    if flags & _NAMED:
        (bits,) = _BITS.unpack_from(data, at)
        row.named, row.tried = bits & 15, bits >> 4
        at += _BITS.size
    if flags & _LIST:
        row.listing, at = _read(data, at)
    if flags & _TEXT:
        row.text, at = data[at : at + TEXT_SIZE], at + TEXT_SIZE
    if flags & _WEIGHT:
        (row.weight,) = _SHORT.unpack_from(data, at)
        at += _SHORT.size
    return at


def _read_validators(row: PageRow, flags: int, data: bytes, at: int) -> int:
    """Set the validators of a row that stand at a place, and return where they end."""
    if flags & _ETAG:
        row.etag, at = _read(data, at)
    if flags & _DATED:
        row.modified = date_of_seconds(_SECONDS.unpack_from(data, at)[0])
        at += _SECONDS.size
    elif flags & _MODIFIED:
        row.modified, at = _read(data, at)
    return at


def _with_length(text: bytes) -> bytes:
    return _LENGTH.pack(len(text)) + text


def _read(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the text behind its length, and where it ends."""
    start = at + _LENGTH.size
    end = start + int(_LENGTH.unpack_from(data, at)[0])
    return data[start:end], end


def date_of_seconds(seconds: int) -> bytes:
    """Return a time as an IMF-fixdate (RFC 9110, section 5.6.7)."""
    at = _EPOCH + timedelta(seconds=seconds)
    return b"%b, %02d %b %d %02d:%02d:%02d GMT" % (
        _DAYS[at.weekday()],
        at.day,
        _MONTHS[at.month - 1],
        at.year,
        at.hour,
        at.minute,
        at.second,
    )


def seconds_of_date(text: bytes) -> int | None:
    """Return the time whose IMF-fixdate is exactly ``text``, from 1970 to 2106; else None."""
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    name, day, month, year, hour, minute, second = found.groups()
    try:
        at = datetime(
            int(year), _MONTH_NUMBERS[month], int(day), int(hour), int(minute), int(second)
        )
    except (ValueError, KeyError):
        return None
    since = at - _EPOCH
    seconds = since.days * 86_400 + since.seconds
    if not 0 <= seconds <= SECONDS_MAX or _DAYS[at.weekday()] != name:
        return None
    return seconds


def is_as_new_as(changed: bytes, sent_at: bytes) -> bool:
    """Return whether a Last-Modified is of the second of its answer, or later.

    ``sent_at`` is the Date of that answer, empty if it has none: then nothing is known.
    """
    if changed == sent_at:
        return True
    first, then = _in_order(changed), _in_order(sent_at)
    if first is not None and then is not None:
        return first >= then
    of_page, of_answer = http_date(changed), http_date(sent_at)
    return of_page is not None and of_answer is not None and of_page >= of_answer


def _in_order(date: bytes) -> tuple[bytes, int, bytes, bytes] | None:
    """Return what orders an IMF-fixdate, as nearly all are; None for another form."""
    year, month, day = date[12:16], _MONTH_NUMBERS.get(date[8:11]), date[5:7]
    if len(date) != _FIXDATE or month is None or not (year + day).isdigit():
        return None
    return year, month, day, date[17:25]

"""The row of a page, and its format on disk."""

from __future__ import annotations

import logging
import re
import struct
from datetime import datetime, timedelta
from functools import lru_cache
from math import inf

from msgspec import Struct

from krowlspider.frontier.entry import AGAIN, SITEMAP, Entry, lengthen, shorten
from krowlspider.frontier.store.schema import KEY_SIZE, SEED_SIZE
from krowlspider.recrawl.estimate import ESTIMATE_SIZE, Estimate
from krowlspider.recrawl.gone import TEXT_SIZE, Absence, PageState
from krowlspider.recrawl.prior import PageKind
from krowlspider.recrawl.validators import http_date

# The first byte of each row, before its flags. A row with another one, or with a flag that is not
# known here, is of another version: it is kept as it is.
_FORMAT = 4
_HEAD = struct.Struct(">I")
_SECONDS = struct.Struct(">I")
_SHORT = struct.Struct(">f")
_ABSENCE = struct.Struct(">BBI")
_BITS = struct.Struct(">B")
# Bytes of a time in microseconds.
_EXACT = 7
_MILLION = 1_000_000
# Flags: the fields that follow the head, in this order.
_HISTORICAL = 1
_STORED = 1 << 1
_STATUS = 1 << 2
_PASS = 1 << 3
_PLANNED = 1 << 4
_DUE = 1 << 5
_UNSTORED = 1 << 6
_ELSEWHERE = 1 << 7
_ETAG = 1 << 8
_HEX_ETAG = 1 << 9
_DATED = 1 << 10
_MODIFIED = 1 << 11
_SHA1 = 1 << 12
_SHA256 = 1 << 13
_ESTIMATE = 1 << 14
_ABSENT = 1 << 15
_TEXT = 1 << 16
_NAMED = 1 << 17
_LIST = 1 << 18
_SEED = 1 << 19
_WEIGHT = 1 << 20
_PRICE = 1 << 21
_KNOWN = 2 * _PRICE - 1
# The flags of numbers, and how many numbers they stand for: a history has five, a time two.
_NUMBERS = 2 * _DUE - 1
_EXTRA = [
    flags.bit_count() + 4 * (flags & _HISTORICAL) + bool(flags & _STORED)
    for flags in range(_NUMBERS + 1)
]
# The highest count that a row holds.
COUNT_MAX = 0xFFFF
# Next times are whole multiples of these seconds.
TICK = 60
_OK = 200
# The latest time that a row holds, in 2106.
SECONDS_MAX = 0xFFFFFFFF
_DAYS = (b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun")
_MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_MONTH_NUMBERS = {name: number for number, name in enumerate(_MONTHS, 1)}
_DATE = re.compile(rb"(...), (\d\d) (...) (\d{4})", re.DOTALL)
_DATE_SIZE = 16
_CLOCK = re.compile(rb" ([01]\d|2[0-3]):([0-5]\d):([0-5]\d) GMT")
# Bytes of an IMF-fixdate.
_FIXDATE = 29
# UTC, but naive: that is faster.
_EPOCH = datetime(1970, 1, 1)


logger = logging.getLogger(__name__)


class LaterRow(Exception):
    """A row of another version, which this one cannot read."""


class DamagedRow(Exception):
    """Bytes that `PageRow.encode` never wrote; the message says why."""


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
    - ``estimate``: of its rate of change, see `krowlspider.recrawl.estimate.Estimate`; None before
      its second fetch, unless the schedule has planned it.
    - ``passed``: the number of the pass of its last fetch, see ``RecrawlPass``; 0 outside of one.
    - ``due``: when it is fetched again by the schedule, in seconds of the job clock, a multiple of
      TICK; 0 for a page that is queued for it, or is not planned. ``planned``: the seconds from the
      plan to the time that it chose; 0 for a page that is not planned, or was planned by another
      node.
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
    def kind(self) -> PageKind:
        """Return what it is, as far as its estimate goes."""
        return PageKind.LIST if self.listing else PageKind.PAGE

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
        """Return the row as it is stored under a key of its host: only what is not default.

        A row that is cut off is known by the length of its URL.
        """
        flags, exact = 0, self.stored or self.last
        if not self.stored:
            flags |= _UNSTORED
        time = _microseconds(exact)
        last = second = time // _MILLION
        url = shorten(self.url, host).encode()
        numbers = [len(url), min(self.depth, COUNT_MAX)]
        if self.status != _OK:
            flags |= _STATUS
            numbers.append(self.status)
        if exact != self.last:
            flags |= _STORED
            last, part = divmod(_microseconds(self.last), _MILLION)
            numbers += last - second & SECONDS_MAX, part
        counts = (self.fetches, self.unmodified, self.changes)
        if counts != (1, 0, 0) or not self.changed == self.first == last:
            flags |= _HISTORICAL
            numbers += second - self.first & SECONDS_MAX, second - self.changed & SECONDS_MAX
            numbers += [min(each, COUNT_MAX) for each in counts]
        if self.passed:
            flags |= _PASS
            numbers.append(self.passed)
        planned = min(self.planned, SECONDS_MAX)
        if planned:
            flags |= _PLANNED
            numbers.append(planned)
        if self.due:
            flags |= _DUE
            # The clocks of fetches and plans hardly differ: nearly nothing is left.
            expected = (last + planned) // TICK
            numbers.append(self.due // TICK - expected & SECONDS_MAX)
        fields: list[bytes] = []
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
        head = _HEAD.pack(_FORMAT << 24 | flags) + time.to_bytes(_EXACT) + _packed_numbers(numbers)
        return b"".join((head, *fields, url))

    def _put_schedule(self, fields: list[bytes]) -> int:
        """Add what else decides when it is fetched again to the fields, and return their flags."""
        flags = 0
        if self.estimate is not None:
            flags |= _ESTIMATE
            fields.append(bytes(Estimate(*self.estimate)))
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
            packed = _packed(self.etag)
            flags |= _ETAG if packed is None else _HEX_ETAG
            fields.append(packed or _with_length(self.etag))
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
    :raises DamagedRow: it is cut off, or no row
    """
    if data[:1] != b"\4":
        if not data:
            raise DamagedRow("it is empty")
        raise LaterRow(f"a row of format {data[0]}")
    try:
        flags = _HEAD.unpack_from(data)[0] & 0xFFFFFF
        if flags & ~_KNOWN:
            raise LaterRow(f"a row with flags {flags:x}")
        return _read_row(data, flags, host)
    except (ValueError, IndexError, struct.error) as error:
        raise DamagedRow(str(error)) from error


def _read_row(data: bytes, flags: int, host: str) -> PageRow:
    """:raises ValueError, IndexError, struct.error: it is damaged"""
    row = PageRow("", _OK, 0, 0.0)
    size, at = _read_numbers(row, flags, data, _HEAD.size)
    if flags & _ELSEWHERE:
        elsewhere, at = _read(data, at)
        row.elsewhere = elsewhere.decode()
    if flags & (_ETAG | _HEX_ETAG | _DATED | _MODIFIED):
        at = _read_validators(row, flags, data, at)
    if flags & (_SHA1 | _SHA256):
        length = 20 if flags & _SHA1 else 32
        row.payload, at = data[at : at + length], at + length
    at = _read_schedule(row, flags, data, at)
    if flags & _SEED:
        row.seed, at = data[at : at + SEED_SIZE], at + SEED_SIZE
    if flags & _PRICE:
        price, at = _read(data, at)
        row.price = price.decode()
    # Slices that end behind the data have no error of their own.
    if len(data) - at != size:
        raise ValueError(f"a URL of {len(data) - at} bytes, not {size}")
    row.url = lengthen(data[at:].decode(), host)
    if "://" not in row.url:
        raise ValueError(f"no URL: {row.url[:80]!r}")
    return row


def is_later(data: bytes) -> bool:
    """Return whether another version stored a row: it is kept as it is."""
    if data[:1] != b"\4":
        return bool(data)
    return len(data) >= _HEAD.size and bool(_HEAD.unpack_from(data)[0] & 0xFFFFFF & ~_KNOWN)


def read_row(data: bytes, host: str, identity: bytes) -> PageRow | None:
    """Return a stored row; None for one of another version, and for one that is damaged, which is
    logged. ``identity`` is that in its key."""
    try:
        return decode_row(data, host)
    except LaterRow:
        return None
    except DamagedRow as error:
        logger.warning(
            "Row of a page of %s is damaged, and counts as missing: identity %s (%s); once the"
            " crawl has stopped, remove it with: scrapy frontier JOBDIR --repair",
            host,
            identity[-KEY_SIZE:].hex(),
            error,
        )
        return None


def entry_again(row: PageRow) -> Entry:
    """Return the entry of a page that is fetched again."""
    what = AGAIN + SITEMAP + row.listing if row.listing else AGAIN
    return Entry(row.url, row.depth, request=what, seed=row.seed)


def last_fetch(data: bytes, host: str) -> float:
    """Return the time of the last fetch in a stored row; infinity for one of another version, and
    minus infinity for one that is damaged."""
    try:
        return decode_row(data, host).last
    except LaterRow:
        return inf
    except DamagedRow:
        return -inf


def without_plan(data: bytes, host: str) -> bytes:
    """Return a stored row without the plan of another node: its time is of that node's clock."""
    if is_later(data):
        return data
    row = decode_row(data, host)
    if not row.is_planned:
        return data
    row.due = row.planned = row.tried = 0
    return row.encode(host)


def second_of(time: float) -> int:
    """Return a time, which may be any, as the whole seconds that a row holds."""
    return int(held(time))


def held(time: float) -> float:
    """Return the nearest time that a row holds; 0 for no number."""
    if 0.0 <= time <= SECONDS_MAX:
        return time
    return float(SECONDS_MAX) if time > SECONDS_MAX else 0.0


def _read_numbers(row: PageRow, flags: int, data: bytes, at: int) -> tuple[int, int]:
    """Set times and numbers of a row. Return the bytes of its URL, and where the numbers end."""
    time = int.from_bytes(data[at : at + _EXACT])
    last = second = time // _MILLION
    row.last = exact = time / _MILLION
    if not flags & _UNSTORED:
        row.stored = exact
    numbers, at = _unpacked_numbers(data, at + _EXACT, 2 + _EXTRA[flags & _NUMBERS])
    each = iter(numbers)
    size, row.depth = next(each), next(each)
    if flags & _STATUS:
        row.status = next(each)
    if flags & _STORED:
        last = second + next(each) & SECONDS_MAX
        row.last = (last * _MILLION + next(each)) / _MILLION
    if max(exact, row.last) > SECONDS_MAX or max(row.depth, row.status) > COUNT_MAX:
        raise ValueError(f"times of {exact} and {row.last}, depth {row.depth}, status {row.status}")
    if flags & _HISTORICAL:
        row.first, row.changed = (
            second - next(each) & SECONDS_MAX,
            second - next(each) & SECONDS_MAX,
        )
        row.fetches, row.unmodified, row.changes = next(each), next(each), next(each)
        if max(row.fetches, row.unmodified, row.changes) > COUNT_MAX:
            raise ValueError(f"counts up to {max(row.fetches, row.unmodified, row.changes)}")
    else:
        row.first = row.changed = min(last, SECONDS_MAX)
    if flags & _PASS:
        row.passed = next(each)
    if flags & _PLANNED:
        row.planned = next(each)
    if flags & _DUE:
        row.due = ((last + row.planned) // TICK + next(each) & SECONDS_MAX) * TICK
    return size, at


def _read_schedule(row: PageRow, flags: int, data: bytes, at: int) -> int:
    """Set what else decides when a page is fetched again, and return where it ends."""
    if flags & _ESTIMATE:
        row.estimate = Estimate.read(data[at : at + ESTIMATE_SIZE])
        if not (0.0 < row.estimate[0] < inf and 0.0 < row.estimate[1] < inf):
            raise ValueError(f"an estimate of {row.estimate}")
        at += ESTIMATE_SIZE
    if flags & _ABSENT:
        state, answers, since = _ABSENCE.unpack_from(data, at)
        row.absence = Absence(PageState(state), answers, since)
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
        if not 0.0 <= row.weight < inf:
            raise ValueError(f"a weight of {row.weight}")
        at += _SHORT.size
    return at


def _read_validators(row: PageRow, flags: int, data: bytes, at: int) -> int:
    """Set the validators of a row that stand at a place, and return where they end."""
    if flags & _ETAG:
        row.etag, at = _read(data, at)
    elif flags & _HEX_ETAG:
        row.etag, at = _unpacked(data, at)
    if flags & _DATED:
        row.modified = date_of_seconds(_SECONDS.unpack_from(data, at)[0])
        at += _SECONDS.size
    elif flags & _MODIFIED:
        row.modified, at = _read(data, at)
    return at


def _microseconds(time: float) -> int:
    """Return a time, which may be any, as a WARC-Date has it."""
    time = held(time)
    second = int(time)
    # The difference has no rounding error.
    return second * _MILLION + round((time - second) * _MILLION)


def _packed_numbers(values: list[int]) -> bytes:
    """Return numbers below 2^35 in one to five bytes each: the leading ones of the first byte count
    the others."""
    if max(values) < _TWO_BYTES:
        return bytes(values)
    packed = []
    for value in values:
        size = (value.bit_length() + 6) // 7 or 1
        packed.append((value | _LEADING[size]).to_bytes(size))
    return b"".join(packed)


def _unpacked_numbers(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Return so many numbers that stand at a place, and where they end."""
    found = []
    for _ in range(count):
        value = data[at]
        if value < _TWO_BYTES:
            at += 1
        else:
            size = _SIZES[value]
            value = int.from_bytes(data[at : at + size]) & _VALUES[size]
            at += size
        found.append(value)
    return found, at


# The first byte from which there is another one.
_TWO_BYTES = 0x80
# By the number of bytes: the leading ones, and the bits of the value.
_LEADING = [0, *((0xFF << (9 - size) & 0xFF) << 8 * (size - 1) for size in range(1, 6))]
_VALUES = [(1 << 7 * size) - 1 for size in range(6)]
# By the first byte.
_SIZES = [min(9 - (byte ^ 0xFF).bit_length(), 5) for byte in range(256)]


def _packed(etag: bytes) -> bytes | None:
    """Return an ETag of hexadecimal digits in half as many bytes; None for another one.

    The first byte has the number of digits, the second one the place of a hyphen.
    """
    found = _HEX.fullmatch(etag)
    if found is None:
        return None
    weak, before, hyphen, after = found.groups()
    digits = (before + after).decode()
    size = len(digits)
    place = len(before) + 1 if hyphen else 0
    return bytes((size | _WEAK * bool(weak), place)) + bytes.fromhex(digits + "0" * (size % 2))


def _unpacked(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the ETag that `_packed` wrote at a place, and where it ends."""
    size, place = data[at] & ~_WEAK, data[at + 1]
    end = at + 2 + (size + 1) // 2
    text = data[at + 2 : end].hex()[:size]
    if place:
        text = f"{text[: place - 1]}-{text[place - 1 :]}"
    return (b'W/"%b"' if data[at] & _WEAK else b'"%b"') % text.encode(), end


# Of 127 digits at most.
_HEX = re.compile(rb'(W/)?"([0-9a-f]{0,63})(-?)([0-9a-f]{0,64})"')
_WEAK = 0x80


def _with_length(text: bytes) -> bytes:
    return _packed_numbers([len(text)]) + text


def _read(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the text behind its length, and where it ends."""
    (size,), start = _unpacked_numbers(data, at, 1)
    return data[start : start + size], start + size


def date_of_seconds(seconds: int) -> bytes:
    """Return a time as an IMF-fixdate (RFC 9110, section 5.6.7)."""
    day, second = divmod(seconds, 86_400)
    minute, second = divmod(second, 60)
    return b"%b %02d:%02d:%02d GMT" % (_date_of_day(day), *divmod(minute, 60), second)


def seconds_of_date(text: bytes) -> int | None:
    """Return the time whose IMF-fixdate is exactly ``text``, from 1970 to 2106; else None."""
    clock = _CLOCK.fullmatch(text, _DATE_SIZE)
    if clock is None or (day := _day_of_date(text[:_DATE_SIZE])) is None:
        return None
    hour, minute, second = clock.groups()
    seconds = ((day * 24 + int(hour)) * 60 + int(minute)) * 60 + int(second)
    return seconds if 0 <= seconds <= SECONDS_MAX else None


# Most pages of a crawl changed in the last ten years.
_cached = lru_cache(maxsize=4096)


@_cached
def _date_of_day(day: int) -> bytes:
    at = _EPOCH + timedelta(days=day)
    return b"%b, %02d %b %d" % (_DAYS[at.weekday()], at.day, _MONTHS[at.month - 1], at.year)


@_cached
def _day_of_date(text: bytes) -> int | None:
    """Return the days since the epoch of the date of an IMF-fixdate; None for another text."""
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    name, day, month, year = found.groups()
    try:
        at = datetime(int(year), _MONTH_NUMBERS[month], int(day))
    except (ValueError, KeyError):
        return None
    return (at - _EPOCH).days if _DAYS[at.weekday()] == name else None


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

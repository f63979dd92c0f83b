"""The row of a capture, and what other tables read of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.archive import gemini
from krowlspider.archive.payload import body_of, head_bytes, header, status_of, type_of
from krowlspider.archive.write.records import SEED_TAG
from krowlspider.catalogue.columns import TABLES
from krowlspider.catalogue.records.content import (
    PageHead,
    clean,
    head_of,
    languages_of,
    languages_of_text,
)
from krowlspider.catalogue.records.hosts import split
from krowlspider.fetch.http.decode import decoded
from krowlspider.gemini import gemtext
from krowlspider.recrawl.text import text_digest
from krowlspider.urls.canonical import normalise, normalise_archived
from krowlspider.urls.encoding import HTML, ContentType, codec_for, decode, encoding_of
from krowlspider.urls.page.links import MAX_LANG

if TYPE_CHECKING:
    from fastwarc.warc import HeaderMap, WarcRecord

    from krowlspider.archive.cdxj import IndexLine
    from krowlspider.catalogue.sinks import Row
    from krowlspider.gemini.gemtext import Gemtext

# Bytes of a block that are read, and of a decoded body; of larger ones only the head counts.
BLOCK_MAX = 16 * 1024 * 1024
_HEAD_MAX = 64 * 1024
# Characters of the target of a redirect.
_URL_MAX = 16 * 1024
_NAMES = tuple(column.name for column in TABLES["fetch"])
_NO_HEAD = PageHead(None, None, None, None, None, None)
_NO_NOTE = (None,) * 5
_LANG = re.compile(r";[ \t]*lang=([^;]*)", re.IGNORECASE)
_TEXTS = re.compile(r"text/|.*(?:xml|json|javascript)$")
_ROBOTS = "/robots.txt"
_HTTP = "application/http"


class Note(NamedTuple):
    """What a metadata record tells of a fetch; each value is None if it does not.

    ``hops`` are letters of Heritrix from the seed, "" of a seed. ``seed`` is the page's own URL if
    it is a seed. ``delay`` is in seconds.
    """

    hops: str | None = None
    via: str | None = None
    milliseconds: float | None = None
    delay: float | None = None
    seed: str | None = None

    @classmethod
    def of(cls, block: bytes, url: str) -> Note:
        """Return what the fields in a block of type application/warc-fields tell of ``url``."""
        pairs = (line.partition(":") for line in block.decode(errors="replace").splitlines())
        fields = {name.strip(): clean(value, _URL_MAX) for name, colon, value in pairs if colon}
        hop = fields.get("hop")
        hops = fields.get("hopsFromSeed", "" if hop == "S" else hop)
        seed = fields.get("sourceTag") or (url if hops == "" else None)
        delay = _number(fields.get("delayMs"))
        return cls(
            hops,
            fields.get("via"),
            _number(fields.get("fetchTimeMs")),
            None if delay is None else delay / 1000,
            seed,
        )

    def columns(self) -> Row:
        """Return the columns of the row of ``url`` that are known now."""
        return {
            "krowl_fetch_milliseconds": self.milliseconds,
            "krowl_delay": self.delay,
            "krowl_hops": self.hops,
            "krowl_via": self.via,
            "krowl_seed": self.seed,
        }


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


class CapturedRecord:
    """A response or revisit of HTTP or Gemini, with the line that the index has of it."""

    def __init__(self, record: WarcRecord, line: IndexLine):
        self.line = line
        self.url = line.url
        self.fields: HeaderMap = record.headers
        self.is_revisit = self.fields.get("WARC-Type") == "revisit"
        self.is_large = record.content_length > BLOCK_MAX
        self.block = record.reader.read(_HEAD_MAX if self.is_large else record.content_length)
        self.message: gemini.GeminiMessage | None = None
        if gemini.is_gemini(self.fields.get("Content-Type")):
            self.message = gemini.read(self.block)
            self.head, status = b"", self.message.status
        else:
            self.head = head_bytes(self.block) or self.block[:_HEAD_MAX]
            status = status_of(self.head)
        self.status = int(status or -1)
        # The standard requires one; not every tool writes it.
        self.record_id = (self.fields.get("WARC-Record-ID") or "").strip("<>")
        self.record_id = self.record_id or f"{line.filename}#{line.offset}"
        self.time = time_of(self.fields.get("WARC-Date") or "", line.timestamp)
        self.host, self.parts = split(self.url)
        self.is_robots = self.parts.path == _ROBOTS and self.parts.query is None
        if self.is_robots:
            self.subset = "robotstxt"
        else:
            self.subset = "warc" if self.outcome == 2 else "crawldiagnostics"

    @property
    def outcome(self) -> int:
        """The first digit of its status, which means nearly the same in Gemini and HTTP."""
        return self.status // (100 if self.message is None else 10)

    @property
    def has_page(self) -> bool:
        """Whether its status is that of a page: 200, or of Gemini 20 to 29."""
        return self.status == 200 if self.message is None else self.outcome == 2

    @cached_property
    def body(self) -> bytes:
        """The decoded body; empty of a revisit, of a large one, and if it cannot be decoded."""
        if self.is_revisit or self.is_large:
            return b""
        if self.message is not None:
            return self.message.payload
        try:
            return body_of(self.block, lambda body, codings: decoded(body, codings, BLOCK_MAX))
        except ValueError:
            return b""

    @cached_property
    def type(self) -> ContentType:
        """The media type and charset as browsers find them."""
        if self.message is not None:
            return self.message.type
        return type_of(self.head, self.body)

    @property
    def is_html(self) -> bool:
        return self.type.essence in HTML

    @cached_property
    def gemtext(self) -> Gemtext | None:
        """What it is as gemtext; None if it is none."""
        if self.message is None or self.type.essence != gemini.GEMTEXT:
            return None
        text = decode(self.body, codec_for(encoding_of(self.body, self.type.charset)))
        return gemtext.read(text, self.url)

    @property
    def redirect(self) -> str:
        """The target of a redirect as it is written; "" without one."""
        if self.outcome != 3:
            return ""
        return header(self.head, "Location") if self.message is None else self.message.meta

    @property
    def declared_type(self) -> str:
        """The media type that it says it has, with its parameters."""
        return (
            header(self.head, "Content-Type") if self.message is None else self.message.media_type
        )

    @property
    def declared_language(self) -> str:
        if self.message is None:
            return header(self.head, "Content-Language")
        found = _LANG.search(self.message.media_type)
        return found[1].strip('"') if found else ""

    @cached_property
    def says(self) -> PageHead:
        """What its head says, if it is HTML; the title of gemtext."""
        if self.gemtext is not None:
            return _NO_HEAD._replace(title=clean(self.gemtext.title) or None)
        if not (self.is_html and self.body):
            return _NO_HEAD
        return head_of(self.body, self.url, self.type.charset)

    @property
    def digest(self) -> str | None:
        """Its payload digest as Common Crawl writes it: SHA-1 without a label."""
        return self.line.digest.removeprefix("sha1:") or None

    @property
    def tag(self) -> str | None:
        return self.fields.get(SEED_TAG) or None

    @property
    def revisit(self) -> str | None:
        """The last part of the profile of a revisit."""
        profile = self.fields.get("WARC-Profile") or ""
        return profile.rpartition("/")[2] or "revisit" if self.is_revisit else None


def is_message(record: WarcRecord) -> bool:
    """Return whether a record has a message of HTTP or Gemini."""
    return (record.headers.get("Content-Type") or "").startswith((_HTTP, gemini.TYPE))


def time_of(date: str, timestamp: str) -> datetime:
    """Return a WARC-Date, or the 14 digits that stand for it, in UTC.

    :raises ValueError: neither is a time
    """
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        moment = datetime.strptime(timestamp, "%Y%m%d%H%M%S")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _languages(capture: CapturedRecord) -> str | None:
    if capture.gemtext is not None:
        return languages_of_text(capture.gemtext.text)
    has_text = capture.body and capture.is_html
    return languages_of(capture.body, capture.type.charset) if has_text else None


def fetch_row(capture: CapturedRecord, segment: str) -> Row:
    """Return the row of the table "fetch" without the crawl, as far as no `Note` tells it."""
    line, parts, says, url = capture.line, capture.parts, capture.says, capture.url
    essence, body = capture.type.essence, capture.body
    is_text = bool(body and _TEXTS.match(essence))
    location = clean(capture.redirect, _URL_MAX)
    resolve = normalise if capture.message is None else normalise_archived
    values = (
        line.key, url, *capture.host, *parts,
        capture.time,
        capture.status,
        (resolve(location, url) or location) if location else None,
        capture.digest,
        clean(capture.declared_type.partition(";")[0].lower()) or None,
        capture.fields.get("WARC-Identified-Payload-Type") or essence or None,
        encoding_of(body, capture.type.charset) if is_text else None,
        _languages(capture),
        None if capture.is_revisit else capture.fields.get("WARC-Truncated") or None,
        line.filename, line.offset, line.length, segment,
        capture.record_id,
        says.title, says.description, says.og, says.jsonld_types, says.hreflang,
        says.language or clean(capture.declared_language, MAX_LANG) or None,
        (text_digest(body, essence).hex() if body else "") or None,
        *_NO_NOTE,
        capture.tag,
        capture.revisit,
    )  # fmt: skip
    row: Row = dict(zip(_NAMES, values, strict=True))
    row["subset"] = capture.subset
    return row

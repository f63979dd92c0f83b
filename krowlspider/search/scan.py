"""Read a finished WARC file into the ledger: its captures, links and answers of robots.txt.

No text is taken yet. A capture and all that follows from it are one batch, and one that the ledger
has already, or has a later one of, is passed over: so a file may be read again from its start.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from fastwarc.warc import WarcRecordType

from krowlspider.archive.cdxj import REVISIT, parse
from krowlspider.archive.disk import RecordError
from krowlspider.archive.reading import read_record
from krowlspider.catalogue.rows import index_lines
from krowlspider.corpus.sites.terms import ROBOTS, SiteTerms, site_of
from krowlspider.corpus.warc_pages import records
from krowlspider.gemini import robots
from krowlspider.gemini.robots import INDEXER
from krowlspider.search.documents import BLOCK_MAX, NoDocument, answer_of, is_indexable, refusal_in
from krowlspider.search.feeds import is_feed, links_in
from krowlspider.search.ledger import Payload, SiteRecord
from krowlspider.search.link_store import StoredPage
from krowlspider.search.schema import key_of
from krowlspider.urls.canonical import host_of, normalise
from krowlspider.urls.robots_groups import ALL

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from fastwarc.warc import WarcRecord

    from krowlspider.archive.cdxj import IndexLine
    from krowlspider.search.documents import CapturedResponse, IndexedLink
    from krowlspider.search.ledger import File, Ledger
    from krowlspider.search.watch import PageWatch

_KINDS = WarcRecordType.response | WarcRecordType.revisit
_GONE, _MOVED = frozenset({"404", "410"}), frozenset({"301", "308"})
_GEMINI = "gemini://"
# The agents whose groups in a robots.txt of Gemini are about an index, the prefixes of it that
# count, and their characters together: each page of the host is compared with all.
_AGENTS = (INDEXER, ALL)
_PREFIXES_MAX, _PREFIXES_CHARS_MAX = 1_000, 32 * 1024
# Of Gemini: permanent redirect, not found, gone.
_GEMINI_GONE = frozenset({"31", "51", "52"})
# A page of Gemini that answers with a permanent failure (5x, 6x) for so many seconds is gone too.
_DEAD = 30 * 86_400


class _Capture(NamedTuple):
    """A capture with its URL in normal form. ``latest`` sorts captures.

    ``payload`` is where its payload is, None if it says that the page has not changed; ``answer``
    reads it, and raises NoDocument, RecordError or OSError.
    """

    url: str
    line: IndexLine
    latest: tuple[str, int, int]
    payload: Payload | None
    answer: Callable[[], CapturedResponse]

    @property
    def is_robots(self) -> bool:
        return f"/{self.url.split('/', 3)[-1]}" == ROBOTS

    @property
    def is_gone(self) -> bool | None:
        """Whether the page is gone or moved for good; None if the status leaves that open."""
        status = self.line.status
        if self.url.startswith(_GEMINI):
            return True if status in _GEMINI_GONE else False if status[:1] == "2" else None
        if status in _GONE or status in _MOVED:
            return True
        # The index has no status of some revisits.
        return False if status in {"200", "203", "304", "-", ""} else None

    @property
    def is_refused(self) -> bool:
        """Whether a Gemini server says that no such request will succeed."""
        return self.url.startswith(_GEMINI) and self.line.status[:1] in {"5", "6"}


class Scanner:
    """Reads files into ``ledger``. ``path_of`` finds a file that the ledger knows.

    ``counts`` counts what is found and passed over; ``fault`` is called with each damaged stretch.
    """

    def __init__(
        self,
        ledger: Ledger,
        path_of: Callable[[File], Path],
        counts: Counter[str],
        fault: Callable[[str], object],
        watch: PageWatch,
    ):
        self._ledger = ledger
        self._path_of = path_of
        self._counts = counts
        self._fault = fault
        self._watch = watch

    def scan(self, path: Path, file: File) -> None:
        """Read a file, unless it was read.

        :raises OSError: it cannot be read, or is gone
        """
        if self._ledger.is_scanned(file):
            return
        number, lines = self._ledger.number_of(file), index_lines(path)

        def damage(offset: int, reason: str) -> None:
            self._fault(f"{file.name} at byte {offset}: {reason}")

        with path.open("rb") as stream:
            for offset, record in records(stream, 0, damage, _KINDS):
                line = lines.get(offset)
                if line is not None:
                    self._take(number, parse(line), record)
        self._ledger.scanned(file)

    def _take(self, number: int, line: IndexLine, record: WarcRecord) -> None:
        url = normalise(line.url)
        if url is None or line.method:
            self._counts["skipped/no page"] += 1
            return
        self._counts["captures"] += 1
        own = Payload(number, line.offset, line.length)
        payload: Payload | None = own
        if line.mime == REVISIT:
            # That of a 304 has no digest: it has no payload of its own.
            payload = self._ledger.payload(line.digest) if line.digest else None

        def answer() -> CapturedResponse:
            if payload == own:
                return answer_of(record.headers.to_dict(), record.reader.read(BLOCK_MAX))
            assert payload is not None
            return self._answer_at(payload)

        found = _Capture(url, line, (line.timestamp, number, line.offset), payload, answer)
        if payload is None and line.digest and not found.is_gone:
            self._counts["skipped/revisit of no record"] += 1
            return
        with self._ledger.db.write_batch(transaction=True) as batch:
            if payload == own and line.digest and found.is_gone is False:
                self._ledger.put_payload(batch, line.digest, own)
            if found.is_robots:
                self._take_robots(batch, found)
            else:
                self._take_page(batch, found)

    def _take_page(self, batch: Any, found: _Capture) -> None:
        ledger, key = self._ledger, key_of(found.url)
        when, page = _seconds(found.line.timestamp), self._ledger.page(key)
        is_gone = found.is_gone
        if is_gone is None and page is not None and found.is_refused:
            is_gone = True if when - _seconds(page.latest[0]) >= _DEAD else None
        if is_gone is None:
            return
        if page is None:
            page = StoredPage(found.url, first=when)
            ledger.put_host(batch, host_of(found.url), key)
        elif found.latest <= page.latest:
            # It was taken before, or an archive has come late.
            if when < page.first:
                page.first = when
                ledger.mark(batch, key, page)
                ledger.put(batch, key, page)
            return
        was = page.is_gone, page.at
        before = ledger.mark_of(key, page)
        page.latest, page.is_gone = found.latest, is_gone
        page.first = min(page.first, when)
        is_new = page.file < 0 or found.line.digest != page.digest or not page.digest
        if page.is_gone:
            if not was[0]:
                self._put_links(batch, found.url, None)
        elif found.payload is not None and is_new:
            page.url, page.digest, page.fetched = found.url, found.line.digest, when
            page.file, page.offset, page.length = found.payload
            page.at = found.latest[1:]
            mime = found.line.mime
            may_link = mime == REVISIT or is_indexable(mime) or is_feed(mime)
            self._put_links(batch, found.url, found.answer if may_link else None)
        elif was[0] and page.file >= 0:
            # It is back, as it was before.
            place = Payload(page.file, page.offset, page.length)
            self._put_links(batch, found.url, partial(self._answer_at, place))
        if (page.is_gone, page.at) != was:
            batch.delete(before)
            ledger.mark(batch, key, page)
        ledger.put(batch, key, page)

    def take_gone(self, batch: Any, url: str, second: int) -> bool:
        """Take a page that is gone since an answer; return whether that is new.

        A capture that came later than the answer says more.
        """
        key = key_of(url)
        page = self._ledger.page(key)
        if page is None or page.is_gone or _seconds(page.latest[0]) > second:
            return False
        page.is_gone = True
        self._put_links(batch, url, None)
        self._ledger.mark(batch, key, page)
        self._ledger.put(batch, key, page)
        return True

    def _answer_at(self, place: Payload) -> CapturedResponse:
        path = self._path_of(self._ledger.file(place.file))
        return answer_of(*read_record(path, place.offset, BLOCK_MAX))

    def _put_links(
        self, batch: Any, url: str, answer: Callable[[], CapturedResponse] | None
    ) -> None:
        """Put the links in an answer in the place of those that the page had; of None no links."""
        links: list[IndexedLink] = []
        if answer is not None and self._watch.reading(key_of(url)) is None:
            try:
                links = links_in(url, answer())
            except (NoDocument, RecordError, FileNotFoundError):
                self._counts["skipped/links not readable"] += 1
            finally:
                self._watch.read()
        for target in self._ledger.links.replace(batch, url, links):
            self._ledger.anchors_changed(batch, target)
        self._counts["links"] += len(links)

    def _take_robots(self, batch: Any, found: _Capture) -> None:
        """Keep what a robots.txt says; if that changes, pages of the host are judged again."""
        host = host_of(found.url)
        known = self._ledger.site(host)
        is_old = known is not None and found.latest <= known.latest
        if is_old or found.is_gone is None or found.payload is None:
            return
        new = SiteRecord(found.latest, SiteTerms())
        if not found.is_gone:
            try:
                body = found.answer().body
            except (NoDocument, RecordError, FileNotFoundError):
                return
            new.site = site_of(ROBOTS, body)
            if found.url.startswith(_GEMINI):
                new.prefixes = _bounded(robots.read(body, _AGENTS))
        before = SiteRecord(found.latest, SiteTerms()) if known is None else known
        is_other = (new.site, new.prefixes) != (before.site, before.prefixes)
        if is_other and (_refuses(new) or _refuses(before)):
            for key in self._ledger.pages_of(host):
                page = self._ledger.page(key)
                if page is not None and page.file >= 0:
                    self._ledger.mark(batch, key, page)
        self._ledger.put_site(batch, host, new)


def _refuses(record: SiteRecord) -> bool:
    """Return whether a robots.txt refuses search for any page."""
    site = record.site
    said = (site.signals, *(names for _, names in site.usage))
    return bool(record.prefixes) or any(map(refusal_in, said))


def _bounded(prefixes: list[str]) -> list[str]:
    """Return the shortest prefixes, which disallow most, within the limits."""
    found: list[str] = []
    chars = 0
    for prefix in sorted(prefixes, key=len)[:_PREFIXES_MAX]:
        chars += len(prefix)
        if chars > _PREFIXES_CHARS_MAX:
            break
        found.append(prefix)
    return found


def _seconds(timestamp: str) -> int:
    """Return the 14 digits of an index line as seconds since 1970, 0 if they are no time."""
    try:
        moment = datetime.strptime(timestamp, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(moment.timestamp())

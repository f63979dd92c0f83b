"""Make and update an index from the finished WARC files of crawls.

Files are read into the ledger first; then the documents of all pages that it marks are made, in the
order of their captures, a part at a time. The ledger is durable before a commit of the segments,
and the marks of a part are removed after it. So a kill costs one part at most, and the next run
makes the same documents.
"""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from krowlspider.archive.disk import RecordError, write_durably
from krowlspider.archive.finished import finished, is_being_written
from krowlspider.archive.reading import read_record
from krowlspider.corpus.copies.fingerprints import hashes_of
from krowlspider.errors import KrowlError, counted
from krowlspider.search import copies
from krowlspider.search.documents import BLOCK_MAX, NoDocument, answer_of, content_of, refusal_in
from krowlspider.search.forms import Forms, cleaned
from krowlspider.search.gone import gone_pages
from krowlspider.search.ledger import Dirty, File, IndexedState, Ledger
from krowlspider.search.link_store import LinksIn, LinkStore
from krowlspider.search.scan import Scanner
from krowlspider.search.schema import (
    CJK,
    FORM,
    FORMS,
    LINKS,
    SEGMENTS,
    STATE,
    CapturePlace,
    open_index,
    split_spaceless,
    tantivy,
)
from krowlspider.search.watch import NoWatch
from krowlspider.urls.canonical import domain_of, host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from krowlspider.search.documents import Content
    from krowlspider.search.link_store import Anchors, StoredPage
    from krowlspider.search.watch import PageWatch

# Seconds between two looks at the folders of a crawl that runs.
LOOK = 2.0
# Documents of a part, and the characters of their texts together.
PART, PART_CHARS = 20_000, 100_000_000
# The fewest of a part after pages have ended the reader.
_PART_MIN = 500
# Bytes that the writer collects in memory before it writes a segment.
HEAP = 200_000_000
# Faults that are kept; further ones are counted.
FAULTS_MAX = 1_000
# Hosts whose domains are kept.
_HOSTS_KEPT = 65_536


class Setup(msgspec.Struct):
    """The file STATE: the form of the index, and the folders of its crawls."""

    form: int
    jobdirs: list[str]


def read_setup(folder: Path) -> Setup:
    """Return what an index is made of.

    :raises KrowlError: there is no index, or it has another form
    """
    try:
        found = msgspec.json.decode((folder / STATE).read_bytes(), type=Setup)
    except FileNotFoundError as error:
        raise KrowlError(
            f"{folder} is no index: make one with scrapy index JOBDIR -o {folder}"
        ) from error
    except (OSError, msgspec.DecodeError) as error:
        raise KrowlError(f"{folder / STATE} cannot be read: {error}") from error
    if found.form != FORM:
        raise KrowlError(
            f"{folder} has form {found.form}, and this version makes form {FORM}: remove the folder"
            " and run the same command again; the archive has all of it"
        )
    return found


class Segments:
    """The documents of an index, and the writer that only one process may have."""

    def __init__(self, folder: Path, heap: int = HEAP):
        self._module = tantivy()
        self.index = open_index(folder, make=True)
        # More threads write more and smaller segments, which are merged later.
        self._writer = self.index.writer(heap, 1)
        # Those of a killed commit have the names that the next one will give.
        self._writer.garbage_collect_files()

    def remove(self, key: bytes) -> None:
        self._writer.delete_documents_by_term("id", key.hex())

    def add(
        self, key: bytes, page: StoredPage, file: File, content: Content, about: Anchors
    ) -> None:
        """Add the document of a page; one of the same id must be removed before."""
        made, host = self._module.Document(), host_of(page.url)
        put = made.add_text
        put("id", key.hex())
        put("url", page.url)
        put("host", host)
        put("domain", _domain_of(host))
        put("scheme", page.url.partition(":")[0])
        put("lang", content.language)
        put("mime", content.media)
        pairs = [
            _put_text(put, "title", content.title),
            *(_put_text(put, "headings", text) for text in content.headings),
            *(_put_text(put, "anchors", text) for text in about.texts),
        ]
        words, of_text = split_spaceless(content.text)
        put("body", words)
        for each in filter(None, (*pairs, of_text)):
            put(CJK, each)
        for name, seconds in (
            ("fetched", page.fetched), ("first_fetched", page.first), ("changed", page.changed)
        ):  # fmt: skip
            made.add_date(name, datetime.fromtimestamp(seconds, UTC))
        made.add_unsigned("size", content.size)
        made.add_unsigned("linking_hosts", about.hosts)
        made.add_bytes("fingerprint", content.fingerprint)
        place = CapturePlace(file.jobdir, file.name, page.offset, page.length)
        made.add_bytes("place", place.dump())
        self._writer.add_document(made)

    def commit(self) -> None:
        """Make all that was added and removed durable and visible, at once."""
        self._writer.commit()

    def close(self) -> None:
        """Wait until segments are merged. What was not committed is dropped."""
        self._writer.wait_merging_threads()


_domain_of = lru_cache(_HOSTS_KEPT)(domain_of)


def _put_text(put: Callable[[str, str], None], name: str, text: str) -> str:
    """Put a text into a field; return its pairs."""
    put(name, text)
    return split_spaceless(text)[1]


class Builder:
    """Builds the index in ``folder`` from the crawls in ``sources``.

    ``counts`` counts pages and documents, ``faults`` are lines for a person. ``tell`` is called
    with a line for each file. The rows of ``jobdirs`` say which pages are gone. ``watch`` is asked
    before each page is read.

    :raises KrowlError: another process builds it, or it has another form
    """

    def __init__(
        self,
        folder: Path,
        sources: Iterable[Path],
        *,
        tell: Callable[[str], object] = lambda _: None,
        watch: PageWatch | None = None,
        heap: int = HEAP,
        part: int = PART,
        jobdirs: Iterable[Path] = (),
    ):
        self.counts: Counter[str] = Counter()
        self.faults: dict[str, None] = {}
        self._tell = tell
        self._watch = NoWatch() if watch is None else watch
        # The next page that ends the reader has less made again.
        self._part = max(part >> 2 * self._watch.ends, min(part, _PART_MIN))
        self._jobdirs = list(jobdirs)
        self._left_out: set[File] = set()
        folder.mkdir(parents=True, exist_ok=True)
        is_new = not (folder / STATE).exists()
        setup = Setup(FORM, []) if is_new else read_setup(folder)
        self._links = LinkStore(folder / LINKS, make=True)
        self._links_in: LinksIn | None = None
        self.ledger = Ledger(self._links)
        try:
            self._sources = [Path(source).resolve() for source in sources]
            self._setup = _with_sources(folder, setup, self._sources)
            self.forms = Forms(folder / FORMS)
            self.segments = Segments(folder / SEGMENTS, heap)
        except BaseException:
            self._links.close()
            raise
        self._scanner = Scanner(self.ledger, self._path_of, self.counts, self._fault, self._watch)

    def close(self) -> None:
        self.segments.close()
        self.forms.close()
        self._links.close()

    def run(self, *, follow: bool = False, sleep: Callable[[float], object] = time.sleep) -> None:
        """Take all finished files; with ``follow`` until no crawl writes there. Raises OSError."""
        while True:
            # Asked first: a file that is finished in between is among those found.
            goes_on = follow and any(map(is_being_written, self._sources))
            waiting = self.waiting()
            for path, file in waiting:
                self.take(path, file)
            if not goes_on:
                self._take_gone()
            if waiting or not goes_on:
                self.settle(is_last=not goes_on)
            if not goes_on:
                return
            sleep(LOOK)

    def waiting(self) -> list[tuple[Path, File]]:
        """Return the files that are not in the ledger, those that were begun first in front."""
        found = [
            (path, File(self._setup.jobdirs.index(str(source)), str(path.relative_to(source))))
            for source in self._sources
            for path in finished(source)
        ]
        past = self._left_out
        waiting = [
            each for each in found if each[1] not in past and not self.ledger.is_scanned(each[1])
        ]
        return sorted(waiting, key=lambda each: (each[0].name, each[1].jobdir))

    def take(self, path: Path, file: File) -> None:
        before = self.counts["captures"]
        # One that cannot be read is tried again by the next run.
        self._left_out.add(file)
        try:
            self._scanner.scan(path, file)
        except FileNotFoundError:
            # It was uploaded and removed meanwhile.
            self._fault(f"{path} is gone, so it is not in the index")
            return
        except (OSError, RecordError) as error:
            self._fault(f"{path} cannot be read: {error}")
            return
        self.counts["files"] += 1
        found = self.counts["captures"] - before
        self._tell(f"{path.name}: {counted(found, 'capture')}")

    def _take_gone(self) -> None:
        for gone in chain.from_iterable(map(gone_pages, self._jobdirs)):
            with self.ledger.db.write_batch(transaction=True) as batch:
                self.counts["gone by rows"] += self._scanner.take_gone(batch, *gone)

    def settle(self, *, is_last: bool = True) -> None:
        """Make the documents of all pages that have changed, and of those with other anchors.

        Unless it is the last time, new anchors count only where the hosts of links have doubled: so
        a page is made again a few times at most, however long a crawl is followed.
        """
        self._make_all()
        for keys in self.ledger.with_anchors(later=is_last):
            self._look_at_anchors(keys, is_last=is_last)
        self._make_all()
        self._forget_links()

    def _make_all(self) -> None:
        # Pages that are released meanwhile may come before those that are made.
        while self._make_part():
            pass

    def _make_part(self) -> bool:
        """Make the next documents and commit them; return whether there were any."""
        marks: list[bytes] = []
        chars = 0
        for dirty in self.ledger.dirty():
            chars += self._make(dirty)
            marks.append(dirty.mark)
            if len(marks) >= self._part or chars >= PART_CHARS:
                break
        if marks:
            self.commit(marks)
        return bool(marks)

    def commit(self, marks: list[bytes]) -> None:
        """Make durable what was put into the index, and then remove the marks that asked for it."""
        self.ledger.sync()
        # A document that is found by another form of its words has these already.
        self.forms.commit()
        self.segments.commit()
        self.ledger.done(marks)
        self._forget_links()

    def _make(self, dirty: Dirty) -> int:
        """Make the document of a page anew; return the characters of its text."""
        key, page = dirty.key, self.ledger.page(dirty.key)
        if page is None:
            return 0
        if page.is_gone or page.file < 0:
            self._drop(key, page, IndexedState.ABSENT, "gone")
            return 0
        try:
            content = self._content(key, page)
        except NoDocument as error:
            self._drop(key, page, IndexedState.REFUSED, str(error))
            return 0
        except FileNotFoundError:
            # What is in the index stays there.
            self.counts["left out/its WARC file is gone"] += 1
            return 0
        self.put(key, page, content)
        return len(content.text)

    def _content(self, key: bytes, page: StoredPage) -> Content:
        """:raises NoDocument: the page has no document, or refuses to be in an index
        :raises FileNotFoundError: its WARC file is gone
        """
        site = self.ledger.site(host_of(page.url))
        said = [] if site is None else site.site.signals_for(page.url, "html")
        _check(said)
        if site is not None and not site.allows(page.url):
            raise NoDocument("refused/robots.txt of Gemini")
        reason = self._watch.reading(key)
        if reason is not None:
            raise NoDocument(reason)
        path = self._path_of(self.ledger.file(page.file))
        try:
            answer = answer_of(*read_record(path, page.offset, BLOCK_MAX))
            content = content_of(page.url, answer, said)
        except RecordError as error:
            raise NoDocument("damaged") from error
        except MemoryError as error:
            raise NoDocument("out of memory") from error
        finally:
            self._watch.read()
        _check(content.signals)
        return content

    def put(self, key: bytes, page: StoredPage, content: Content) -> None:
        """Put a page with its content into the index, unless it is a copy of another page."""
        text = cleaned(content.text or content.title)
        words = text.split()
        hashes = hashes_of(words)
        marks = copies.fingerprints(text, hashes)
        is_other = page.exact != marks.exact
        if page.core != marks.core:
            # What was not read before is as old as its payload.
            page.changed = page.fetched
        page.exact, page.core = marks.exact, marks.core
        is_compared = bool(words and content.text)
        same = self.ledger.copy_of(key, page) if is_compared else None
        original = same if same is not None and same[1].at < page.at else None
        with self.ledger.db.write_batch(transaction=True) as batch:
            if page.state == IndexedState.KEPT and (is_other or original is not None):
                self.ledger.release_copies(batch, key)
            self.ledger.anchors_read(batch, key)
            if page.is_written:
                self.segments.remove(key)
            if original is None:
                if same is not None:
                    # One copy alone is in the index, in whatever order they are read.
                    self.ledger.mark(batch, *same)
                about = self._anchors(page.url)
                page.state, page.reason, page.original = IndexedState.KEPT, "", b""
                page.is_written = True
                page.anchors, page.hosts = about.digest, about.hosts
                if is_compared:
                    self.ledger.remember(batch, key, page)
                title = cleaned(content.title).split()
                words, hashes = [*words, *title], hashes + hashes_of(title)
                self.forms.meet(words, hashes, content.language)
                content.fingerprint = copies.stored(marks.minhash)
                self.segments.add(key, page, self.ledger.file(page.file), content, about)
                self.counts["documents"] += 1
            else:
                page.state, page.reason, page.original = IndexedState.COPY, "copy", original[0]
                self.ledger.put_copy(batch, original[0], key)
                self.counts["left out/copy"] += 1
            self.ledger.put(batch, key, page)

    def _drop(self, key: bytes, page: StoredPage, state: IndexedState, reason: str) -> None:
        with self.ledger.db.write_batch(transaction=True) as batch:
            if page.is_written:
                self.segments.remove(key)
            if page.state == IndexedState.KEPT:
                self.ledger.release_copies(batch, key)
            page.state, page.reason, page.original = state, reason, b""
            self.ledger.put(batch, key, page)
        self.counts[f"left out/{reason}"] += 1

    def _look_at_anchors(self, keys: list[bytes], *, is_last: bool) -> None:
        with self.ledger.db.write_batch(transaction=True) as batch:
            for key in keys:
                page = self.ledger.page(key)
                if page is None or page.state != IndexedState.KEPT:
                    # A page that comes later reads all of its anchors.
                    self.ledger.anchors_read(batch, key)
                    continue
                about = self._anchors(page.url)
                if about.digest == page.anchors:
                    self.ledger.anchors_read(batch, key)
                elif is_last or about.hosts >= 2 * max(page.hosts, 1):
                    self.ledger.anchors_read(batch, key)
                    self.ledger.mark(batch, key, page)
                    self.counts["anchors"] += 1
                else:
                    self.ledger.later(batch, key)

    def _anchors(self, url: str) -> Anchors:
        """Return the anchors of a page as they are when a part begins: no link changes in it."""
        if self._links_in is None:
            self._links_in = LinksIn(self._links.db)
        return self._links_in.anchors(url)

    def _forget_links(self) -> None:
        if self._links_in is not None:
            self._links_in.close()
            self._links_in = None

    def _path_of(self, file: File) -> Path:
        return Path(self._setup.jobdirs[file.jobdir]) / file.name

    def _fault(self, text: str) -> None:
        if len(self.faults) < FAULTS_MAX:
            self.faults[text] = None


def _check(signals: Iterable[str]) -> None:
    """:raises NoDocument: one of these signals refuses an index of search"""
    if (refusal := refusal_in(signals)) is not None:
        raise NoDocument(f"refused/{refusal}")


def _with_sources(folder: Path, setup: Setup, sources: list[Path]) -> Setup:
    """Note the folders of crawls that are new."""
    new = [str(each) for each in sources if str(each) not in setup.jobdirs]
    made = Setup(setup.form, [*setup.jobdirs, *dict.fromkeys(new)])
    if new or not (folder / STATE).exists():
        with write_durably(folder / STATE) as file:
            file.write(msgspec.json.format(msgspec.json.encode(made)) + b"\n")
    return made

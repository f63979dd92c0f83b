"""Find the opt-outs of sites in WARC files, and keep the newest answers of each host.

The newest answers of each host: collected in LevelDB, and published as a file for workers. The file
has a line of JSON for each host with something to say, and each licence. Then come the places of
the lines, 16 bytes each, sorted by the hash of the host, and their number in 8 bytes. Workers map
it into their memory, so only the parts that they look at are loaded. `signals_of` looks up what
refuses uses of a page: the page, the files of its site, and its licences.
"""

from __future__ import annotations

import mmap
import re
import shutil
import tempfile
from bisect import bisect_left
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import plyvel
from fastwarc.warc import WarcRecordType
from xxhash import xxh3_64_digest, xxh3_128_digest

from krowlspider.archive.cdxj import payload_digest, target
from krowlspider.archive.disk import write_durably
from krowlspider.archive.payload import body_of
from krowlspider.corpus.folder import LINES
from krowlspider.corpus.optouts import (
    RSL_UNKNOWN,
    TDM,
    YES,
    OptOutSignal,
    UseScope,
    licences_of,
    signals,
    terms_in,
    uses_of,
)
from krowlspider.corpus.sites.terms import FILES, LICENCE, READ_MAX, SiteTerms, site_of
from krowlspider.corpus.warc_pages import (
    BLOCK_MAX,
    SEGMENT,
    CapturedPage,
    codings_of,
    head_of,
    records,
)
from krowlspider.urls.canonical import host_of, normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from fastwarc.warc import WarcRecord

    from krowlspider.corpus.text.document import Document

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
    site: SiteTerms
    payload: str = ""
    others: dict[str, SiteTerms] = {}
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


# Beginnings of keys: of WARC files, of a host and a path, of a path and a payload. Revisits have a
# key for each payload: if no response has it, the newest other answer of the host counts.
_FILE, _HOST, _PAYLOAD = b"f", b"h", b"s"
_REVISIT = b"\0"
_PATH_AT = 9
_ENTRY, _NUMBER = 16, 8
# Hosts whose lines a worker remembers, up to 0.3 MB each.
_CACHED = 256
_encode = msgspec.json.Encoder().encode


class _Newest(msgspec.Struct):
    """The newest finding of a host and a path, and the file that has it."""

    finding: Finding
    file: str

    @property
    def age(self) -> tuple[str, str, int]:
        return self.finding.date, self.file, self.finding.offset


class SiteIndex:
    """The newest answers of each host. Only one process may open it.

    ``unknown`` newest answers, as of the last `publish`, are revisits of responses in no WARC file;
    ``example`` is the host and path of one.
    """

    def __init__(self, folder: Path):
        self._db = plyvel.DB(str(folder), create_if_missing=True)
        self._is_published = False
        self.unknown, self.example = 0, ""

    def close(self) -> None:
        self._db.close()

    def has(self, file: str) -> bool:
        """Return whether the findings in a WARC file were added."""
        return self._db.get(_FILE + file.encode()) is not None

    def add(self, file: str, lines: Iterable[bytes]) -> None:
        """Add all findings in a WARC file, given as JSON, durably. Adding some again changes
        nothing."""
        for line in lines:
            found = _Newest(msgspec.json.decode(line, type=Finding), file)
            finding = found.finding
            key = _HOST + xxh3_64_digest(finding.host.encode()) + finding.path.encode()
            if finding.is_revisit:
                key += _REVISIT + finding.payload.encode()
            elif finding.payload:
                for at, site in {**finding.others, finding.path: finding.site}.items():
                    self._db.put(_payload_key(at, finding.payload), _encode(site))
            known = self._known(key)
            if known is None or known.age < found.age:
                self._db.put(key, _encode(found))
        # With it, all of the above is synced.
        self._db.put(_FILE + file.encode(), b"", sync=True)
        self._is_published = False

    def _known(self, key: bytes) -> _Newest | None:
        value = self._db.get(key)
        return None if value is None else msgspec.json.decode(value, type=_Newest)

    def publish(self, path: Path) -> None:
        """Write the file for workers, in the place of ``path``, unless it has all findings already.

        Raises OSError.
        """
        if self._is_published:
            return
        count = self.unknown = 0
        with write_durably(path) as file, tempfile.TemporaryFile() as entries:
            for key, sites in self._sites():
                entries.write(key + file.tell().to_bytes(_ENTRY - len(key), "big"))
                file.write(_encode(sites) + b"\n")
                count += 1
            entries.seek(0)
            shutil.copyfileobj(entries, file)
            file.write(count.to_bytes(_NUMBER, "big"))
        self._is_published = True

    def _sites(self) -> Iterator[tuple[bytes, list[SiteTerms]]]:
        """Yield (hash of the host, its answers) of hosts that say something, sorted by hash."""
        for key, answers in groupby(self._answers(), key=itemgetter(0)):
            if said := [site for _, site in answers if not site.says_nothing]:
                yield key, said

    def _answers(self) -> Iterator[tuple[bytes, SiteTerms]]:
        """Yield (hash of the host, answer), one for each path: the newest that is known."""
        for key, newest in groupby(self._db.iterator(prefix=_HOST), key=_of_path):
            found = [msgspec.json.decode(value, type=_Newest) for _, value in newest]
            found.sort(key=lambda each: each.age, reverse=True)
            for each in found:
                if (site := self._resolved(each.finding)) is not None:
                    # Of a revisit too: it is the answer of this host.
                    site.record_id = each.finding.site.record_id
                    yield key[1:_PATH_AT], site
                    break
                # What is named like a licence may be none: then a page says that it is not known.
                if each is found[0] and each.finding.path != LICENCE:
                    self.unknown += 1
                    self.example = each.finding.host + each.finding.path

    def _resolved(self, finding: Finding) -> SiteTerms | None:
        """Return the answer in a finding. For a revisit it is that of the response with its
        payload, None if no WARC file has one."""
        if not finding.is_revisit:
            return finding.site
        value = self._db.get(_payload_key(finding.path, finding.payload))
        return None if value is None else msgspec.json.decode(value, type=SiteTerms)


def _payload_key(path: str, payload: str) -> bytes:
    return _PAYLOAD + xxh3_128_digest(f"{path} {payload}".encode())


def _of_path(item: tuple[bytes, bytes]) -> bytes:
    """Return the key of a host and a path, without the payload of a revisit."""
    key = item[0]
    return key[:_PATH_AT] + key[_PATH_AT:].partition(_REVISIT)[0]


class SiteFile:
    """A published file, in which hosts are looked up."""

    def __init__(self, path: Path):
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        count = int.from_bytes(self._map[-_NUMBER:], "big")
        self._base = len(self._map) - _NUMBER - _ENTRY * count
        self._places = range(count)
        self._of_host = lru_cache(_CACHED)(self._found)

    def close(self) -> None:
        self._map.close()

    def answers_for(self, url: str) -> list[SiteTerms]:
        """Return the answers of the host of a page."""
        return self._of_host(host_named(url))

    def licence_at(self, url: str) -> SiteTerms | None:
        """Return the RSL licence that was fetched from a URL, of http or https."""
        found = self._of_host(key_of(url))
        return found[0] if found else None

    def _found(self, host: str) -> list[SiteTerms]:
        wanted = xxh3_64_digest(host.encode())
        place = bisect_left(self._places, wanted, key=lambda n: self._entry(n)[:8])
        if place == len(self._places) or self._entry(place)[:8] != wanted:
            return []
        start = int.from_bytes(self._entry(place)[8:], "big")
        line = self._map[start : self._map.find(b"\n", start)]
        return msgspec.json.decode(line, type=list[SiteTerms])

    def _entry(self, number: int) -> bytes:
        start = self._base + _ENTRY * number
        return self._map[start : start + _ENTRY]


# Verdicts of a licence, the most restrictive last.
_ORDER = (YES, "conditional", "no")


class _Licence(NamedTuple):
    """A licence and the id of its record; ``terms`` are None if it is not known, and the id is that
    of the record that names it."""

    record_id: str
    terms: list[UseScope] | None


def signals_of(page: CapturedPage, found: Document, sites: SiteFile | None) -> list[OptOutSignal]:
    """Return the signals for a page, sorted, each once for each record that says it.

    Without ``sites`` only the page itself counts.
    """
    answers = sites.answers_for(page.url) if sites is not None else []
    heard = {OptOutSignal(name, page.record_id) for name in signals(page.headers, found.metas)}
    for answer in answers:
        for name in answer.signals_for(page.url, page.kind):
            # A reservation of the page replaces that of its site.
            if name != TDM or TDM in signals(page.headers, found.metas, [TDM]):
                heard.add(OptOutSignal(name, answer.record_id))
    heard.update(_licensed(page, found, sites, answers))
    return sorted(heard)


def _licensed(
    page: CapturedPage, found: Document, sites: SiteFile | None, answers: list[SiteTerms]
) -> Iterator[OptOutSignal]:
    """Yield what licences say: those of the page itself have precedence over those of its site
    (RSL 1.0, section 4.9)."""
    urls = [*licences_of(page.headers, page.url), *found.licences.urls]
    texts = (text.encode(errors="replace") for text in found.licences.texts)
    own = [_Licence(page.record_id, terms_in(text, "utf-8")) for text in texts]
    own += [_licence(sites, url, page.record_id) for url in dict.fromkeys(urls)]
    others = [
        _licence(sites, normalise(url, page.url), answer.record_id)
        for answer in answers
        for url in answer.licences
    ]
    said: set[str] = set()
    for licences in filter(None, (own, others)):
        yield from (
            OptOutSignal(RSL_UNKNOWN, each.record_id) for each in licences if each.terms is None
        )
        verdicts = _verdicts(page.url, licences)
        for use, (verdict, record_id) in verdicts.items():
            if use not in said and verdict != YES:
                yield OptOutSignal(f"rsl:{use}={verdict}", record_id)
        said |= verdicts.keys()


def _licence(sites: SiteFile | None, url: str | None, record_id: str) -> _Licence:
    known = sites.licence_at(url) if sites is not None and url else None
    return _Licence(record_id, None) if known is None else _Licence(known.record_id, known.terms)


def _verdicts(url: str, licences: Iterable[_Licence]) -> dict[str, tuple[str, str]]:
    """Return the most restrictive verdict on each use, and the id of the record that has it."""
    host = host_named(url)
    found: dict[str, tuple[str, str]] = {}
    for each in licences:
        for use, verdict in uses_of(url, host, each.terms or []).items():
            known = found.get(use)
            if known is None or _ORDER.index(verdict) > _ORDER.index(known[0]):
                found[use] = verdict, each.record_id
    return found

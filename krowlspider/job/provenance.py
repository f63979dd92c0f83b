"""Metadata for the archive: of the crawl, of fetches, of names; and payloads of other crawls."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import plyvel

from krowlspider import __version__
from krowlspider.archive.dedup import (
    DedupIndex,
    DedupSource,
    OtherCrawls,
    build,
    is_dedup_index,
    source_at,
)
from krowlspider.archive.disk import ArchiveError, CaptureRefused
from krowlspider.archive.write.records import (
    FetchNote,
    dns_resource,
    dom_resource,
    is_uri,
    policies_resource,
    seeds_resource,
)
from krowlspider.config.log import IN_FILES
from krowlspider.errors import SettingsError, counted, error_text

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Mapping, Sequence

    from scrapy.settings import BaseSettings

    from krowlspider.archive.write.writer import WarcWriter
    from krowlspider.fetch.errors import Exchange, FetchError
    from krowlspider.job.in_flight import InFlight

logger = logging.getLogger(__name__)

# An address reserved for documentation (RFC 5737). Connecting a UDP socket to it sends no packet
# and shows which own address would be used.
_ELSEWHERE = ("192.0.2.1", 9)
# Settings written to each WARC file besides those that start with KROWL_. None holds a secret.
_PUBLIC = {
    *("BOT_NAME", "CONCURRENT_REQUESTS", "DOWNLOAD_DELAY", "DOWNLOAD_MAXSIZE", "DOWNLOAD_TIMEOUT"),
    *("REDIRECT_MAX_TIMES", "RETRY_HTTP_CODES", "RETRY_TIMES", "URLLENGTH_LIMIT"),
}
# Settings never written to a WARC file: secrets, folders of this machine, names of a private
# network, stores and other nodes.
_PRIVATE = (
    *IN_FILES,
    *("KROWL_CONSUL", "KROWL_EXCLUDE", "KROWL_NODE_ID", "KROWL_RESOLVE", "KROWL_SIGN_KEY"),
    *("KROWL_POLICIES", "KROWL_WARC_DIR", "KROWL_WARC_UPLOAD"),
    # Its fields are written as they are.
    "KROWL_WARC_INFO",
)
# Meta keys that a spider sets for a page, and the field that each becomes.
_BY_SPIDER = {"krowl_outlinks": "outlinks", "krowl_charset": "charset"}
_T = TypeVar("_T")


def warcinfo(settings: BaseSettings, contact: str, user_agent: str) -> dict[str, str]:
    """Return the fields of a warcinfo record (WARC 1.1, section 6.2).

    They include the fields of KROWL_WARC_INFO, and the crawl's settings, each as JSON.
    """
    obeys = settings.getbool("ROBOTSTXT_OBEY")
    values = {
        name: settings[name]
        for name in sorted(settings)
        if name in _PUBLIC or (name.startswith("KROWL_") and not name.startswith(_PRIVATE))
    }
    address = own_address()
    return {
        "software": f"krowlspider/{__version__}",
        **({"ip": address} if address else {}),
        "robots": "obey" if obeys else "ignore",
        "operator": contact,
        "http-header-user-agent": user_agent,
        **settings.getdict("KROWL_WARC_INFO"),
        **{
            name: json.dumps(value, default=str)
            for name, value in values.items()
            if value is not None
        },
    }


def own_address() -> str | None:
    """Return the IPv4 address of this machine as it knows it; None without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(_ELSEWHERE)
        except OSError:
            return None
        address: str = sock.getsockname()[0]
        return address


class Provenance:
    """Makes metadata and resource records, as KROWL_WARC_ALSO asks.

    The redirects that led to a page are always written.
    """

    def __init__(self, settings: BaseSettings, archive: WarcWriter):
        self._of_fetches = "metadata" in settings.getlist("KROWL_WARC_ALSO")
        self._of_failures = "failures" in settings.getlist("KROWL_WARC_ALSO")
        self._archive = archive

    def fetched(
        self, in_flight: InFlight, exchange: Exchange, identity: str, meta: Mapping[str, Any]
    ) -> FetchNote | None:
        """Return the note for an exchange whose response record has ``identity``; None for no note.

        A note without fields is not written unless a failure adds some. ``meta`` is that of the
        request.
        """
        has_fields = self._of_fetches or "redirect_urls" in meta
        if not (has_fields or self._of_failures):
            return None
        fields = _provenance(in_flight, meta, whole=self._of_fetches) if has_fields else []
        if self._of_fetches:
            fields += _times(exchange)
        return FetchNote(exchange.url, exchange.times.started, fields, identity)

    def failed(
        self, in_flight: InFlight, error: FetchError, meta: Mapping[str, Any]
    ) -> FetchNote | None:
        """Return the note for a fetch that failed; None for no note.

        It is that of `fetched`, with the failure, if an answer had begun.
        """
        note = in_flight.note
        if not self._of_failures:
            return note
        if note is None:
            note = FetchNote(in_flight.url, time.time(), [])
        if not note.fields:
            note.fields += _provenance(in_flight, meta, whole=self._of_fetches)
        note.fields.append(("error", error.kind))
        return note

    def hand_in(
        self, note: FetchNote, meta: Mapping[str, Any], delay: float, seed: str = ""
    ) -> None:
        """Write a note to the archive.

        It gets the ``delay`` of the host in seconds, the ``seed`` as Heritrix names it, and the
        fields that the spider has set in ``meta`` of the request.
        """
        if self._of_fetches:
            note.fields.append(("delayMs", f"{delay * 1000:.0f}"))
            note.fields += [("sourceTag", seed)] if is_uri(seed) else []
            note.fields += [
                (name, str(meta[key])) for key, name in _BY_SPIDER.items() if key in meta
            ]
        if note.fields:
            self._watch(self._archive.note, note)

    def name(self, name: str, records: list[tuple[str, float]]) -> None:
        """Write an answer of the DNS to the archive: addresses with their lifetimes in seconds."""
        self._watch(self._archive.resource, dns_resource(name, time.time(), records))

    def permission(self, url: str, text: str, sheet: str) -> None:
        """Write a permission to override a robots.txt to the archive. ``url`` is that of the file,
        ``sheet`` the sheet and line that has the permission."""
        fields = [("robots", "override"), ("permission", text), ("sheet", sheet)]
        self._watch(self._archive.note, FetchNote(url, time.time(), fields))

    def seeds(self, text: bytes, *, truncated: bool) -> None:
        """Write the seeds of this start to the archive, once it writes a file."""
        seeds = seeds_resource(text, time.time(), truncated=truncated)
        self._watch(self._archive.begin_with, seeds)

    def policies(self, text: bytes) -> None:
        """Write the sheets that are in force to the archive, once it writes a file."""
        self._watch(self._archive.begin_with, policies_resource(text, time.time()))

    def rendered(self, url: str, started: float, html: bytes, identity: str) -> None:
        """Write what a page was in the browser to the archive, unless its URL is too long there.
        ``identity`` is that of its response."""
        with suppress(ValueError):
            self._watch(self._archive.resource, dom_resource(url, started, html, identity))

    def _watch(self, write: Callable[[_T], Future[None]], what: _T) -> None:
        # A failed archive is logged for the captures already.
        with suppress(ArchiveError):
            write(what).add_done_callback(_log_refused)


def _provenance(
    in_flight: InFlight, meta: Mapping[str, Any], *, whole: bool
) -> list[tuple[str, str]]:
    """Return how a URL was found, as fields of a metadata record.

    They are ``via`` as in WARC 1.1, section 6.6, the redirects before it, and, if ``whole``, hop,
    depth and ``hopsFromSeed``. The hop is a letter of Heritrix: S seed, L link, R redirect,
    M sitemap, P robots.txt, E requisite.
    """
    if in_flight.robots_fetch is not None:
        chain = [f"{authority}/robots.txt" for authority in in_flight.robots_fetch.passed]
        hop, via, depth, path = "P", "", None, ""
    else:
        assert in_flight.lease is not None
        entry = in_flight.lease.entry
        chain, via, depth = meta.get("redirect_urls", []), entry.via, entry.depth
        hop = entry.path[-1:] or ("E" if entry.is_requisite else "" if depth else "S")
        path = entry.hops_from_seed
    if chain:
        hop, via = "R", chain[-1]
    fields = [("redirected-from", url) for url in chain if is_uri(url)]
    fields += [("via", via)] if is_uri(via) else []
    if whole:
        fields += [("hop", hop)] if hop else []
        fields += [] if depth is None else [("depth", str(depth))]
        fields += [("hopsFromSeed", path)] if path else []
    return fields


def _times(exchange: Exchange) -> list[tuple[str, str]]:
    """Return the durations of an exchange in milliseconds, as fields of a metadata record.

    ``fetchTimeMs`` is that of WARC 1.1, section 6.6; the others are parts of it. A reused
    connection has no times for DNS, TCP and TLS.
    """
    found = exchange.times
    times = {"fetchTimeMs": found.duration, "firstByteTimeMs": found.latency}
    if (dialled := found.dialled) is not None:
        times |= {"dnsTimeMs": dialled.name, "connectTimeMs": dialled.connect}
        times |= {"tlsTimeMs": dialled.tls} if exchange.peer.tls is not None else {}
    return [(name, f"{seconds * 1000:.3f}") for name, seconds in times.items()]


def _log_refused(written: Future[None]) -> None:
    error = None if written.cancelled() else written.exception()
    if isinstance(error, CaptureRefused):
        logger.error("A metadata record was not archived: %s", error)


# In the folder of `open_other_crawls`: the index of the sources that have none, and what it is of.
_BUILT, _OF = "built", "built.json"


def open_other_crawls(settings: BaseSettings, folder: Path) -> OtherCrawls | None:
    """Return what KROWL_WARC_DEDUP names; None if it names nothing. Blocks.

    ``folder`` keeps the index of JOBDIRs and CDXJ files, which is built once as long as they do
    not change, and views of the other indexes.

    :raises SettingsError: a source is missing or damaged, or ``folder`` cannot be written
    """
    names = [Path(name) for name in settings.getlist("KROWL_WARC_DEDUP")]
    if not names:
        return None
    try:
        folders = [name for name in names if is_dedup_index(name)]
        sources = [source_at(name) for name in names if not is_dedup_index(name)]
        if sources:
            folders.append(_built(sources, folder))
        views = folder / "views"
        if views.exists():
            shutil.rmtree(views)
        algorithm: str = settings["KROWL_WARC_DIGEST"]
        indexes = [
            DedupIndex(each, views / str(number), algorithm) for number, each in enumerate(folders)
        ]
    except (ArchiveError, OSError, plyvel.Error) as error:
        raise SettingsError(f"KROWL_WARC_DEDUP: {error_text(error)}") from error
    return OtherCrawls(indexes, settings.getfloat("KROWL_WARC_DEDUP_MAX_AGE"), logger.warning)


def _built(sources: Sequence[DedupSource], folder: Path) -> Path:
    """Return the index of ``sources``; build it if they have changed since it was built."""
    built, note = folder / _BUILT, folder / _OF
    text = json.dumps(
        [
            [str(index.resolve()), (found := index.stat()).st_size, found.st_mtime_ns]
            for source in sources
            for index in source.indexes
        ]
    )
    if is_dedup_index(built) and note.is_file() and note.read_text() == text:
        return built
    note.unlink(missing_ok=True)
    if built.exists():
        shutil.rmtree(built)
    files = counted(text.count("], [") + 1, "CDXJ file")
    logger.info("Reading %s of KROWL_WARC_DEDUP", files)
    counts = build(sources, built)
    known = counted(counts.captures, "capture")
    logger.info("Known from other crawls, and not archived again: %s", known)
    if counts.left_out:
        logger.warning("Captures of other crawls are archived again: %s", counts.left_out)
    note.write_text(text)
    return built

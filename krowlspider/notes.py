"""What the archive is told besides the bytes on the wire: of the crawl, of each fetch, of names."""

from __future__ import annotations

import json
import logging
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from krowlspider import __version__
from krowlspider.archive.capture import NameAnswer, Note
from krowlspider.archive.errors import ArchiveError, CaptureRefused
from krowlspider.archive.records import is_uri

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Mapping

    from scrapy.settings import BaseSettings

    from krowlspider.archive.writer import WarcWriter
    from krowlspider.fetch.errors import FetchError
    from krowlspider.fetch.exchange import Exchange
    from krowlspider.scheduler import Transit

logger = logging.getLogger(__name__)

# An address of the block for documentation (RFC 5737): no packet is sent to learn by which of our own one would go.
_ELSEWHERE = ("192.0.2.1", 9)
# Settings that are told in each WARC file besides the KROWL_ ones. None has a secret in it.
_TOLD = (
    "BOT_NAME",
    "CONCURRENT_REQUESTS",
    "DOWNLOAD_MAXSIZE",
    "DOWNLOAD_TIMEOUT",
    "REDIRECT_MAX_TIMES",
    "RETRY_HTTP_CODES",
    "RETRY_TIMES",
    "URLLENGTH_LIMIT",
)
# Folders of this machine, names of a private network, and where a store and the other nodes are, are nobody's business.
_UNTOLD = (
    *(
        "KROWL_CONSUL",
        "KROWL_EXCLUDE",
        "KROWL_NODE_ID",
        "KROWL_RESOLVE",
        "KROWL_RING",
    ),
    *("KROWL_WARC_DIR", "KROWL_WARC_UPLOAD"),
)
# What a spider says of a page in its request's meta, and the field that it becomes.
_BY_SPIDER = {"krowl_outlinks": "outlinks", "krowl_charset": "charset"}
_T = TypeVar("_T")


def warcinfo(settings: BaseSettings, contact: str, user_agent: str) -> dict[str, str]:
    """The fields of a warcinfo record (WARC 1.1, section 6.2), the crawl's settings as JSON among them."""
    obeys = settings.getbool("ROBOTSTXT_OBEY")
    told = sorted(
        name
        for name in settings
        if name in _TOLD or (name.startswith("KROWL_") and not name.startswith(_UNTOLD))
    )
    values: dict[str, Any] = {
        name: value for name in told if (value := settings.get(name)) is not None
    }
    address = own_address()
    return {
        "software": f"krowlspider/{__version__}",
        **({"ip": address} if address else {}),
        "robots": "obey" if obeys else "ignore",
        "operator": contact,
        "http-header-user-agent": user_agent,
        **{name: json.dumps(value, default=str) for name, value in values.items()},
    }


def own_address() -> str | None:
    """The address that this machine would be seen at, as far as it knows itself; None without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(_ELSEWHERE)
        except OSError:
            return None
        address: str = sock.getsockname()[0]
        return address


class Notes:
    """Makes metadata and resource records, as KROWL_WARC_METADATA and KROWL_WARC_FAILURES want them.

    The redirects that led to a page are told in any case.
    """

    def __init__(self, settings: BaseSettings, archive: WarcWriter):
        self._of_fetches = settings.getbool("KROWL_WARC_METADATA")
        self._of_failures = settings.getbool("KROWL_WARC_FAILURES")
        self._archive = archive

    def fetched(
        self, transit: Transit, exchange: Exchange, identity: str, meta: Mapping[str, Any]
    ) -> Note | None:
        """What is to be said of an exchange, whose response record has ``identity``; None for nothing. Without a field
        it says nothing so far. ``meta`` is its request's."""
        led = "redirect_urls" in meta
        if not (self._of_fetches or self._of_failures or led):
            return None
        told = self._of_fetches or led
        fields = _provenance(transit, meta, whole=self._of_fetches) if told else []
        if self._of_fetches:
            fields += _times(exchange)
        return Note(exchange.url, exchange.started, fields, identity)

    def failed(
        self, transit: Transit, error: FetchError, note: Note | None, meta: Mapping[str, Any]
    ) -> Note | None:
        """What is to be said of a fetch that failed, besides the ``note`` on what there is of an answer."""
        if not self._of_failures:
            return note
        if note is None:
            note = Note(transit.url, time.time(), [])
        if not note.fields:
            note.fields += _provenance(transit, meta, whole=self._of_fetches)
        note.fields.append(("error", error.kind))
        return note

    def hand_in(self, note: Note, meta: Mapping[str, Any]) -> None:
        """Have a note written, with what the spider has said of the page in its request's ``meta``."""
        if self._of_fetches:
            note.fields += [
                (name, str(meta[key])) for key, name in _BY_SPIDER.items() if key in meta
            ]
        if note.fields:
            self._watch(self._archive.note, note)

    def name(self, name: str, records: list[tuple[str, float]]) -> None:
        """Have an answer of the DNS written."""
        self._watch(self._archive.name, NameAnswer(name, time.time(), records))

    def _watch(self, write: Callable[[_T], Future[None]], what: _T) -> None:
        # An archive that fails is told of by the captures.
        with suppress(ArchiveError):
            write(what).add_done_callback(_told)


def _provenance(transit: Transit, meta: Mapping[str, Any], *, whole: bool) -> list[tuple[str, str]]:
    """How a URL was come to: ``via`` as in WARC 1.1, 6.6, the redirects before it, the hop by the letters of Heritrix
    (S seed, L link, R redirect, M sitemap, P robots.txt) and the depth."""
    if transit.errand is not None:
        chain = [f"{authority}/robots.txt" for authority in transit.errand.passed]
        hop, via, depth = "P", "", None
    else:
        assert transit.lease is not None
        entry = transit.lease.entry
        chain, via, depth = meta.get("redirect_urls", []), entry.via, entry.depth
        hop = entry.hop or ("" if depth else "S")
    if chain:
        hop, via = "R", chain[-1]
    fields = [("redirected-from", url) for url in chain if is_uri(url)]
    fields += [("via", via)] if is_uri(via) else []
    if whole:
        fields += [("hop", hop)] if hop else []
        fields += [] if depth is None else [("depth", str(depth))]
    return fields


def _times(exchange: Exchange) -> list[tuple[str, str]]:
    """Milliseconds: ``fetchTimeMs`` is that of WARC 1.1, 6.6, the others are parts of it; of a connection that was
    there already there is nothing to say."""
    times = {"fetchTimeMs": exchange.duration, "firstByteTimeMs": exchange.latency}
    if not exchange.reused:
        dialled = exchange.dialled
        times |= {"dnsTimeMs": dialled.name, "connectTimeMs": dialled.connect}
        times |= {"tlsTimeMs": dialled.tls} if exchange.tls is not None else {}
    return [(name, f"{seconds * 1000:.3f}") for name, seconds in times.items()]


def _told(written: Future[None]) -> None:
    error = None if written.cancelled() else written.exception()
    if isinstance(error, CaptureRefused):
        logger.error("A note was not archived: %s", error)

"""What a WARC file adds to hosts and pages: counts, and the state that its last fetch found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from krowlspider.catalogue.records.hosts import split
from krowlspider.urls.gemini import PORT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from krowlspider.catalogue.records.captures import CapturedRecord
    from krowlspider.catalogue.sinks import Row

_OUTCOMES = {2: "successes", 3: "redirects", 4: "client_errors", 5: "server_errors"}
_SCHEMES = {"http": 80, "https": 443}


class Hosts:
    """Adds up the fetches of each host of a file."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Any]] = {}

    def add(self, capture: CapturedRecord) -> None:
        host, port = capture.host, capture.parts.port
        if capture.message is not None:
            # A Gemini server is a host of its own, as in the frontier.
            port = port or PORT
        is_usual = port is None or port == _SCHEMES.get(capture.parts.protocol)
        name = host.name if is_usual else f"{host.name}:{port}"
        row = self._rows.get(name)
        if row is None:
            counts = dict.fromkeys(("fetches", *_OUTCOMES.values(), "revisits", "bytes"), 0)
            row = self._rows[name] = {
                "host": name,
                "host_reversed": host.reversed,
                "domain": host.registered_domain,
                "tld": host.tld,
                **counts,
                "first_fetch": capture.time,
                "last_fetch": capture.time,
                "warc_filename": capture.line.filename,
            }
        row["fetches"] += 1
        row["bytes"] += capture.line.length
        row["revisits"] += capture.is_revisit
        if (outcome := _OUTCOMES.get(capture.outcome)) is not None:
            row[outcome] += 1
        row["first_fetch"] = min(row["first_fetch"], capture.time)
        row["last_fetch"] = max(row["last_fetch"], capture.time)

    def rows(self) -> Iterator[Row]:
        yield from self._rows.values()


class _Page(Struct, gc=False):
    """The state of a page; a file may have a million of them."""

    key: str
    url: str
    first_fetch: datetime
    last_fetch: datetime
    status: int
    record_id: str
    fetches: int = 1
    last_change: datetime | None = None
    digest: str | None = None
    title: str | None = None
    seed: str | None = None
    tag: str | None = None


class PageSums:
    """Keeps the state of each page of the file ``filename``. Answers to POST and robots.txt are no
    pages."""

    def __init__(self, filename: str) -> None:
        self._filename = filename
        self._pages: dict[str, _Page] = {}

    def add(self, capture: CapturedRecord) -> None:
        if capture.is_robots or capture.line.method:
            return
        time, page = capture.time, self._pages.get(capture.url)
        if page is None:
            page = _Page(
                capture.line.key, capture.url, time, time, capture.status, capture.record_id
            )
            self._pages[page.url] = page
        else:
            page.fetches += 1
            page.first_fetch = min(page.first_fetch, time)
            if time < page.last_fetch:
                # The order of records is nearly that of time.
                return
            page.last_fetch, page.status = time, capture.status
        page.tag = capture.tag or page.tag
        self._take_body(page, capture)

    def add_seed(self, url: str, seed: str | None) -> None:
        """Add the seed that a page was found from, if it is known."""
        if seed is not None and (page := self._pages.get(url)) is not None:
            page.seed = seed

    def _take_body(self, page: _Page, capture: CapturedRecord) -> None:
        has_body = capture.has_page and capture.digest is not None
        if has_body and capture.digest != page.digest:
            page.digest, page.last_change = capture.digest, capture.time
        elif page.digest is not None and (capture.is_revisit or not has_body):
            # The record and the title are those of the latest body.
            return
        page.record_id, page.title = capture.record_id, capture.says.title

    def rows(self) -> Iterator[Row]:
        for page in self._pages.values():
            host, _ = split(page.url)
            yield {
                "url_surtkey": page.key,
                "url": page.url,
                "url_host_name": host.name,
                "url_host_registered_domain": host.registered_domain,
                "status": page.status,
                "first_fetch": page.first_fetch,
                "last_fetch": page.last_fetch,
                "last_change": page.last_change,
                "fetches": page.fetches,
                "digest": page.digest,
                "seed": page.seed,
                "tag": page.tag,
                "title": page.title,
                "record_id": page.record_id,
                "warc_filename": self._filename,
            }

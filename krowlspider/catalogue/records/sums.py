"""What a WARC file adds to hosts and pages: counts, and the state that its last fetch found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krowlspider.catalogue.records.documents import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.catalogue.records.captures import Capture
    from krowlspider.catalogue.sinks import Row

_OUTCOMES = {2: "successes", 3: "redirects", 4: "client_errors", 5: "server_errors"}
_SCHEMES = {"http": 80, "https": 443}


class Hosts:
    """Adds up the fetches of each host of a file."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Any]] = {}

    def add(self, capture: Capture) -> None:
        host, port = capture.host, capture.parts.port
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
        if (outcome := _OUTCOMES.get(capture.status // 100)) is not None:
            row[outcome] += 1
        row["first_fetch"] = min(row["first_fetch"], capture.time)
        row["last_fetch"] = max(row["last_fetch"], capture.time)

    def rows(self) -> Iterator[Row]:
        yield from self._rows.values()


class Pages:
    """Keeps the state of each page of a file. Answers to POST and robots.txt are no pages."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Any]] = {}

    def add(self, capture: Capture) -> None:
        if capture.is_robots or capture.line.method:
            return
        row = self._rows.get(capture.url)
        if row is None:
            row = self._rows[capture.url] = {
                **place_of(capture),
                "first_fetch": capture.time,
                "last_fetch": capture.time,
                "last_change": None,
                "fetches": 0,
                "digest": None,
                "seed": None,
                "tag": None,
                "title": None,
                "warc_filename": capture.line.filename,
            }
        row["fetches"] += 1
        row["first_fetch"] = min(row["first_fetch"], capture.time)
        if row["fetches"] > 1 and capture.time < row["last_fetch"]:
            # The order of records is nearly that of time.
            return
        row["last_fetch"] = capture.time
        row["status"] = capture.status
        row["tag"] = capture.tag or row["tag"]
        self._take_body(row, capture)

    def add_seed(self, url: str, seed: str | None) -> None:
        """Add the seed that a page was found from, if it is known."""
        if seed is not None and (row := self._rows.get(url)) is not None:
            row["seed"] = seed

    def _take_body(self, row: dict[str, Any], capture: Capture) -> None:
        has_body = capture.status == 200 and capture.digest is not None
        if has_body and capture.digest != row["digest"]:
            row["digest"], row["last_change"] = capture.digest, capture.time
        elif row["digest"] is not None and (capture.is_revisit or not has_body):
            # The record and the title are those of the latest body.
            return
        row["record_id"], row["title"] = capture.record_id, capture.says.title

    def rows(self) -> Iterator[Row]:
        yield from self._rows.values()

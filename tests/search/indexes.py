"""Indexes for queries: made of documents, by the schema of the builder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from krowlspider.corpus.copies.fingerprints import hashes_of
from krowlspider.search.forms import Forms, cleaned
from krowlspider.search.schema import (
    CJK,
    FORM,
    FORMS,
    SEGMENTS,
    STATE,
    CapturePlace,
    open_index,
    page_id,
    split_spaceless,
    tantivy,
)
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

NOON = datetime(2026, 11, 5, 12, tzinfo=UTC)


@dataclass
class Page:
    """What a document has."""

    url: str
    title: str = ""
    body: str = ""
    lang: str = "en"
    mime: str = "text/html"
    headings: str = ""
    anchors: str = ""
    size: int = 1000
    fetched: datetime = NOON
    linking_hosts: int = 0
    place: CapturePlace | None = None
    fingerprint: bytes = b""


def index(folder: Path, pages: Iterable[Page], jobdirs: Sequence[Path] = ()) -> Path:
    """Write pages to the index in a folder, which may be there; return the folder."""
    writer = open_index(folder / SEGMENTS, make=True).writer(15_000_000, 1)
    forms = Forms(folder / FORMS)
    for page in pages:
        words = cleaned(f"{page.title} {page.body}").split()
        forms.meet(words, hashes_of(words), page.lang)
        writer.add_document(_document(page))
    forms.commit()
    forms.close()
    writer.commit()
    writer.wait_merging_threads()
    state = {"form": FORM, "jobdirs": [str(each) for each in jobdirs]}
    (folder / "draft").write_text(json.dumps(state))
    (folder / "draft").replace(folder / STATE)
    return folder


def _document(page: Page):
    document = tantivy().Document()
    host = urlsplit(page.url).netloc
    if page.url.startswith("gemini:") and ":" not in host:
        host += ":1965"
    keys = {
        "id": page_id(page.url), "url": page.url, "host": host, "domain": domain_of(host),
        "scheme": page.url.partition(":")[0], "lang": page.lang, "mime": page.mime,
    }  # fmt: skip
    body, pairs = split_spaceless(page.body)
    title_pairs = split_spaceless(page.title)[1]
    texts = {
        "title": page.title, "headings": page.headings, "anchors": page.anchors, "body": body,
        CJK: f"{title_pairs} {pairs}",
    }  # fmt: skip
    for name, text in {**keys, **texts}.items():
        document.add_text(name, text)
    for name in ("fetched", "first_fetched", "changed"):
        document.add_date(name, page.fetched)
    document.add_unsigned("size", page.size)
    document.add_unsigned("linking_hosts", page.linking_hosts)
    document.add_bytes("fingerprint", page.fingerprint)
    if page.place is not None:
        document.add_bytes("place", page.place.dump())
    return document

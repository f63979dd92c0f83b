"""WARC files of small webs, and what an index has of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import tantivy

from krowlspider.frontier.hosts.host import Host
from krowlspider.frontier.hosts.host_record import encode_host
from krowlspider.frontier.pages.row import PageRow
from krowlspider.frontier.store.schema import PAGES, host_key
from krowlspider.politeness.delay import PARKED
from krowlspider.search.schema import ENTRY, FORMS, SEGMENTS, CapturePlace, open_forms, open_index
from krowlspider.urls.canonical import host_of
from tests.archive.captures import STARTED
from tests.catalogue.warcs import fetch

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.archive.write.records import Capture
    from krowlspider.frontier.store.store import Batch

# English words, so that the language is known, each in few pages.
_WORDS = """
about above across action animal answer autumn balance basket beacon bridge candle carpet castle
chapter circle climate cluster coffee column corner cotton county danger desert dinner doctor
dragon engine evening fabric factory family famous farmer father feather fellow figure finger
flower forest garden gather gentle glance golden harbour hammer helmet hidden hollow honest island
jacket journey kitchen ladder lantern leather letter library listen market meadow memory mirror
morning mountain museum narrow needle number office orange orchard palace parent pebble pencil
people pepper pillow planet pocket poetry potato powder prison puzzle quarter rabbit railway
remember ribbon river rocket saddle sailor school season shadow shelter signal silver simple
singer spider spirit spring station stream summer sunset supper tailor temple thunder ticket
timber tunnel valley velvet village violin walnut weather whisper willow window winter wonder
yellow
""".split()  # noqa: SIM905 (a list of words)


def text(number: int, words: int = 60) -> str:
    """Return a text of its own for each number."""
    found = [
        _WORDS[(number * 31 + place * (7 + number % 13)) % len(_WORDS)] for place in range(words)
    ]
    return f"The story of number{number} and the " + " and the ".join(found)


def page(
    number: int, links: dict[str, str] | None = None, head: str = "", *, extra: str = ""
) -> bytes:
    """Return a page of HTML: links are URL and anchor."""
    anchors = "".join(f"<a href='{url}'>{anchor}</a> " for url, anchor in (links or {}).items())
    return (
        f"<html><head><title>Title {number}</title>{head}</head><body><h1>Heading {number}</h1>"
        f"<p>{text(number)} {extra}</p>{anchors}</body></html>"
    ).encode()


def found(url: str, number: int, minute: int = 0, **about: Any) -> Capture:
    """Return the fetch of a page; ``about`` is for `page`."""
    return fetch(url, page(number, **about), minute=minute)


def put_row(batch: Batch, url: str, errors: int, day: int = 0) -> None:
    """Put the row of a page that was fetched on a day, and the record of its host: so many tries in
    a row have failed since, the last one on day 39."""
    host = Host(host_of(url))
    host.rate.errors = errors
    host.due = STARTED + 39 * PARKED + PARKED
    row = PageRow(url, 200, int(STARTED), STARTED + 60 * 5 + day * PARKED)
    batch.put(PAGES + host.name.encode() + bytes(9), row.encode(host.name))
    batch.put(host_key(host.name), encode_host(host))


class Stored(NamedTuple):
    """The documents of an index by URL, with their stored fields, URLs by field and term, and the
    entries of forms."""

    documents: dict[str, dict[str, Any]]
    terms: dict[tuple[str, str], frozenset[str]]
    forms: frozenset[str]


def stored(folder: Path, *asked: tuple[str, str]) -> Stored:
    """Return what the index in ``folder`` has; ``asked`` are fields and terms."""
    index = open_index(folder / SEGMENTS)
    searcher = index.searcher()
    everything = searcher.search(tantivy.Query.all_query(), limit=100_000).hits
    documents = {}
    for _, address in everything:
        fields = searcher.doc(address).to_dict()
        fields["place"] = [CapturePlace.load(each) for each in fields["place"]]
        assert fields["url"][0] not in documents, "a page has two documents"
        documents[fields["url"][0]] = fields
    terms = {}
    for field, term in asked:
        query = tantivy.Query.term_query(index.schema, field, term)
        hits = searcher.search(query, limit=100_000).hits
        terms[field, term] = frozenset(searcher.doc(at)["url"][0] for _, at in hits)
    forms = open_forms(folder / FORMS).searcher().terms_with_prefix(ENTRY, "")
    return Stored(documents, terms, frozenset(entry for entry, _ in forms))


def urls(folder: Path, field: str, term: str) -> set[str]:
    """Return the URLs of the documents with a term in a field."""
    return set(stored(folder, (field, term)).terms[field, term])

"""Hear what refuses uses of a page: the page, the files of its site, and its licences."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from krowlspider.corpus.optouts.signals import RSL_UNKNOWN, TDM, Signal, licences_of, signals
from krowlspider.corpus.optouts.terms import YES, terms_in, uses_of
from krowlspider.corpus.sites.scan import host_named
from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from krowlspider.corpus.optouts.terms import Scope
    from krowlspider.corpus.pages import Page
    from krowlspider.corpus.sites.answers import Site
    from krowlspider.corpus.sites.index import SiteFile
    from krowlspider.corpus.text.document import Document

# Verdicts of a licence, the most restrictive last.
_ORDER = (YES, "conditional", "no")


class _Licence(NamedTuple):
    """A licence and the id of its record; ``terms`` are None if it is not known, and the id is that
    of the record that names it."""

    record_id: str
    terms: list[Scope] | None


def signals_of(page: Page, found: Document, sites: SiteFile | None) -> list[Signal]:
    """Return the signals for a page, sorted, each once for each record that says it.

    Without ``sites`` only the page itself counts.
    """
    answers = sites.answers_for(page.url) if sites is not None else []
    heard = {Signal(name, page.record_id) for name in signals(page.headers, found.metas)}
    for answer in answers:
        for name in answer.signals_for(page.url, page.kind):
            # A reservation of the page replaces that of its site.
            if name != TDM or TDM in signals(page.headers, found.metas, [TDM]):
                heard.add(Signal(name, answer.record_id))
    heard.update(_licensed(page, found, sites, answers))
    return sorted(heard)


def _licensed(
    page: Page, found: Document, sites: SiteFile | None, answers: list[Site]
) -> Iterator[Signal]:
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
        yield from (Signal(RSL_UNKNOWN, each.record_id) for each in licences if each.terms is None)
        verdicts = _verdicts(page.url, licences)
        for use, (verdict, record_id) in verdicts.items():
            if use not in said and verdict != YES:
                yield Signal(f"rsl:{use}={verdict}", record_id)
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

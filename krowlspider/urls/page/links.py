"""Read a page of HTML: its links, title, base and text, and its rules for robots.

frostwork scans the bytes once, without building a tree. It is faster than selectolax (lexbor),
which neither sniffs the encoding nor stays linear on deep nesting.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from msgspec import Struct, field

from krowlspider.internals.frostwork import Plan
from krowlspider.urls.canonical import URL_MAX, normalise, normalise_all
from krowlspider.urls.encoding import codec_for, decode, encoding_of, mark_of
from krowlspider.urls.page.headers import FOLLOWED, bounded, encode_queries, refresh_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from krowlspider.urls.page.requisites.found import Requisites
    from krowlspider.urls.page.sitemap_xml import Claim

# Links taken from one page. Pages with more are generated, and one page must not fill the frontier.
MAX_LINKS = 10_000
# Feeds taken from one page.
FEEDS_MAX = 4
# Characters of a title that are kept.
MAX_TITLE = 512
# Characters of a page's text that are kept. A viewer loads the texts of all pages to search them;
# that of ReplayWeb.page reads the first megabyte of the list.
MAX_TEXT = 5_000
# Characters of a language tag that are kept: RFC 5646, section 4.4.1.
MAX_LANG = 35

_NOFOLLOW = ":not([rel~=nofollow i])"
# ``link`` elements that lead to another page of HTML, as `read_links` decides it for headers.
_LINK = (
    f"link:is({', '.join(f'[rel~={name} i]' for name in sorted(FOLLOWED))})"
    ":not([rel~=stylesheet i]):is([type*=html i], [type=''], :not([type]))"
)
# Columns of a plan that only items need: title, canonical, language. Each column costs time per
# page, even if nothing is found.
# Feeds are sought only where a schedule has a use for them.
_FEED = (
    "link[rel~=alternate i]:is([type='application/rss+xml' i], [type='application/atom+xml' i],"
    " [type='application/feed+json' i], [type='application/json' i])[href]::attr(href)"
)
_DESCRIPTION = ("title::text", "link[rel~=canonical i]::attr(href)", "html::attr(lang)")


@lru_cache(maxsize=16)
def reading_plan(
    agent: str,
    *,
    follow_nofollow: bool,
    described: bool = True,
    requisites: bool = False,
    feeds: bool = False,
) -> Plan:
    """Return the frostwork plan of the texts and attributes that are read from a page.

    ``agent`` is the product token that ``<meta name=...>`` may address in addition to "robots".
    With ``follow_nofollow``, links with ``rel=nofollow`` are read too. Only with ``described`` are
    the title, canonical and language of the page read, only with ``requisites`` those, and only
    with ``feeds`` its feeds.
    """
    followed = f"[href]{'' if follow_nofollow else _NOFOLLOW}::attr(href)"
    columns: tuple[str, ...] = ()
    if requisites:
        # Few crawls fetch requisites.
        from krowlspider.urls.page.requisites.elements import COLUMNS as columns  # noqa: PLC0415
    return Plan(
        [
            f":is(a, area){followed}, {_LINK}{followed}, :is(frame, iframe)[src]::attr(src)",
            "meta[http-equiv=refresh i]::attr(content)",
            "base[href]::attr(href)",
            f"meta:is([name=robots i], [name={agent} i])::attr(content)",
            *((_FEED,) if feeds else ()),
            *(_DESCRIPTION if described else ()),
            *columns,
        ],
        [],
    )


_PLAN = reading_plan("krowlspider", follow_nofollow=False)
# Elements whose text a reader does not see. Those of `bounded` that keep their end tags only: of
# others the end, and with it the text behind, is not known in very large pages.
_UNSEEN = "title, script, style, iframe, noframes, noembed"
_TEXT_PLAN = Plan(["title::text", f"*:not({_UNSEEN})::text"], [])


class ReadPage(Struct, eq=False):
    """The content of a page that concerns a crawler; without values, that of no HTML.

    ``links`` are normalised URLs in document order without repeats. ``nofollow`` and ``noindex``
    are the prohibitions of the page as a whole. ``canonical`` is the normalised target of
    ``rel=canonical``.

    ``requisites`` is None unless the plan reads them. ``feeds`` are the normalised URLs of its
    first feeds, where they are read. ``claims`` is what a page that is a feed itself says of the
    pages it names.

    ``refused`` counts links that are no http(s) URL, ``oversize`` those too long to be parsed, and
    ``surplus`` those after the first MAX_LINKS.
    """

    links: list[str] = field(default_factory=list)
    title: str = ""
    nofollow: bool = False
    noindex: bool = False
    canonical: str | None = None
    lang: str = ""
    refused: int = 0
    oversize: int = 0
    surplus: int = 0
    requisites: Requisites | None = None
    feeds: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)


def read_page(
    body: bytes, url: str, charset: str | None, plan: Plan = _PLAN, *, feeds: bool = False
) -> ReadPage:
    """Return what the HTML of ``url``, a normalised URL, contains; no bytes raise an error.
    ``feeds``: the plan reads feeds.

    ``charset`` is the WHATWG name of the encoding by the HTTP header, if any; `encoding_of` finds
    the encoding. A page is read up to a bound on its tags (`bounded`).
    """
    html = bounded(body)
    hrefs, refreshes, bases, robots, *more = plan.extract(html, _label(body, charset))
    feed_places = more.pop(0)[:FEEDS_MAX] if feeds else []
    read_requisites = None
    if len(more) > len(_DESCRIPTION):
        more, read_requisites = _split_requisites(more)
    titles, canonicals, langs = more or ([], [], [])
    if refreshes and (target := refresh_target(refreshes[0])):
        hrefs.insert(0, target)
    surplus = max(0, len(hrefs) - MAX_LINKS)
    del hrefs[MAX_LINKS:]
    refused: list[str] = []
    oversize: list[str] = []
    if not "".join([*hrefs, *bases[:1], *canonicals[:1]]).isascii():
        encoding = encoding_of(body, charset)
        hrefs = encode_queries(hrefs, encoding, oversize)
        bases = encode_queries(bases[:1], encoding, [])
        canonicals = encode_queries(canonicals[:1], encoding, [])
    base = _base(bases, url)
    nofollow, noindex = refusals_in(_robots_tokens(robots))
    requisites = None
    if read_requisites is not None:
        requisites = read_requisites(base, lambda: encoding_of(body, charset))
    return ReadPage(
        links=normalise_all(hrefs, base, refused, oversize),
        title=_collapsed(titles[:1], MAX_TITLE),
        nofollow=nofollow,
        noindex=noindex,
        canonical=normalise(canonicals[0], base) if canonicals else None,
        lang=_collapsed(langs[:1], MAX_LANG),
        refused=len(refused),
        oversize=len(oversize),
        surplus=surplus,
        requisites=requisites,
        feeds=normalise_all(feed_places, base, [], []) if feed_places else [],
    )


def read_text(body: bytes, charset: str | None) -> tuple[str, str]:
    """Return title and text of HTML, whitespace collapsed, for a search in an archive.

    No bytes raise an error. ``charset`` is as for `read_page`.
    """
    titles, texts = _TEXT_PLAN.extract(bounded(body), _label(body, charset))
    return _collapsed(titles[:1], MAX_TITLE), _collapsed(texts, MAX_TEXT)


def _split_requisites(
    columns: list[list[str]],
) -> tuple[list[list[str]], Callable[[str, Callable[[], str]], Requisites]]:
    """Return the columns of the description, and what reads those of requisites."""
    # Few crawls fetch requisites.
    from krowlspider.urls.page.requisites.elements import COLUMNS, requisites_of  # noqa: PLC0415

    return columns[: -len(COLUMNS)], partial(requisites_of, columns[-len(COLUMNS) :])


def _label(body: bytes, charset: str | None) -> str | None:
    """Return the encoding that the scanner is told; None where it finds the same by itself."""
    return charset if charset is not None or body.isascii() else encoding_of(body, None)


def _base(hrefs: list[str], url: str) -> str:
    """Return the first ``<base href>``, or ``url`` if it is missing, too long or no http(s) URL."""
    base = normalise(hrefs[0], url) if hrefs else None
    return url if base is None or len(base) > URL_MAX else base


def refusals_in(rules: set[str]) -> tuple[bool, bool]:
    """Return (nofollow, noindex): whether lower-case rules forbid to follow links, and to index."""
    return not rules.isdisjoint(("nofollow", "none")), not rules.isdisjoint(("noindex", "none"))


def _robots_tokens(contents: Iterable[str]) -> set[str]:
    return set(",".join(contents).lower().replace(",", " ").split())


def _collapsed(texts: list[str], length: int) -> str:
    """Return the texts as one with whitespace collapsed, cut to ``length`` characters."""
    return " ".join(" ".join(texts).split())[:length].rstrip()


# Bytes of a body that are read: as many as `bounded` leaves.
READ_MAX = 4 * 1024 * 1024
_VISIBLE_PLAN = Plan(["*:not(script, style, iframe, noframes, noembed)::text"], [])
# Stands in the text where a line begins.
_BREAK = "\x1e"
# The tags, of start or end, at which a browser begins a line or a cell.
_LINES = re.compile(
    "<(?=/?(?:address|article|aside|blockquote|body|br|caption|dd|details|dialog|div|dl|dt|fieldset"
    "|figcaption|figure|footer|form|h[1-6]|header|hr|legend|li|main|nav|ol|option|p|pre|section"
    r"|summary|table|tbody|td|tfoot|th|thead|title|tr|ul)[\s/>])",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?…]) |(?<=[。！？])")


def lines_of_html(body: bytes, charset: str | None) -> list[str]:
    """Return title and text of HTML: a line for each block, and for each sentence of it.

    Whitespace is collapsed. No bytes raise an error. ``charset`` is the WHATWG name of the encoding
    by the HTTP header, if any.
    """
    html = _LINES.sub(f"{_BREAK}<", _text(body, charset))
    [texts] = _VISIBLE_PLAN.extract(bounded(html.encode(errors="replace")), "UTF-8")
    return _sentences("".join(texts).split(_BREAK))


def lines_of_text(body: bytes, charset: str | None) -> list[str]:
    """Return the lines of plain text, and of each line its sentences, as `lines_of_html`."""
    return _sentences(_text(body, charset).splitlines())


def _text(body: bytes, charset: str | None) -> str:
    encoding = encoding_of(body, charset)
    cut = body[:READ_MAX].removeprefix(mark_of(body)[0])
    return decode(cut, codec_for(encoding), is_whole=len(body) <= READ_MAX, is_exact=False)


def _sentences(lines: Iterable[str]) -> list[str]:
    collapsed = (" ".join(line.split()) for line in lines)
    return [each for line in collapsed for each in _SENTENCE_END.split(line) if each]

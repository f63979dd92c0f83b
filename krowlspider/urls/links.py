"""What a page of HTML says to a crawler: its links, title, base, and what it asks of robots.

frostwork scans the bytes once, without a tree. On a page of 37 kB with 77 links the scan takes
0.19 ms, against 0.33 ms for selectolax (lexbor), which neither sniffs the encoding nor stays
linear on deep nesting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from frostwork._frostwork import Plan

from krowlspider.urls.bound import bounded
from krowlspider.urls.canonical import normalise, normalise_all

if TYPE_CHECKING:
    from collections.abc import Iterable

# Links taken from one page. Larger pages are generated, and one page must not fill the frontier.
MAX_LINKS = 10_000
# Characters of the longest base that counts: each link is as long. Longer URLs are not queued.
MAX_BASE = 2048
# Characters of a title that are kept.
MAX_TITLE = 512
# Characters of a language tag that are kept: RFC 5646, section 4.4.1.
MAX_LANG = 35

_NOFOLLOW = ":not([rel~=nofollow i])"


# Columns of a plan that only those who describe a page look at: title, canonical, language. A column takes 5 to 8 µs of
# a page, whether anything is found or not.
_DESCRIPTION = ("title::text", "link[rel~=canonical i]::attr(href)", "html::attr(lang)")


@lru_cache(maxsize=16)
def reading_plan(agent: str, *, follow_nofollow: bool, described: bool = True) -> Plan:
    """What is looked for in a page. ``agent`` is the product token that ``<meta name=...>`` may address besides
    "robots"; with ``follow_nofollow`` links with ``rel=nofollow`` count too. Without ``described`` its title, canonical
    and language are left out."""
    followed = f"[href]{'' if follow_nofollow else _NOFOLLOW}::attr(href)"
    return Plan(
        [
            f"a{followed}, area{followed}, frame[src]::attr(src), iframe[src]::attr(src)",
            "meta[http-equiv=refresh i]::attr(content)",
            "base[href]::attr(href)",
            f"meta[name=robots i]::attr(content), meta[name={agent} i]::attr(content)",
            *(_DESCRIPTION if described else ()),
        ],
        [],
    )


_PLAN = reading_plan("krowlspider", follow_nofollow=False)
# "5; url='/x'": HTML, section 4.2.5.3, shared declarative refresh steps. The possessive "*+" keeps
# it linear in the length of the text.
_REFRESH = re.compile(
    r"""\s*+[\d.]++(?:\s*+[;,]|\s)\s*+(?:url\s*+=\s*+)?+(?:"([^"]*)|'([^']*)|(.+))""",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(slots=True, eq=False)
class Page:
    """What was read of a page.

    ``links`` are normalised URLs in document order without repeats; links with ``rel=nofollow``
    are left out unless the plan says otherwise, and what the page as a whole forbids is in
    ``nofollow`` and ``noindex``. ``base`` is what the links were joined to, ``canonical`` the
    normalised target of ``rel=canonical``. ``refused`` counts links of its elements that are no
    http(s) URL, ``oversize`` those too long to be parsed, ``surplus`` those after the first
    MAX_LINKS.
    """

    links: list[str]
    title: str
    base: str
    nofollow: bool
    noindex: bool
    canonical: str | None
    lang: str
    refused: int = 0
    oversize: int = 0
    surplus: int = 0

    @classmethod
    def empty(cls, url: str) -> Page:
        """What is read of a page that is not HTML."""
        return cls([], "", url, nofollow=False, noindex=False, canonical=None, lang="")


def read_page(body: bytes, url: str, charset: str | None, plan: Plan = _PLAN) -> Page:
    """Read the HTML of ``url``, a normalised URL. Any bytes will do; nothing is raised for them.

    ``charset`` is what the HTTP header said; the encoding is found as browsers find it: byte order
    mark, header, meta element, UTF-8. A page with very many tags is read up to a bound (see
    `krowlspider.urls.bound`).
    """
    hrefs, refreshes, bases, robots, *description = plan.extract(bounded(body), charset)
    titles, canonicals, langs = description or ([], [], [])
    base = _base(bases, url)
    if target := _refresh_target(refreshes):
        hrefs.insert(0, target)
    nofollow, noindex = refusals_in(_robots_tokens(robots))
    refused: list[str] = []
    oversize: list[str] = []
    return Page(
        links=normalise_all(hrefs[:MAX_LINKS], base, refused, oversize),
        title=_collapsed(titles, MAX_TITLE),
        base=base,
        nofollow=nofollow,
        noindex=noindex,
        canonical=normalise(canonicals[0], base) if canonicals else None,
        lang=_collapsed(langs, MAX_LANG),
        refused=len(refused),
        oversize=len(oversize),
        surplus=max(0, len(hrefs) - MAX_LINKS),
    )


def _base(hrefs: list[str], url: str) -> str:
    """The first ``<base href>``; the page's own URL where that is no http(s) URL or too long."""
    base = normalise(hrefs[0], url) if hrefs else None
    return url if base is None or len(base) > MAX_BASE else base


def _refresh_target(contents: list[str]) -> str | None:
    match = _REFRESH.match(contents[0]) if contents else None
    return match[match.lastindex or 0].strip() if match else None


def refusals_in(rules: set[str]) -> tuple[bool, bool]:
    """Whether rules for robots, in lower case, forbid to follow links, and to index."""
    return not rules.isdisjoint(("nofollow", "none")), not rules.isdisjoint(("noindex", "none"))


def _robots_tokens(contents: Iterable[str]) -> set[str]:
    return set(",".join(contents).lower().replace(",", " ").split())


def _collapsed(texts: list[str], length: int) -> str:
    """The first text with its runs of whitespace as one space, cut to ``length`` characters."""
    return " ".join(texts[0].split())[:length].rstrip() if texts else ""

"""The score of a page for a query: how well its text fits, times what speaks for it besides.

Each factor is 1 for a page of which nothing is known, so an index without ranks of hosts and
without links is ranked by text alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import e, exp, log, log2, log10
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.errors import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What a title adds that has the words of the query and no others.
TITLE_WEIGHT = 1.0
# What a host adds for each tenfold harmonic centrality.
HOST_WEIGHT = 0.08
# What links add that say the words of the query, for each doubling of the hosts they are on; and
# those that say something else.
SAID_WEIGHT = 0.12
LINKED_WEIGHT = 0.03
# The score of anchor texts that counts half.
_ANCHOR_HALF = 6.0
# What the root of a site adds that is called as the query.
NAME_WEIGHT = 1.0
# Most of these logarithms that count: what hosts of spam can bring.
_LOG_MAX = 16.0

# As in TLGS: the weight of the links in a neighbourhood, the size of pages over which they count
# less, and how fast.
_TLGS_LINKS = 6.5
_TLGS_SIZE, _TLGS_STEP = 48_000, 3_000


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a page: ``text`` is its BM25, ``anchors`` that of the links to it."""

    text: float
    title: Sequence[str] = ()
    anchors: float = 0.0
    linking_hosts: int = 0
    harmonic: float = 0.0
    # The first label of the registrable domain, for the root of a host; else "".
    name: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """A score, which is the product of ``parts``: name, factor, and what it is made of."""

    value: float
    parts: tuple[tuple[str, float, str], ...]


class Factors(NamedTuple):
    """What the text's score of a page is multiplied by."""

    title: float
    links: float
    host: float
    name: float

    @property
    def product(self) -> float:
        return self.title * self.links * self.host * self.name


def factors(page: Evidence, words: Sequence[str], name: str = "") -> Factors:
    """Return the factors of a page for the words of a query, which are as those of its title.

    ``name`` is what a site would be called that a person looks for by its name.
    """
    links = host = 1.0
    if page.linking_hosts > 0:
        said = SAID_WEIGHT * page.anchors / (page.anchors + _ANCHOR_HALF)
        links += min(log2(1.0 + page.linking_hosts), _LOG_MAX) * (LINKED_WEIGHT + said)
    if page.harmonic > 0.0:
        host += HOST_WEIGHT * min(log10(1.0 + page.harmonic), _LOG_MAX)
    title = 1.0 + TITLE_WEIGHT * title_likeness(words, page.title) ** 2
    return Factors(title, links, host, 1.0 + NAME_WEIGHT * (page.name != "" and page.name == name))


def score(page: Evidence, words: Sequence[str], name: str = "") -> Score:
    """Return the score of a page with its parts. The arguments are those of `factors`."""
    found = factors(page, words, name)
    others = counted(page.linking_hosts, "other host")
    about = (
        f"likeness {title_likeness(words, page.title):.2f}",
        f"from {others}, BM25 of their texts {page.anchors:.2f}",
        f"harmonic centrality {page.harmonic:.3g}",
        "root of the site of this name",
    )
    parts = [
        ("text", page.text, "BM25 of title, headings, anchor texts and body"),
        *zip(Factors._fields, found, about, strict=True),
    ]
    return Score(page.text * found.product, tuple(each for each in parts if each[1] != 1.0))


def title_likeness(words: Sequence[str], title: Sequence[str]) -> float:
    """Return how much of the words of a query and of a title are in both, from 0 to 1."""
    asked, found = {*words}, {*title}
    if not asked or not found:
        return 0.0
    return len(asked & found) / len(asked | found)


def by_neighbourhood(
    text: Mapping[str, float], authority: Mapping[str, float], sizes: Mapping[str, int]
) -> dict[str, Score]:
    """Return scores by the links between the results and their neighbours, as TLGS has them: the
    harmonic mean of the text's and the links'. The arguments have a number for each URL."""
    most = max(authority.values(), default=0.0) or 1.0
    found = {}
    for url, given in text.items():
        over = sizes.get(url, 0) - _TLGS_SIZE
        large = 1.0 / log(e + over / _TLGS_STEP) if over > 0 else 1.0
        links = exp(authority.get(url, 0.0) / most * _TLGS_LINKS)
        rank = given * large
        value = 2.0 * links * rank / (links + rank) if rank > 0.0 else 0.0
        found[url] = Score(
            value,
            (
                ("text", given, "BM25 of title, headings, anchor texts and body"),
                ("size", large, f"{sizes.get(url, 0)} bytes"),
                ("links", links, f"authority {authority.get(url, 0.0):.3g}"),
            ),
        )
    return found

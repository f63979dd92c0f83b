"""Read a robots.txt of Gemini: the companion specification "robots.txt for Gemini".

It is the form of 1994: groups of User-agent and Disallow lines. A Disallow line names a prefix of
paths; Allow and all other lines are ignored. Gemini requests have no user agent, so bots follow the
groups of "virtual user agents", by what they do with the pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.urls.robots_groups import ALL, DISALLOW, groups_in, text_of, token_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The virtual user agents of the specification.
ARCHIVER, INDEXER, RESEARCHER, WEBPROXY = "archiver", "indexer", "researcher", "webproxy"
VIRTUAL = frozenset({ARCHIVER, INDEXER, RESEARCHER, WEBPROXY})
# What a crawl does with pages: it archives them, and may index and study them. It is no proxy.
FOLLOWED = (ARCHIVER, INDEXER, RESEARCHER, ALL)

# The prefixes of an agent, in order without repeats. Empty: a group that disallows nothing.
_Prefixes = dict[str, None]


def read(body: bytes, agents: Sequence[str]) -> list[str]:
    """Return the prefixes of paths that are disallowed for a crawler that is all of ``agents``.

    ``agents`` are virtual user agents, ``*``, and product tokens of the crawler itself, in any
    case. The groups of all of them hold together. An empty Disallow permits everything (1994): of a
    virtual agent it lifts the group of ``*`` for that agent, of a product token it lifts all
    groups. Lines in front of all groups hold for every agent.

    Of a body of any bytes, `krowlspider.urls.robots_groups.BODY_MAX` bytes are read. A prefix
    without its leading ``/`` gets one. ``*`` and ``$`` stay as they are, as
    `krowlspider.politeness.gemini.PrefixRules` reads them.
    """
    names = {ALL if name == ALL else token_in(name) for name in agents}
    groups = _groups(body)
    own = [groups[name] for name in names - VIRTUAL - {ALL} if name in groups]
    if any(not prefixes for prefixes in own):
        return []
    virtual = [groups.get(name) for name in sorted(names & VIRTUAL)]
    found = [groups.get("", {}), *own, *filter(None, virtual)]
    # An agent with an empty Disallow of its own needs no permission of the group for all.
    if ALL in names and (not virtual or any(each is None or each for each in virtual)):
        found.append(groups.get(ALL, {}))
    return list(_joined(found))


def _groups(body: bytes) -> dict[str, _Prefixes]:
    """Return the prefixes of each agent that has a Disallow line; "" is in front of all groups."""
    groups: dict[str, _Prefixes] = {}
    for names, lines in groups_in(body):
        places = [text_of(value) for kind, value in lines if kind == DISALLOW]
        if places:
            prefixes = [place if place[0] in "/*" else f"/{place}" for place in places if place]
            for name in names or {""}:
                groups.setdefault(name, {}).update(dict.fromkeys(prefixes))
    return groups


def _joined(found: Iterable[_Prefixes]) -> _Prefixes:
    together: _Prefixes = {}
    for prefixes in found:
        together |= prefixes
    return together

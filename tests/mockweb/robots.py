"""The robots.txt of each host of a graph: the text to serve, and the rules for the audit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.mockweb.graph import Graph

_RULES = "User-agent: *\nDisallow: /private/\nAllow: /private/open/\n"
_OTHERS = "User-agent: badbot\nDisallow: /\n\n"
_NAMED = "User-agent: *\nDisallow: /\n\nUser-agent: krowlspider\nAllow: /private/open/\n"


@dataclass(frozen=True, slots=True)
class Robots:
    """One robots.txt: `disallow` and `allow` are path prefixes, of which the longest decides.

    The first `refusals` answers are 500. With `same_as`, it redirects to the one of that host.
    """

    status: int = 200
    text: str = ""
    disallow: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    crawl_delay: float = 0.0
    refusals: int = 0
    same_as: int | None = None


_PLAIN = Robots(text=_OTHERS + _RULES, disallow=("/private/",), allow=("/private/open/",))
_DELAYED = replace(_PLAIN, text=_RULES + "Crawl-delay: 1\n", crawl_delay=1.0)
_FLAKY = replace(_PLAIN, refusals=1)
_MISSING = Robots(status=404, text="no such page\n")
_BY_TURN = (
    _PLAIN,
    _MISSING,
    Robots(text="User-agent: *\nDisallow:\n"),
    replace(_PLAIN, text=_NAMED + "Disallow: /private/\n"),
    replace(_PLAIN, text="\ufeff" + (_RULES + "\n" + _OTHERS).replace("\n", "\r\n")),
)


def robots(graph: Graph, index: int) -> Robots:
    """Return the robots.txt of a host, without following its redirect."""
    if "robots" not in graph.features:
        return _MISSING
    if "robots_trouble" in graph.features and graph.hosts >= 3:
        if index == graph.hosts - 1:
            return Robots(status=302, same_as=0)
        if index == graph.hosts - 2:
            return _FLAKY
    if "crawl_delay" in graph.features and index % 20 == 5:
        return _DELAYED
    return _BY_TURN[index % len(_BY_TURN)]


def rules(graph: Graph, index: int) -> Robots:
    """Return the rules of a host: those of the redirect's target, if it redirects."""
    own = robots(graph, index)
    return own if own.same_as is None else robots(graph, own.same_as)


def allowed(graph: Graph, index: int, target: str) -> bool:
    """Return whether krowlspider may fetch the target (path and query) on the host."""
    if target == "/robots.txt":
        return True
    found = rules(graph, index)
    denied = max((len(prefix) for prefix in found.disallow if target.startswith(prefix)), default=0)
    opened = max((len(prefix) for prefix in found.allow if target.startswith(prefix)), default=0)
    return opened >= denied


def allowed_at(graph: Graph, authority: str, target: str) -> bool:
    """Like `allowed`, by the `host:port` of a log entry; True for a host not in the graph."""
    index = graph.index(authority.rpartition(":")[0])
    return index is None or allowed(graph, index, target)


def delay_at(graph: Graph, authority: str, least: float) -> float:
    """Return the delay of `host:port` in seconds: its Crawl-delay, at least `least`."""
    index = graph.index(authority.rpartition(":")[0])
    return least if index is None else max(least, rules(graph, index).crawl_delay)

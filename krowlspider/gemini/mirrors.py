"""Find mirrors and mazes of Gemini by the URLs of a server, and cap them.

Servers offer whole collections of others: git repositories, manual pages, RFCs, encyclopedias, and
proxies of the web. Others make pages without end: calendars, games, searches. Such a server has
more URLs than all that people have written for Gemini. Some of its pages are fetched, so that they
can be found; further links to it are dropped.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.urls.gemini import SCHEME

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.urls.scope import Traps

# URLs of one server that look like one of the kinds of mirrors, in a run.
MIRRORED_MAX = 100
# URLs of one server with the same path and different queries: answers of a program.
QUERIES_MAX = 500
# URLs of one folder of a server; folders that differ by numbers alone are one. The largest folder
# of a capsule that people have written had 525 pages.
FOLDER_MAX = 2_000
# Groups of URLs that are counted, about 200 bytes each; the one that was met longest ago is
# forgotten first.
GROUPS_MAX = 65_536
# Characters of a path that a group is named by.
_NAMED = 200

# The word that `Mirrors.refusal` adds to those of `Traps`.
MIRROR = "mirror"

_HEX = "[0-9a-f]"
_KINDS = re.compile(
    r"(?P<git>://git\.|/git/|\.git/|/git\.(?:sh|cgi)"
    rf"|/(?:blob|tree|commits?|blame|refs)/(?:{_HEX}{{7,40}}|main|master|HEAD|trunk)(?:[/.?]|$))"
    r"|(?P<rfc>/rfcs?(?:[-_]mirror)?(?:/|$)|/(?:rfc|bcp|std)[-_]?\d{1,5}(?:[./?]|$)|/ietf/)"
    r"|(?P<man>/man(?:pages?)?(?:/|$)|/man\d[a-z]?/)"
    r"|(?P<encyclopedia>://(?:[a-z-]+\.)?(?:wp|wikipedia|wiktionary)\.|/wikipedia[/?])"
    r"|(?P<proxy>[/?=](?:https?|gopher|gemini)(?::|%3a)(?:/|%2f)|/(?:gopher|https?)/|/proxy[/?]"
    r"|://(?:gemi|web)?prox[^/]*/|/(?:web|proxy)\.(?:sh|cgi)[/?])",
    re.IGNORECASE,
)
_NUMBERS = re.compile(rf"{_HEX}{{8,}}|\d+")


def kind_of(url: str) -> str | None:
    """Return of what a normalised gemini URL seems to be a mirror, in one word; None of nothing.

    The words are git, rfc, man, encyclopedia and proxy.
    """
    found = _KINDS.search(url)
    return None if found is None else found.lastgroup


class MirrorGroup(NamedTuple):
    """URLs of a server that are counted together, and how many are followed."""

    name: str
    limit: int


def group_of(url: str) -> MirrorGroup:
    """Return the group of a normalised gemini URL.

    It is that of its kind of mirror, else that of a program with queries, else that of a folder.
    """
    host, _, rest = url[len(SCHEME) :].partition("/")
    if (kind := kind_of(url)) is not None:
        return MirrorGroup(f"{host} {kind}", MIRRORED_MAX)
    path, mark, _ = rest.partition("?")
    folder = path if mark else path[: path.rfind("/") + 1]
    name = _NUMBERS.sub("0", folder[:_NAMED])
    return MirrorGroup(f"{host}/{name}{mark}", QUERIES_MAX if mark else FOLDER_MAX)


class Mirrors:
    """The rules of `Traps`, and caps of the groups of gemini URLs.

    Counts are those of a run. ``on_full`` is called with the name of each group that is full, when
    its first URL is refused.
    """

    def __init__(self, traps: Traps, on_full: Callable[[str], None], groups: int = GROUPS_MAX):
        self._traps = traps
        self._on_full = on_full
        self._groups_max = groups
        self._counts: OrderedDict[str, int] = OrderedDict()

    def refusal(self, url: str) -> str | None:
        """Return why a normalised URL must not be followed, as `Traps.refusal` does, or "mirror".

        A gemini URL that may be followed is counted, so ask once for each new URL.
        """
        reason = self._traps.refusal(url)
        if reason is not None or not url.startswith(SCHEME):
            return reason
        name, limit = group_of(url)
        count = self._counts.pop(name, 0)
        self._counts[name] = min(count + 1, limit + 1)
        if len(self._counts) > self._groups_max:
            self._counts.popitem(last=False)
        if count < limit:
            return None
        if count == limit:
            self._on_full(name)
        return MIRROR

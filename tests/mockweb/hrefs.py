"""The many ways to write one link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.mockweb.graph import Graph

Tag = Literal["a", "area", "iframe", "refresh", "nofollow", "comment", "script", "other"]

FOLLOWED: frozenset[Tag] = frozenset({"a", "area", "iframe", "refresh"})
"""The kinds of links that a crawler follows. It must ignore the others."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link: `href` as written, before HTML escapes, and `url`, to which it resolves.

    `url` is absolute and normalised, without fragment and tracking parameters.
    """

    url: str
    href: str
    tag: Tag = "a"


_ANYWHERE = ("absolute", "absolute", "shouting", "fragment", "tracked", "spaced")
_SAME_SCHEME = (*_ANYWHERE, "schemeless")
_SAME_HOST = (*_SAME_SCHEME, "rooted", "rooted", "relative", "relative", "dotted", "rooted_tracked")


def write(
    graph: Graph, rng: random.Random, home: int, index: int, target: str, *, based: bool
) -> Link:
    """Write a link from a page at the root of host `home` to `target` on host `index`.

    With `based`, the page has a `<base>` two folders deep, on its own host.
    """
    url = graph.url(index, target)
    same_scheme = graph.secure(home) == graph.secure(index)
    forms = _SAME_HOST if home == index else _SAME_SCHEME if same_scheme else _ANYWHERE
    form = rng.choice(forms)
    return Link(url, _FORMS[form](url, target, "../../" if based else ""))


def _shouting(url: str, _target: str, _up: str) -> str:
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    return f"{scheme.upper()}://{authority.upper()}/{path}"


def _tracked(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}utm_source=feed&utm_medium=mail"


_FORMS: dict[str, Callable[[str, str, str], str]] = {
    "absolute": lambda url, _target, _up: url,
    "schemeless": lambda url, _target, _up: url[url.index(":") + 1 :],
    "shouting": _shouting,
    "fragment": lambda url, _target, _up: f"{url}#part",
    "tracked": lambda url, _target, _up: f"{_tracked(url)}#part",
    "spaced": lambda url, _target, _up: f"  {url}\n ",
    "rooted": lambda _url, target, _up: target,
    "relative": lambda _url, target, up: f"{up or './'}{target[1:]}",
    "dotted": lambda _url, target, _up: f"/nowhere/..{target}",
    "rooted_tracked": lambda _url, target, _up: _tracked(target),
}

"""Find the RSL licences that a page names (RSL 1.0, sections 4.5 and 4.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from krowlspider.urls.canonical import normalise
from krowlspider.urls.page.headers import targets_of

if TYPE_CHECKING:
    from collections.abc import Iterable

LICENSE_TYPE = "application/rsl+xml"
_MARK = "rsl+xml"
# As some write it in a page.
_MARKS = (_MARK, _MARK.upper(), "RSL+xml")
# Licences of one page that count.
_MAX = 20


class Licences(NamedTuple):
    """The URLs of licences, and the text of those in the page itself."""

    urls: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


def licences_in(tree: Any, html: str, url: str) -> Licences:
    """Return the licences that a page names in its head, or has in a ``script`` element."""
    # Searched in the text first: few pages have them.
    if not any(mark in html for mark in _MARKS):
        return Licences()
    urls: list[str | None] = []
    texts: list[str] = []
    head = tree.head
    for link in head.get_elements_by_tag_name("link").values() if head is not None else ():
        relations = (link.getattr("rel") or "").lower().split()
        if "license" in relations and _is_licence(link.getattr("type")):
            urls.append(normalise(link.getattr("href") or "", url))
    for script in tree.document.get_elements_by_tag_name("script").values():
        node = script.first_child
        if node is not None and _is_licence(script.getattr("type")):
            texts.append(node.value or "")
    return Licences(tuple(filter(None, urls[:_MAX])), tuple(texts[:_MAX]))


def licences_of(headers: Iterable[tuple[str, str]], url: str) -> list[str]:
    """Return the URLs of the licences that the Link headers of a page name."""
    values = [value for name, value in headers if name == "link" and _MARK in value.lower()]
    targets = targets_of(values, "license", LICENSE_TYPE) if values else []
    return [each for target in targets[:_MAX] if (each := normalise(target, url))]


def _is_licence(media_type: str | None) -> bool:
    return (media_type or "").partition(";")[0].strip().lower() == LICENSE_TYPE

"""A web for crawls of the library, and the arguments that reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.mockweb import MockWeb
from tests.support.crawling import CONTACT, SETTINGS
from tests.support.crawls import ROBOTS, anchors, page

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider import Page

# As in `tests.support.crawling`. The contact is an argument, and the stats come by the library.
REACHING = {
    name: value for name, value in SETTINGS.items() if name not in {"KROWL_CONTACT", "STATS_CLASS"}
}
GIVEN: dict[str, Any] = {"contact": CONTACT, "settings": REACHING}
PAGES = 12


def small_web(pages: int = PAGES, body: str = "") -> MockWeb:
    """Return a web whose root links to all other pages of its host: ``pages`` in all."""
    links = anchors(*(f"/{number}" for number in range(1, pages)))
    others = (page(f"/{number}", f"<title>{number}</title>{body}") for number in range(1, pages))
    return MockWeb(spec=[ROBOTS, page("/", links), *others])


def urls_of(web: MockWeb, host: str = "a.test", pages: int = PAGES) -> list[str]:
    """Return the URLs of a host of `small_web`, sorted."""
    return sorted(web.url(host, f"/{number or ''}") for number in range(pages))


def found(pages: Iterable[Page]) -> list[str]:
    return sorted(page.url for page in pages)


def asked(web: MockWeb) -> list[str]:
    """Return the URLs of the pages that were asked for, sorted."""
    return sorted(entry.url for entry in web.log() if entry.path != "/robots.txt")

"""Find the pictures of a page that scripts load when they come into sight."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from krowlspider.urls.page.requisites.markup import attributes_of, candidates_in
from krowlspider.urls.page.requisites.requisite import IMAGE

if TYPE_CHECKING:
    from krowlspider.urls.page.requisites.found import References

# Where plugins for lazy loading keep the URL of a picture: lazysizes, lozad, jQuery Lazy Load,
# Slick, Flickity, Swiper, unveil, echo.js; WP Rocket, Jetpack, Avada; Cloudflare, Zhihu. Netscape
# had ``lowsrc``.
_LAZY = frozenset(
    {
        *("data-src", "data-original", "data-original-src", "data-lazy", "data-lazy-src"),
        *("data-lazyload", "data-lazyload-src", "data-lazy-original", "data-ll-src"),
        *("data-flickity-lazyload", "data-flickity-lazyload-src", "data-src-retina", "data-echo"),
        *("data-orig-src", "data-defer-src", "data-hi-res-src", "data-image-src", "data-img-src"),
        *("data-cfsrc", "data-actualsrc", "data-lowsrc", "data-poster", "lowsrc"),
    }
)
_LAZY_SETS = frozenset(
    {
        *("data-srcset", "data-lazy-srcset", "data-original-set", "data-lazyload-srcset"),
        *("data-flickity-lazyload-srcset", "data-orig-srcset", "data-cfsrcset"),
    }
)
# A value that is a URL, and no number, word or colour.
_PLACE = re.compile(
    r"(?![{\[])[^\n]*?(?:/|\.(?:png|jpe?g|gif|webp|avif|svg|bmp)(?:[?#]|\Z))", re.IGNORECASE
)
_CSS = re.compile(r"(?:url|image-set)\(", re.IGNORECASE)


def add_lazy(found: References, pictures: list[str], backgrounds: list[str]) -> None:
    """Add what ``img`` tags, given as their sources, and lazy backgrounds name."""
    tags = [tag for tag in pictures if "data-" in (lower := tag.lower()) or "lowsrc" in lower]
    for tag in found.first(tags):
        for name, value in attributes_of(tag).items():
            if name in _LAZY_SETS:
                found.add(IMAGE, candidates_in(value))
            elif name == "data-src" or (name in _LAZY and _PLACE.match(value)):
                found.add(IMAGE, (value,))
    for value in found.first(backgrounds):
        if _CSS.search(value):
            found.add_css(value)
        elif _PLACE.match(value):
            found.add(IMAGE, (value,))

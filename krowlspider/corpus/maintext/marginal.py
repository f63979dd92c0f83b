"""Pure: which elements are no part of the text: by names, roles, styles, and words in classes."""

from __future__ import annotations

import re
from functools import lru_cache

_NAMES = "aside, button, dialog, figcaption, footer, nav"
# Selectors, by what a page has in its HTML if one may fit: each costs a look at all elements.
_IF_FOUND = (
    ("hidden", "[hidden], [aria-hidden='true']"),
    ("role=", "[role='navigation'], [role='dialog'], [role='complementary']"),
    ("display:", "[style*='display:none'], [style*='display: none']"),
)
_WORDS = (
    *("advert", "author", "breadcrumb", "byline", "caption", "cookie", "headerlink", "menu"),
    *("navigation", "newsletter", "pagination", "promo", "recommend", "related", "screen-reader"),
    *("share", "sidebar", "social", "sr-only", "subscribe", "visually-hidden"),
)
_OF_COMMENTS = ("comment", "disqus")
# Without a literal at its beginning, the pattern would be tried at each character.
_CLASSES = re.compile(r"""class=["']?([^"'>]++)""")
_MARGINAL = re.compile("|".join((*_WORDS, *_OF_COMMENTS)))


def marginal(html: str, *, comments: bool) -> str:
    """Return a selector of such elements; those of ``comments`` too."""
    found = [_NAMES, *(selector for sign, selector in _IF_FOUND if sign in html)]
    words = {word for classes in set(_CLASSES.findall(html)) for word in _words_in(classes)}
    if not comments:
        words.difference_update(_OF_COMMENTS)
    selectors = [f"[class*='{word}']" for word in sorted(words)]
    if comments and "omment" in html:
        selectors.append("[id*='comment' i]")
    return ", ".join([*found, *selectors])


# The pages of a site have the same classes.
@lru_cache(maxsize=8192)
def _words_in(classes: str) -> frozenset[str]:
    return frozenset(_MARGINAL.findall(classes[:1000]))

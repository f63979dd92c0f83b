"""Pure: where in the tree of a page the text of its paragraphs is.

Each access to a node makes a new object, which takes microseconds. So each node above a paragraph
is asked for its parent, its name and its classes once. Which elements are no part of the text is
told by names, roles, styles, and words in classes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

# Characters of a paragraph, and of text between line breaks, that count.
_PARAGRAPH, _BROKEN = 25, 100
# Paragraphs and line breaks that are looked at, at most.
_BLOCKS_MAX, _BREAKS_MAX = 40, 200
_BLOCKS = "p, pre"
_BREAKS = ":not(p):not(pre):not(li):not(td):not(a):not(span) > br"
_INLINE = frozenset({"#text", "a", "b", "em", "i", "span", "strong"})
# Marks of paragraphs in an element beside the text, in comments, and in one with a telling class.
ASIDE, COMMENT, CLASS = 1, 2, 4
_ASIDES = frozenset({"a", "aside", "figure", "footer", "form", "nav"})
_COMMENTS = re.compile("comment|disqus", re.IGNORECASE)
WORDS = (
    *("related", "recommend", "sidebar", "newsletter", "promo", "share", "social", "subscribe"),
    *("sponsor", "advert", "cookie", "consent", "footer", "popup", "modal", "teaser"),
)
_CLASSES = re.compile("|".join(WORDS), re.IGNORECASE)

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
_CLASS_VALUES = re.compile(r"""class=["']?([^"'>]++)""")
_MARGINAL = re.compile("|".join((*_WORDS, *_OF_COMMENTS)))


class Paragraphs:
    """The paragraphs of a page, in characters, and the elements above them.

    ``order`` has each element behind its parent.
    """

    def __init__(self, document: Any, body: Any, html: str):
        self.sizes = _sizes(document, has_breaks="<br" in html or "<BR" in html)
        self.parents: dict[Any, Any] = {}
        self.children: dict[Any, list[Any]] = {}
        self.order: list[Any] = []
        self._marks: dict[Any, int] = {body: 0}
        for block in self.sizes:
            self._climb(block)

    def _climb(self, block: Any) -> None:
        path, node = [], block
        while node not in self._marks:
            path.append(node)
            self._marks[node] = 0
            parent = node.parent
            if parent is None:
                break
            self.parents[node] = parent
            self.children.setdefault(parent, []).append(node)
            node = parent
        for each in reversed(path):
            above = self.parents.get(each)
            self._marks[each] = _marks(each) | (0 if above is None else self._marks[above])
        self.order += reversed(path)

    def without(self, marks: int) -> dict[Any, int]:
        """Return the characters of paragraphs with none of these marks."""
        return {node: size for node, size in self.sizes.items() if not self._marks[node] & marks}

    def by_element(self, marks: int) -> dict[Any, int]:
        """Return the characters in each element, without paragraphs with one of these marks."""
        found = self.without(marks)
        for node in reversed(self.order):
            if (size := found.get(node)) and (parent := self.parents.get(node)) is not None:
                found[parent] = found.get(parent, 0) + size
        return found


def _sizes(document: Any, *, has_breaks: bool) -> dict[Any, int]:
    """Return the characters of paragraphs; of many, only those of some of them."""
    found: dict[Any, int] = {}
    blocks = document.query_selector_all(_BLOCKS)
    step = -(-len(blocks) // _BLOCKS_MAX) or 1
    # A slice makes objects of these blocks alone.
    for block in blocks[::step]:
        size = len(block.text or "")
        if size >= _PARAGRAPH:
            found[block] = size * step
    breaks = document.query_selector_all(_BREAKS) if has_breaks else ()
    for parent in {each.parent for each in breaks[:_BREAKS_MAX]} - found.keys():
        texts = (each.text for each in parent.child_nodes.values() if each.tag in _INLINE)
        size = sum(len(text.strip()) for text in texts if text)
        if size >= _BROKEN:
            found[parent] = size
    return found


def _marks(node: Any) -> int:
    name, classes = node.id, node.class_name
    marks = _of_names(f"{name} {classes}") if name or classes else 0
    return marks | ASIDE if node.tag in _ASIDES else marks


@lru_cache(maxsize=4096)
def _of_names(names: str) -> int:
    return COMMENT * bool(_COMMENTS.search(names)) | CLASS * bool(_CLASSES.search(names))


def marginal(html: str, *, comments: bool) -> str:
    """Return a selector of such elements; those of ``comments`` too."""
    found = [_NAMES, *(selector for sign, selector in _IF_FOUND if sign in html)]
    words = {word for classes in set(_CLASS_VALUES.findall(html)) for word in _words_in(classes)}
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

"""Leave only the main part of a page in its tree, by where the text of its paragraphs is. Pure.

Pure: where in the tree of a page the text of its paragraphs is. Each access to a node makes a new
object, which takes microseconds. So each node above a paragraph is asked for its parent, its name
and its classes once. Which elements are no part of the text is told by names, roles, styles, and
words in classes.

Leave only the main part of a page in its tree, without lines that say nothing of its matter.
resiliparse judges each element by its name and classes alone. It drops a whole article in an
element called "newsletter", and keeps what stands beside an article without a telling name. Here
the text of paragraphs is added up over the tree, as Readability does: the main part is the smallest
element that holds most of it. Pure.
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


# Notices around an article, as whole lines, in the languages of large sites.
_NOTICES = """
advert/advertisement/advertisements/sponsored/sponsored content/continue reading
continue reading below/story continues below/story continues below advertisement/read more
leave a comment/leave a reply/post a comment/add a comment/add a reply/no comments
recommended for you/related articles/related content/related news/related posts
related stories/related topics/share this/share this article/share this page/share this post
share this story/view all/you may also like/you might also like
anzeige/werbung/mehr zum thema/weiterlesen/publicité/lire aussi/publicidad/leer más
publicidade/leia mais/leia também/pubblicità/lees meer/reklama/iklan/реклама/читайте также
广告/廣告/広告/광고
"""
_MARKS = ("", ":", "...", "…", " »")
# A set finds in nanoseconds which lines are notices; a pattern would be tried at each line.
_LINES = frozenset(
    f"{bullet}{written}{mark}"
    for notice in _NOTICES.strip().replace("\n", "/").split("/")
    for written in (notice, notice.capitalize(), notice.title(), notice.upper())
    for bullet in ("", "  • ")
    for mark in _MARKS
)
# The same with a number or a name in it, and what a text has that may have one.
_COUNTED = re.compile(
    r"(?: {0,3}[•*] )?(?:(?:Image|Photo|Slide) \d+ (?:of|/) \d+|\d+ [Cc]omments?"
    r"|View all \(\d+\)|(?:©|Copyright ©|Filed under\b).{0,150})"
)
_SIGNS = ("©", "Image ", "Photo ", "Slide ", " Comments\n", " comments\n", "View all (", "Filed")
# A line of spaces that are no ASCII.
_BLANK = re.compile(r"^(?:[^\S\n]|[\u200b\u200e\u200f\u2060\ufeff])++$", re.MULTILINE)
_ODD_SPACES = "\xa0\u200b\u200e\u200f\u2060\ufeff"
_MANY = re.compile(r"\n{3,}")

# Of paths, and of hosts such as forum.example.org and forums.example.org.
_URL = re.compile(
    r"//(?:[^/]*[.-])?(?:answers|community|discuss|forums?)[.-]"
    r"|/(?:[^/]*forum[^/]*|[^/]*boards?|comments|discussions?|questions?|threads?|topics?)/[^/]"
    r"|/(?:showthread|viewtopic)\b|/t/[^/]+/\d",
    re.IGNORECASE,
)
# Of JSON-LD and of microdata.
_TYPES = ("DiscussionForumPosting", "QAPage")


def without_noise(text: str) -> str:
    """Return a text without notices, and with nothing in lines of spaces."""
    lines = text.split("\n")
    notices = {*_LINES.intersection(lines)}
    if any(sign in text for sign in _SIGNS):
        notices.update(filter(_COUNTED.fullmatch, lines))
    found = text
    if notices:
        found = "\n".join(line for line in lines if line not in notices)
    if any(space in found for space in _ODD_SPACES):
        found = _BLANK.sub("", found)
    return text if found is text else _MANY.sub("\n\n", found).strip("\n")


def is_forum(url: str, html: str) -> bool:
    """Return whether a page is a discussion, by its URL or by the type that it names."""
    return bool(_URL.search(url)) or any(each in html for each in _TYPES)


# Characters of the paragraphs of a main part. Pages with fewer have their text elsewhere.
LEAST = 250
# Paragraphs with a mark do not count if this share is left. Comments may be longer than an article.
_LEFT = {ASIDE: 0.25, COMMENT: 0.1, CLASS: 0.25}
# The share of the visible text that is in paragraphs, or else the text is in other elements.
_VISIBLE = 0.2
# An element with the heading of the page and this share of the paragraphs holds the main part.
_HEADED = 0.2
# A heading has this share of its words in the title of the page.
_TITLED = 0.7
# An element with this share of its parent is preferred to it, unless the parent has paragraphs of
# its own.
_DOMINANT, _OWN = 0.7, 0.02
# An element with this share is removed by no word in its class, and loses its class.
_MAJOR = 0.1
_SCRIPTS = "body script, body style, body noscript"
# A link that is a paragraph by itself leads to another page.
_LINKS = "p > a:only-child, p > strong:only-child > a:only-child"
_LINK = 0.8
_WORD = re.compile(r"\w+")


def keep_main_part(tree: Any, html: str, *, is_forum: bool) -> bool:
    """Leave only the main part of a page in its tree; return whether it has one.

    The comments of a forum are in its main part. Headings that the title has are removed anyway.
    """
    document, body, title = tree.document, tree.body, tree.title or ""
    if body is None:
        return False
    headings = document.query_selector_all("h1").values()
    paragraphs = Paragraphs(document, body, html)
    sizes = paragraphs.by_element(_ignored(paragraphs, is_forum=is_forum))
    total = sizes.get(body, 0)
    has_part = total >= LEAST and _is_enough(total, paragraphs, document, body, html)
    start = None if is_forum or not has_part else _headed(headings, title, sizes, total)
    others = _without_title(headings, title)
    if not has_part:
        return False
    part = _smallest(paragraphs, sizes, start or body, total)
    if part != body:
        _isolate(body, part, others)
    selector = marginal(html, comments=not is_forum)
    if not is_forum:
        selector += f", {_LINKS}"
    _remove(part, selector, paragraphs.by_element(0), total)
    return True


def remove_titled(tree: Any) -> None:
    """Remove the headings that the title has."""
    _without_title(tree.document.query_selector_all("h1").values(), tree.title or "")


def _without_title(headings: list[Any], title: str) -> list[Any]:
    """Remove the headings that the title has; return the others."""
    return [heading for heading in headings if not _removed_from(heading, title)]


def _removed_from(heading: Any, title: str) -> bool:
    """Remove a heading whose words are in the title one after another; return whether it was."""
    words = _words(heading.text)
    if not words or f" {words} " not in f" {_words(title)} ":
        return False
    heading.remove()
    return True


def _words(text: str | None) -> str:
    return " ".join(_WORD.findall((text or "").lower()))


def _ignored(paragraphs: Paragraphs, *, is_forum: bool) -> int:
    """Return the marks of paragraphs that do not count."""
    ignored, left = 0, sum(paragraphs.sizes.values())
    for mark, least in _LEFT.items():
        others = sum(paragraphs.without(ignored | mark).values())
        if not (is_forum and mark == COMMENT) and others >= max(LEAST, least * left):
            ignored, left = ignored | mark, others
    return ignored


def _is_enough(total: int, paragraphs: Paragraphs, document: Any, body: Any, html: str) -> bool:
    """Return whether enough of the visible text of a page is in the ``total`` of its paragraphs.

    The text of paragraphs that do not count is no part of it.
    """
    most = total / _VISIBLE + sum(paragraphs.sizes.values()) - total
    # The visible text is not longer than the HTML.
    if len(html) <= most:
        return True
    scripts = document.query_selector_all(_SCRIPTS).values()
    text, hidden = body.text or "", [each.text or "" for each in scripts]
    # Spaces count only if they decide: to leave them out takes longer than the rest.
    return len(text) - sum(map(len, hidden)) <= most or (
        _chars(text) - sum(map(_chars, hidden)) <= most
    )


def _chars(text: str) -> int:
    return sum(map(len, text.split()))


def _headed(headings: list[Any], title: str, sizes: dict[Any, int], total: int) -> Any:
    """Return the smallest element with the heading and enough text; None if there is none."""
    known = set(_WORD.findall(title.lower()))
    for heading in headings:
        words = set(_WORD.findall((heading.text or "").lower()))
        if words and len(words & known) >= _TITLED * len(words):
            node = heading
            while node is not None and sizes.get(node, 0) < max(LEAST, _HEADED * total):
                node = node.parent
            return node
    return None


def _smallest(paragraphs: Paragraphs, sizes: dict[Any, int], node: Any, total: int) -> Any:
    """Return the smallest element in ``node`` that holds most of its paragraphs."""
    while children := [each for each in paragraphs.children.get(node, ()) if each in sizes]:
        best = max(children, key=sizes.__getitem__)
        own = [each for each in children if each in paragraphs.sizes and each.tag in {"p", "pre"}]
        if sizes[best] < _DOMINANT * sizes[node] or sum(sizes[each] for each in own) > _OWN * total:
            break
        node = best
    return node


def _remove(part: Any, selector: str, sizes: dict[Any, int], total: int) -> None:
    """Remove elements of a part unless they hold much of the text, and paragraphs of one link."""
    for node in part.query_selector_all(selector).values():
        if (parent := node.parent) is None:
            continue
        if node.tag == "a" and (paragraph := _paragraph(parent)) is not None:
            if len((node.text or "").strip()) >= _LINK * len((paragraph.text or "").strip()):
                paragraph.remove()
        elif sizes.get(node, 0) <= _MAJOR * total:
            node.remove()


def _paragraph(parent: Any) -> Any:
    """Return the paragraph of a link with this parent; None if it is in none."""
    if parent.tag == "strong" and parent.parent is not None:
        parent = parent.parent
    return parent if parent.tag == "p" else None


def _isolate(body: Any, part: Any, headings: list[Any]) -> None:
    """Leave only ``part`` in the body, behind the heading of the page if that is elsewhere."""
    kept = headings if len(headings) == 1 and part.query_selector("h1") is None else []
    for node in (*kept, part):
        node.remove()
    body.inner_html = ""
    for node in (*kept, part):
        body.append_child(node)

"""Pure: lines of a page that say nothing of its matter; whether its answers are matter too."""

from __future__ import annotations

import re

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

"""Pure: whether a page is a discussion, of which the answers are the main text too."""

from __future__ import annotations

import re

# Of paths, and of hosts such as forum.example.org and forums.example.org.
_URL = re.compile(
    r"//(?:[^/]*[.-])?(?:answers|community|discuss|forums?)[.-]"
    r"|/(?:[^/]*forum[^/]*|[^/]*boards?|comments|discussions?|questions?|threads?|topics?)/[^/]"
    r"|/(?:showthread|viewtopic)\b|/t/[^/]+/\d",
    re.IGNORECASE,
)
# Of JSON-LD and of microdata.
_TYPES = ("DiscussionForumPosting", "QAPage")


def is_forum(url: str, html: str) -> bool:
    """Return whether a page is a discussion, by its URL or by the type that it names."""
    return bool(_URL.search(url)) or any(each in html for each in _TYPES)

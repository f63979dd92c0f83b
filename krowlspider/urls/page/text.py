"""Read the title and the text of a page of HTML, for a search in an archive."""

from __future__ import annotations

from krowlspider.internals.frostwork import Plan
from krowlspider.urls.page.bound import bounded
from krowlspider.urls.page.links import MAX_TITLE

# Characters of a page's text that are kept. A viewer loads the texts of all pages to search them;
# that of ReplayWeb.page reads the first megabyte of the list.
MAX_TEXT = 5_000

# Elements whose text a reader does not see. Those of `bounded` that keep their end tags only: of
# others the end, and with it the text behind, is not known in very large pages.
_UNSEEN = "title, script, style, iframe, noframes, noembed"
_PLAN = Plan(["title::text", f"*:not({_UNSEEN})::text"], [])


def read_text(body: bytes, charset: str | None) -> tuple[str, str]:
    """Return title and text of HTML, whitespace collapsed; no bytes raise an error.

    ``charset`` is the one of the HTTP header, as for `read_page`.
    """
    titles, texts = _PLAN.extract(bounded(body), charset)
    return _collapsed(titles[:1], MAX_TITLE), _collapsed(texts, MAX_TEXT)


def _collapsed(texts: list[str], length: int) -> str:
    return " ".join(" ".join(texts).split())[:length].rstrip()

"""HEAD before GET: which URLs are asked by it first, and which of its answers end a page.

Only a crawl with KROWL_HEAD or with policies imports this.
"""

from __future__ import annotations

from mimetypes import MimeTypes
from typing import TYPE_CHECKING

from krowlspider.frontier.entry import UNMARKED
from krowlspider.urls.gemini import is_gemini

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider.frontier.entry import Entry
    from krowlspider.job.sites import Sites

# Extensions of URLs that answer with HTML nearly always.
_OF_PAGES = frozenset(
    {
        *("asp", "aspx", "cfm", "cgi", "do", "htm", "html", "jsf", "jsp", "jspx"),
        *("php", "php3", "php5", "phtml", "shtml", "xht", "xhtml"),
    }
)
# For types that have no extension in Python's own table: an extension that stands for all of them.
_OF_KIND = {"audio": "mp3", "font": "woff", "image": "jpg", "video": "mp4"}

# Method Not Allowed, Not Implemented (RFC 9110, sections 15.5.6 and 15.6.2). Hosts that are
# remembered for it.
_NO_HEAD = (405, 501)
_HOSTS = 10_000


class HeadFirst:
    """Decides about requests by HEAD. ``is_usual`` is KROWL_HEAD, which holds where no sheet of
    ``sites`` says otherwise. ``skipped`` are the extensions of KROWL_SKIP_EXTENSIONS."""

    def __init__(self, *, is_usual: bool, skipped: Iterable[str], sites: Sites | None):
        self._is_usual = is_usual
        self._skipped = {each.strip().lower().lstrip(".") for each in skipped}
        self._sites = sites
        # Without the tables of the machine, so that each machine decides alike.
        self._types = MimeTypes()
        # Hosts whose server knows no HEAD, the oldest first.
        self._without: dict[str, None] = {}

    def asks(self, entry: Entry, host: str) -> bool:
        """Return whether a page of a host is asked by HEAD before GET.

        It is no seed, was not asked so yet, and its URL does not show that it is HTML. A host that
        has said that it knows no HEAD is not asked again.
        """
        policy = None if self._sites is None else self._sites.of(entry.url, host)
        is_asked = self._is_usual if policy is None or policy.head is None else policy.head
        is_new = not entry.request or entry.request == UNMARKED
        # Gemini has no HEAD.
        is_known = entry.depth == 0 or shows_html(entry.url) or is_gemini(entry.url)
        return is_asked and is_new and not is_known and host not in self._without

    def refuses(self, host: str, status: int, media_type: bytes | None) -> bool:
        """Return whether the answer of a host to HEAD shows a file of a type that
        KROWL_SKIP_EXTENSIONS names by an extension. Any other answer is followed by GET."""
        if status in _NO_HEAD:
            if len(self._without) >= _HOSTS:
                del self._without[next(iter(self._without))]
            self._without[host] = None
        if not 200 <= status < 300 or media_type is None:
            return False
        essence = media_type.decode("latin-1").partition(";")[0].strip().lower()
        extensions = {
            each.lstrip(".") for each in self._types.guess_all_extensions(essence, strict=False)
        }
        extensions.add(_OF_KIND.get(essence.partition("/")[0], ""))
        return not self._skipped.isdisjoint(extensions)


def shows_html(url: str) -> bool:
    """Return whether a normalised URL ends in a slash or in an extension of HTML pages."""
    last = url.partition("?")[0].rpartition("/")[2]
    return not last or (last.rpartition(".")[2].lower() in _OF_PAGES and "." in last)

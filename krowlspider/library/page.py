"""A page as the program gets it."""

from __future__ import annotations

# msgspec reads the annotations as the program runs.
from datetime import datetime  # noqa: TC003
from functools import cached_property

from msgspec import Struct

from krowlspider.urls.encoding import codec_for, decode, encoding_of


class Record(Struct, frozen=True):
    """The place of a response in the archive: name of its WARC file, offset in bytes, and
    WARC-Record-ID."""

    file: str
    offset: int
    id: str


class Page(Struct, frozen=True, kw_only=True, dict=True, tag="page"):
    """A page that was fetched, whatever its status is.

    - ``headers``: by their names in lower case; values of a repeated name are joined by ", ".
    - ``body``: without content codings.
    - ``media_type``, ``charset``: as browsers compute them (WHATWG MIME Sniffing); the charset is
      None if no header names one.
    - ``fetched``: when its links were read, in UTC.
    - ``depth``: links from a seed.
    - ``links``: normalised URLs in document order, without repeats and without those that the page
      asks not to follow.
    - ``redirected_from``: URLs whose redirects led here, the first one first.
    - ``seed``: the seed that led here; None without rows of pages (KROWL_PAGES).
    - ``tag``: the tag in the words of the seed.
    - ``record``: None if the response was not archived.
    - ``truncated``: the connection ended before the whole body had come.
    """

    url: str
    status: int
    headers: dict[str, str]
    body: bytes
    media_type: str
    charset: str | None
    fetched: datetime
    depth: int
    title: str
    lang: str
    links: list[str]
    canonical: str | None
    noindex: bool
    redirected_from: list[str]
    seed: str | None
    tag: str | None
    record: Record | None
    truncated: bool

    @cached_property
    def text(self) -> str:
        """The body as text, by its charset, or by what the document itself declares."""
        return decode(self.body, codec_for(encoding_of(self.body, self.charset)))

    def __repr__(self) -> str:
        return f"<Page {self.status} {self.url} {len(self.body):,} bytes>"

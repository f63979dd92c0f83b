"""The hosts that a record of a WARC file links to. No bytes raise an error.

Links are those of Common Crawl's graph (`ExtractHostLinksJob` in commoncrawl/cc-pyspark):
references of HTML to pages and to what they embed, the headers Link and Content-Location, the
targets of redirects, and the sitemaps of a robots.txt. rel=nofollow makes no difference. Each host
that answered is a vertex, whatever the answer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.archive import gemini
from krowlspider.archive.payload import body_of, head_bytes, header, status_of, type_of
from krowlspider.fetch.http.decode import decoded
from krowlspider.gemini import gemtext
from krowlspider.graph.hosts import host_in
from krowlspider.internals.frostwork import Plan
from krowlspider.urls.encoding import HTML, codec_for, decode, encoding_of
from krowlspider.urls.page.headers import bounded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fastwarc.warc import WarcRecord

# Bytes of a stored response and of a decoded body; of larger ones only the head counts.
BLOCK_MAX = 16 * 1024 * 1024
# References of a page that lead to other hosts; what else a page names does not count.
REFERENCES_MAX = 2_000
_HEAD_MAX = 64 * 1024
_PLAN = Plan(
    [
        "base[href]::attr(href)",
        "meta[content]::attr(content)",
        "[href]::attr(href)",
        "[src]::attr(src)",
        "form[action]::attr(action)",
        "[formaction]::attr(formaction)",
        "[cite]::attr(cite)",
        "[poster]::attr(poster)",
        "[background]::attr(background)",
        "object[data]::attr(data)",
    ],
    [],
)
_REDIRECTS = frozenset({"301", "302", "303", "307", "308"})
_HEADER_LINK = re.compile(r"<([^>]*)>")
_SITEMAP = re.compile(rb"^[ \t]*Sitemap:[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)


class Linked(NamedTuple):
    """A host that answered, and the hosts that its answer links to, as vertices."""

    source: str
    targets: set[str]


def linked_by(record: WarcRecord) -> Linked | None:
    """Return the links of a response; None if it is of no host of the graph."""
    url = (record.headers.get("WARC-Target-URI") or "").strip("<>")
    source = host_in(url)
    if source is None:
        return None
    kind = record.headers.get("Content-Type") or ""
    is_large = record.content_length > BLOCK_MAX
    block = record.reader.read(_HEAD_MAX if is_large else record.content_length)
    if gemini.is_gemini(kind):
        references = _of_gemini(url, b"" if is_large else block)
    elif kind.startswith("application/http"):
        references = _of_http(url, block, is_large=is_large)
    else:
        references = []
    scheme = url.partition(":")[0].lower() + ":"
    return Linked(source, _hosts(references, scheme, source))


def _hosts(references: Iterable[str], scheme: str, source: str) -> set[str]:
    """Return the hosts of the first REFERENCES_MAX references to others than ``source``."""
    found: set[str] = set()
    left = REFERENCES_MAX
    for reference in references:
        host = host_in(reference, scheme)
        if host is not None and host != source:
            found.add(host)
            left -= 1
            if not left:
                break
    return found


def _of_http(url: str, block: bytes, *, is_large: bool) -> list[str]:
    head = head_bytes(block)
    if not head:
        return []
    found = [header(head, "Content-Location")]
    found += _HEADER_LINK.findall(header(head, "Link"))
    status = status_of(head)
    if status in _REDIRECTS:
        return [*found, header(head, "Location")]
    if status != "200" or is_large:
        return found
    try:
        body = body_of(block, lambda body, codings: decoded(body, codings, BLOCK_MAX))
    except ValueError:
        return found
    if url.partition("?")[0].endswith("/robots.txt") and url.count("/") == 3:
        return [*found, *(each.decode("latin-1") for each in _SITEMAP.findall(body))]
    media = type_of(head, body)
    return [*found, *_of_html(body, media.charset)] if media.essence in HTML else found


def _of_html(body: bytes, charset: str | None) -> list[str]:
    [bases, metas, *lists], _ = _PLAN.extract_grouped(bounded(body), encoding_of(body, charset))
    found = [reference for each in lists for reference in each]
    if bases and all(host_in(each) is not None for each in found):
        # Without a relative reference, nothing leads to the host of the base.
        found = [each for each in found if each not in bases]
    return found + metas


def _of_gemini(url: str, block: bytes) -> list[str]:
    message = gemini.read(block)
    if message.status[:1] == "3":
        return [message.meta]
    essence, charset = message.type
    if essence != gemini.GEMTEXT:
        return []
    text = decode(message.payload, codec_for(encoding_of(message.payload, charset)))
    return [link.url_reference for link in gemtext.read(text, url).links]

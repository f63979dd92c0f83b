"""Bound the time of one scan of HTML to 0.25 s, for any bytes.

For an end tag that closes nothing, the scanner walks its whole stack of open elements. So many
``<div>`` and then as many ``</span>`` take quadratic time. So do ``<frameset>`` and then
``<body>``, and the name of a tag that does not end. All else takes linear time.
"""

from __future__ import annotations

import re

# Bytes of HTML that are read; entities are the slowest to scan.
_BYTES_MAX = 4 * 1024 * 1024
# Tags that are read.
_TAGS_MAX = 100_000
# A page with no more tags is scanned as it is: n start tags and n end tags walk at most n * n
# elements.
_TAGS_SAFE = 12_000
_WALK_MAX = (_TAGS_SAFE // 2) ** 2
# A page with no more bytes cannot exceed _WALK_MAX: "<a>" has 3 bytes and "</b>" 4, so b bytes walk
# at most b * b / 48 elements.
_BYTES_SAFE = 41_500
# Counting takes a nanosecond a byte, so the start of a page is counted only if it matters: it has
# at most a third as many tags as bytes. Most pages that are counted are short, and then most of the
# page is the start.
_START, _SHORT_START = 24_000, 33_000
_SHORT = 60_000

# The scanner reads the name of each tag in the first bytes, up to its end, to find the encoding.
_PRESCAN = 1024
_NAME_MAX = 64 * 1024
_NAME_END = re.compile(rb"[ \t\n\r\f>/]")
_NAME = re.compile(rb"<[A-Za-z][^ \t\n\r\f>/]*\Z")

# All end tags except those that end raw text. They can be removed, as no selector of the reading
# plan depends on the parent of an element.
_NEEDLESS_END = re.compile(
    rb"</(?=[a-z])(?!(?:script|style|title|textarea|xmp|iframe|noembed|noframes)\b)", re.IGNORECASE
)
_FRAMESET = re.compile(rb"<(?=frameset[\s/>])", re.IGNORECASE)
_BODY = re.compile(rb"<(?=body[\s/>])", re.IGNORECASE)
_NUL_IN_NAME = re.compile(rb"<[^>\s\0]{0,8}\0")
# Any bytes that may begin an end tag, in any encoding: in UTF-16, NUL follows every "<".
_MAYBE_END = re.compile(rb"<(?![A-Za-z!?])")


def bounded(body: bytes) -> bytes:
    """Return ``body``, or for a very large one a copy that is cut or lacks its needless end tags.

    The result has the links of ``body`` up to the cut, but for "</" and a letter in an attribute.
    """
    if len(body) <= _BYTES_SAFE:
        return body
    body = body[:_BYTES_MAX]
    after = _PRESCAN + _NAME_MAX
    if not _NAME_END.search(body, _PRESCAN, after) and _NAME.search(body, 0, _PRESCAN):
        body = body[:after]
    start = _SHORT_START if len(body) <= _SHORT else _START
    tags = body.count(b"<", start)
    if tags + start // 3 <= _TAGS_SAFE:
        return body
    tags += body.count(b"<", 0, start)
    if tags <= _TAGS_SAFE:
        return body
    if tags > _TAGS_MAX:
        body = _first_tags(body, _TAGS_MAX)
    if _NUL_IN_NAME.search(body):
        # The scanner leaves NUL out, so it may hide such tags.
        return _first_tags(body, _TAGS_SAFE)
    body = _FRAMESET.sub(b"<!", _NEEDLESS_END.sub(b"<!", body))
    if first := _BODY.search(body):
        body = body[: first.end()] + _BODY.sub(b"<!", body[first.end() :])
    if len(_MAYBE_END.findall(body)) * min(tags, _TAGS_MAX) <= _WALK_MAX:
        return body
    return _first_tags(body, _TAGS_SAFE)


def _first_tags(body: bytes, count: int) -> bytes:
    return b"<".join(body.split(b"<", count + 1)[: count + 1])

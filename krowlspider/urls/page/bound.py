"""Bound the time of one scan of HTML to 0.25 s, for any bytes.

For an end tag that closes nothing, the scanner walks its whole stack of open elements. So many
``<div>`` and then as many ``</span>`` take quadratic time. All else takes linear time.
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

# All end tags except those that end raw text. They can be removed, as no selector of the reading
# plan depends on the parent of an element.
_NEEDLESS_END = re.compile(
    rb"</(?=[a-z])(?!(?:script|style|title|textarea|xmp|iframe|noembed|noframes)\b)", re.IGNORECASE
)
# Any bytes that may begin an end tag, in any encoding: in UTF-16, NUL follows every "<".
_MAYBE_END = re.compile(rb"<(?![A-Za-z!?])")


def bounded(body: bytes) -> bytes:
    """Return ``body``, or for a very large one a copy that is cut or lacks its needless end tags.

    The result has the links of ``body`` up to the cut, but for "</" and a letter in an attribute.
    """
    if len(body) <= _BYTES_SAFE:
        return body
    body = body[:_BYTES_MAX]
    tags = body.count(b"<")
    if tags <= _TAGS_SAFE:
        return body
    if tags > _TAGS_MAX:
        body = _first_tags(body, _TAGS_MAX)
    body = _NEEDLESS_END.sub(b"<!", body)
    if len(_MAYBE_END.findall(body)) * min(tags, _TAGS_MAX) <= _WALK_MAX:
        return body
    return _first_tags(body, _TAGS_SAFE)


def _first_tags(body: bytes, count: int) -> bytes:
    return b"<".join(body.split(b"<", count + 1)[: count + 1])

"""Keeps the time of one scan of HTML bounded, whatever the bytes.

For an end tag that closes nothing the scanner walks its whole stack of open elements, 3 ns an
element: 100,000 ``<div>`` and then 100,000 ``</span>`` took 32 s. Everything else is linear, at
most 0.6 µs a tag. The bounds keep a page below 0.25 s.
"""

from __future__ import annotations

import re

# Bytes of HTML that are read: entities are the slowest, 0.04 µs a byte.
_BYTES_MAX = 4 * 1024 * 1024
# Tags that are read.
_TAGS_MAX = 100_000
# Pages of no more tags, some 400 kB, need no care: n start tags and n end tags walk over n * n
# elements at most, 0.11 s.
_TAGS_SAFE = 12_000
_WALK_MAX = (_TAGS_SAFE // 2) ** 2
# Pages of no more bytes cannot make it walk so far: "<a>" has 3 and "</b>" 4, so b bytes have b * b / 48 at the worst.
_BYTES_SAFE = 41_500

# End tags that end what is read as text, not as tags. All others may go: no selector of ours asks
# what an element is in.
_NEEDLESS_END = re.compile(
    rb"</(?=[a-z])(?!(?:script|style|title|textarea|xmp|iframe|noembed|noframes)\b)", re.IGNORECASE
)
# What may be an end tag, in any encoding: in UTF-16 every "<" is followed by NUL.
_MAYBE_END = re.compile(rb"<(?![A-Za-z!?])")


def bounded(body: bytes) -> bytes:
    """``body`` itself as a rule; a very large one without its needless end tags, or cut.

    The links of the result are those of ``body`` up to the cut, save that "</" followed by a letter
    inside an attribute is changed too.
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

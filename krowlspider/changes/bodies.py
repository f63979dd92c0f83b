"""Compare the bodies of two versions of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from krowlspider.archive.payloads.payload import body_of, type_of
from krowlspider.changes.comparison import Difference, difference, is_same_text, similarity
from krowlspider.urls.media_type import HTML
from krowlspider.urls.page.visible import lines_of_html, lines_of_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krowlspider.archive.payloads.payload import Decode

# Bytes of a stored response, and of a decoded body, that are compared.
BODY_MAX = 16 * 1024 * 1024
# Bytes of a record that must be read for it: the rest are the fields of the record.
READ_MAX = BODY_MAX + 64 * 1024


class Body(NamedTuple):
    """The decoded body of a capture; ``content`` is None if it is too large or cannot be decoded.

    ``media_type`` is what browsers take it for, ``charset`` the encoding that its header names.
    """

    media_type: str
    charset: str | None
    content: bytes | None
    is_truncated: bool


class Compared(NamedTuple):
    """What is known of two versions; each value is None if it is not known.

    ``media_type`` is that of the new version.
    """

    media_type: str | None = None
    similarity: float | None = None
    text_changed: bool | None = None
    is_truncated: bool | None = None
    difference: Difference | None = None


def body_in(fields: Mapping[str, str], block: bytes, decode: Decode) -> Body:
    """Return the body in a record that has these fields and this block, up to READ_MAX bytes."""
    content = None
    if len(block) <= BODY_MAX:
        try:
            content = body_of(block, decode)
        except ValueError:
            content = None
    media_type, charset = type_of(block, content or b"")
    return Body(media_type, charset, content, "WARC-Truncated" in fields)


def compared(before: Body, after: Body, *, with_difference: bool) -> Compared | None:
    """Return how two versions differ; None if they do not, once decoded."""
    if before.content is not None and before.content == after.content:
        return None
    media_type = after.media_type or None
    is_truncated = before.is_truncated or after.is_truncated
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        return Compared(media_type, is_truncated=is_truncated)
    return Compared(
        media_type,
        similarity(old, new),
        not is_same_text(old, new),
        is_truncated,
        difference(old, new) if with_difference else None,
    )


def _lines(body: Body) -> list[str] | None:
    """Return the text that a reader sees; None of what is neither HTML nor text."""
    if body.content is None:
        return None
    if body.media_type in HTML:
        return lines_of_html(body.content, body.charset)
    if body.media_type.startswith("text/"):
        return lines_of_text(body.content, body.charset)
    return None

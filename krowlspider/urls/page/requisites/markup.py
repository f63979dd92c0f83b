"""Read the source of a start tag, and a ``srcset``."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# The possessive "*+" keeps these expressions linear in the length of the text. A value is not made
# optional by "?+": before Python 3.11.5 a failed repetition is not undone (gh-106052).
_ATTRIBUTE = re.compile(
    r"""([^\s"'<>/=]++)(?:\s*+=\s*+(?:"([^"]*+)"?|'([^']*+)'?|([^\s"'=<>`]++)))?"""
)
# HTML, section 4.8.4.3.10: commas end a URL only at its end, descriptors may have them in
# parentheses.
_CANDIDATE = re.compile(
    r"([^\s,](?:\S*[^\s,])?+)(?:,++|\s++[^,(]*+(?:\([^)]*+\)?+[^,(]*+)*+)?+", re.ASCII
)
_START_TAG = re.compile(r"""<(?:[^>"']++|"[^"]*+"?|'[^']*+'?)*+>?""")


def start_tag(source: str) -> str:
    """Return the start tag of an element, given as its source."""
    found = _START_TAG.match(source)
    return found[0] if found else ""


def attributes_of(tag: str) -> dict[str, str]:
    """Return the attributes of a tag, given as its source, with the name of the tag itself."""
    values: dict[str, str] = {}
    for name, double, single, plain in _ATTRIBUTE.findall(tag, 1):
        values.setdefault(name.lower(), unescape(double or single or plain))
    return values


def candidates_in(srcset: str) -> Iterator[str]:
    """Yield the URLs of a ``srcset``."""
    return (found[1] for found in _CANDIDATE.finditer(srcset))

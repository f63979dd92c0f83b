"""A capture: the values of an index line by their names. Pure."""

from __future__ import annotations

import json
from typing import Any

from msgspec import MsgspecError
from msgspec.json import Decoder

from krowlspider.archive.cdxj import REVISIT

# Names that servers have for a value, by the one that our lines have.
_NAMES = {
    "urlkey": ("k",),
    "timestamp": ("t", "date"),
    "url": ("u", "original"),
    "mime": ("m", "mimetype"),
    "status": ("statuscode", "httpresponsecode"),
    "digest": ("d",),
    "redirect": ("redirecturl", "r"),
    "robotflags": ("robots",),
    "length": ("l", "s"),
    "offset": ("o", "compressedoffset"),
    "filename": ("f", "file"),
    "orig.length": ("originalLength",),
    "orig.offset": ("originalOffset",),
    "orig.filename": ("originalFilename",),
    "method": (),
    "requestBody": (),
}
_OWN = {other: name for name, others in _NAMES.items() for other in others}
KNOWN = frozenset(_NAMES)
# The fields of a line of CDX with 11 and 9 of them, and those added to a revisit.
CDX_11 = (
    *("urlkey", "timestamp", "url", "mime", "status", "digest", "redirect", "robotflags"),
    *("length", "offset", "filename"),
)
CDX_9 = ("urlkey", "timestamp", "url", "mime", "status", "digest", "redirect", "offset", "filename")
ORIGINAL = ("orig.length", "orig.offset", "orig.filename")
MISSING = "-"


def own_name(field: str) -> str:
    """Return the name that our lines have for a field."""
    return _OWN.get(field, field)


_decode = Decoder(dict[str, Any]).decode


def _object(text: str) -> dict[str, Any]:
    try:
        return _decode(text)
    except MsgspecError:
        # It may have half a surrogate pair, which json takes; or it is broken.
        found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"not a line of an index: {text[:200]}")  # noqa: TRY004
    return found


def is_broken(line: bytes) -> bool:
    """Return whether the values of a line cannot be read."""
    try:
        return not CaptureLine(line.rstrip()).values
    except ValueError:
        return True


class CaptureLine:
    """The values of a line, read when one is asked for. ``line`` has no line break.

    :raises ValueError: the line is broken; `values` and what uses it raise it
    """

    __slots__ = ("_values", "line")

    def __init__(self, line: bytes):
        self.line = line
        self._values: dict[str, Any] | None = None

    @property
    def values(self) -> dict[str, Any]:
        """All values by name: texts, or what another tool has written."""
        if self._values is None:
            key, time, text = self.line.decode().split(" ", 2)
            found = _object(text)
            self._values = {
                "urlkey": key,
                "timestamp": time,
                **{own_name(name): value for name, value in found.items()},
            }
        return self._values

    @property
    def key(self) -> bytes:
        return self.line.partition(b" ")[0]

    @property
    def timestamp(self) -> str:
        return self.line.split(b" ", 2)[1].decode()

    def text(self, field: str) -> str:
        """Return a value as text; empty without one."""
        value = self.values.get(field)
        return value if isinstance(value, str) else "" if value is None else str(value)

    @property
    def is_revisit(self) -> bool:
        return self.text("mime") == REVISIT

    @property
    def is_changed(self) -> bool:
        """Whether values were added, so that the line does not have all of them."""
        return self._values is not None and ORIGINAL[0] in self._values

    def resolve(self, original: CaptureLine | None) -> None:
        """Add where the body of a revisit is; "-" without an ``original``."""
        values = self.values
        if original is None:
            values |= dict.fromkeys(ORIGINAL, MISSING)
            return
        values |= {name: original.text(name) for name in ("mime", "status") if original.text(name)}
        for field in ORIGINAL:
            values[field] = original.text(field.removeprefix("orig.")) or MISSING

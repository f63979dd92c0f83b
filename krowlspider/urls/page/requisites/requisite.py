"""What a requisite is for. Each crawl imports this; only one that fetches requisites the rest."""

from __future__ import annotations

from typing import NamedTuple, Self

# Documents on the way from a page to a requisite, itself included: style sheets and embedded
# documents, and modules.
LEVELS_MAX = 5
MODULE_LEVELS_MAX = 9

IMAGE, STYLE, MANIFEST, OTHER = "image", "style", "manifest", "other"
# A document in an ``object``, ``embed`` or frame; a module of JavaScript.
EMBED, MODULE = "embed", "module"
_KINDS = frozenset({IMAGE, STYLE, MANIFEST, OTHER, EMBED, MODULE})
# Kinds that name further requisites without end.
NESTED = frozenset({STYLE, EMBED, MODULE})
# What browsers send for each kind (Fetch Standard, section 2.2.6).
ACCEPT = {
    IMAGE: "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5",
    STYLE: "text/css,*/*;q=0.1",
    MANIFEST: "*/*",
    OTHER: "*/*",
    EMBED: "*/*",
    MODULE: "*/*",
}


class Requisite(NamedTuple):
    """What a requisite is for.

    ``kind`` is one of the names above. ``level`` is the number of documents of NESTED kinds on the
    way to it, itself included.
    """

    kind: str
    level: int

    @property
    def is_too_deep(self) -> bool:
        """Return whether it is left out, because it is too many documents away from its page."""
        most = MODULE_LEVELS_MAX if self.kind == MODULE else LEVELS_MAX
        return self.kind in NESTED and self.level > most

    def pack(self) -> bytes:
        """Return the form in which a queue entry keeps it."""
        return b"%d%b" % (self.level, self.kind.encode())

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """:raises ValueError: `pack` does not return such bytes"""
        return cls.checked([packed[1:].decode("ascii"), int(packed[:1])])

    @classmethod
    def checked(cls, value: object) -> Self:
        """Return the requisite that a list of kind and level describes.

        :raises ValueError: it is no such list, or the level is impossible
        """
        match value:
            case [str(kind), int(level)] if kind in _KINDS and 0 <= level <= MODULE_LEVELS_MAX:
                if not (requisite := cls(kind, level)).is_too_deep:
                    return requisite
        raise ValueError("it is no kind and level of a requisite")

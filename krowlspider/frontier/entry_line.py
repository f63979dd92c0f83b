"""A queue entry as JSON: a line of an export, or a part of a hand-over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from msgspec import UNSET, Meta, Struct, UnsetType

from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.store.schema import PRIORITY_LIMIT, split_queue_key
from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from typing import Any

# The highest counts that an entry holds, and more URLs than any crawl makes a chain of.
Count = Annotated[int, Meta(ge=0, le=0xFF)]
_Depth = Annotated[int, Meta(ge=0, le=0xFFFF)]
_Chain = Annotated[tuple[str, ...], Meta(max_length=0xFF)]
_Priority = Annotated[int, Meta(ge=-PRIORITY_LIMIT, le=PRIORITY_LIMIT)]
_Hop = Annotated[str, Meta(pattern="^[LM]?$")]
_State = Annotated[str, Meta(pattern="^(queued|poison)$")]


class EntryLine(Struct, kw_only=True, forbid_unknown_fields=True):
    """An entry, with the field names of `Entry`; ``request`` is base64 in JSON.

    Only ``url`` is required. An unknown field is an error: a misspelt one would be lost silently.
    """

    url: str
    priority: _Priority = 0
    bare: bool = False
    depth: _Depth = 0
    redirects: Count = 0
    retries: Count = 0
    throttling: Count = 0
    # The name of ``throttling`` before version 0.2.0.
    distress: Count | UnsetType = UNSET
    chain: _Chain | UnsetType = UNSET
    via: str | UnsetType = UNSET
    hop: _Hop | UnsetType = UNSET
    request: bytes | UnsetType = UNSET
    state: _State = "queued"

    @classmethod
    def of(cls, key: bytes, value: bytes, state: str, **more: Any) -> Self:
        """Return the line of an entry, given by its key and value; ``more`` are other fields."""
        entry = entry_of(key, value)
        return cls(
            url=entry.url,
            priority=split_queue_key(key)[1],
            bare=entry.bare,
            depth=entry.depth,
            redirects=entry.redirects,
            retries=entry.retries,
            throttling=entry.throttling,
            chain=entry.chain or UNSET,
            via=entry.via or UNSET,
            hop=entry.hop or UNSET,
            request=entry.request or UNSET,
            state=state,
            **more,
        )

    def entry(self, url_max: int) -> Entry:
        """Return the entry.

        :raises ValueError: a URL is not valid, or has more than ``url_max`` characters
        """
        return Entry(
            _normalised(self.url, url_max),
            self.depth,
            self.redirects,
            self.retries,
            self.throttling or self.distress or 0,
            bare=self.bare,
            request=self.request or b"",
            chain=tuple(_normalised(url, url_max) for url in self.chain or ()),
            via=_normalised(self.via, url_max) if self.via else "",
            hop=(self.via and self.hop) or "",
        )


def _normalised(text: str, url_max: int) -> str:
    url = normalise(text)
    if url is None:
        raise ValueError(f"not an http or https URL, or one with a user name: {text[:80]!r}")
    if len(url) > url_max:
        raise ValueError(f"a URL of more than {url_max} characters")
    return url

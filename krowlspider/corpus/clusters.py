"""Which page of the corpus each duplicate repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from krowlspider.corpus.record import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.corpus.folder import Folder

# The rules for pages that repeat another; the value is the place of the other page.
DUPLICATE, NEAR_DUPLICATE = "duplicate", "near duplicate"


class Copy(msgspec.Struct):
    """A page that is not in the corpus; ``kept`` is the file and offset of the one that is."""

    kept: str
    copy: str
    url: str
    rule: str


def clusters(folder: Folder) -> Iterator[bytes]:
    """Yield the copies in all final slices as JSON; those of one cluster have the same ``kept``."""
    decode, encode = msgspec.json.Decoder(Refusal).decode, msgspec.json.Encoder().encode
    for found in map(decode, folder.refusals()):
        if found.rule in {DUPLICATE, NEAR_DUPLICATE}:
            place = f"{found.warc_file}:{found.warc_offset}"
            yield encode(Copy(str(found.value), place, found.url, found.rule))

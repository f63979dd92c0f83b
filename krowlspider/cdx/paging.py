"""Pages of an answer: blocks of lines, as those of pywb's ZipNum index.

One line for each BLOCK bytes of each index is read, and none of those between; the blocks begin at
some of these. They are about as large as a block of ZipNum's 3,000 lines.
While the crawl goes on, the cuts move: pages that are read one after the other may then overlap or
leave lines out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.cdx.errors import QueryError
from krowlspider.cdx.ranges import Range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.cdx.archives import IndexPart, IndexView
    from krowlspider.cdx.query import Paging

# Bytes of index lines in a block, about.
BLOCK = 512 * 1024


def blocks_of(view: IndexView, ranges: Sequence[Range], size: int = BLOCK) -> list[IndexPart]:
    """Return where each block of ``ranges`` begins. Raises the errors of `IndexView`."""
    blocks: list[IndexPart] = []
    for part in (part for each in ranges for part in view.parts(each, size)):
        last = blocks[-1] if blocks else None
        # The parts of small indexes are joined.
        if last is None or last.length >= size:
            blocks.append(part)
        else:
            blocks[-1] = last._replace(length=last.length + part.length)
    return blocks


def count_of(blocks: Sequence[IndexPart], paging: Paging) -> dict[str, int]:
    """Return the numbers of blocks and pages, as pywb has them."""
    return {
        "blocks": len(blocks),
        "pages": -(-len(blocks) // paging.size) or 1,
        "pageSize": paging.size,
    }


def page_of(
    blocks: Sequence[IndexPart], paging: Paging, ranges: Sequence[Range]
) -> tuple[Sequence[IndexPart], Sequence[Range]]:
    """Return the blocks of a page, and their ranges.

    :raises QueryError: there is no such page
    """
    page, pages = paging.page or 0, count_of(blocks, paging)["pages"]
    if page >= pages:
        raise QueryError(
            f"page={page}: give 0 to {pages - 1}"
            if pages > 1
            else f"page={page}: the only page is 0"
        )
    first, behind = page * paging.size, (page + 1) * paging.size
    cut = blocks[first:behind]
    begin = cut[0].line if first and cut else b""
    end = blocks[behind].line if behind < len(blocks) else b"\xff"
    parts = (Range(max(each.begin, begin), min(each.end, end)) for each in ranges)
    return cut, [each for each in parts if each.begin < each.end]

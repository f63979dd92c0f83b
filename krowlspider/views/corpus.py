"""The output of ``scrapy corpus``, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.admin.words import counted

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path


def built(counts: Counter[str], folder: Path) -> str:
    """Return how many pages were accepted, and the others by reason, most frequent first."""
    accepted, read = counted(counts["accepted"], "page"), counted(counts["responses"], "response")
    lines = [f"{accepted} of {read} in {folder}"]
    for kind in ("rejected", "skipped"):
        found = {name: n for name, n in counts.items() if name.startswith(f"{kind}/")}
        if found:
            lines.append(f"{kind}: {sum(found.values()):,}")
        for name, count in sorted(found.items(), key=lambda each: (-each[1], each[0])):
            lines.append(f"{count:>14,}  {name.partition('/')[2]}")
    return "\n".join(lines)

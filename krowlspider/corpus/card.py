"""The dataset card: README.md of a corpus, with a head in the form of Hugging Face."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.corpus.shards import ENDINGS

if TYPE_CHECKING:
    from collections import Counter

_HEAD = """\
---
configs:
- config_name: default
  data_files: data/*{ending}
---

# Text of web pages

{accepted:,} pages, made by `scrapy corpus` from the responses of WARC files.

The pages are the work of their authors: this collection gives no licence to them. `license` holds
what a page itself names. `signals` holds its opt-outs; pages with {refused} were left out.

## Counts

| what | pages |
| --- | ---: |
| responses read | {responses:,} |
| accepted | {accepted:,} |
"""


def card(counts: Counter[str], refused: list[str], form: str) -> str:
    """Return the card as Markdown."""
    signals = ", ".join(f"`{each}`" for each in refused) or "no signal"
    text = _HEAD.format(
        ending=ENDINGS[form],
        accepted=counts["accepted"],
        responses=counts["responses"],
        refused=signals,
    )
    for title, prefix in (
        ("Skipped: no page, or none that could be read", "skipped/"),
        ("Rejected, by the first rule that a page failed", "rejected/"),
        ("Languages of accepted pages", "language/"),
    ):
        rows = {name: n for name, n in counts.items() if name.startswith(prefix)}
        if rows:
            lines = [f"| {name.removeprefix(prefix)} | {rows[name]:,} |" for name in _sorted(rows)]
            text += f"\n## {title}\n\n| what | pages |\n| --- | ---: |\n" + "\n".join(lines) + "\n"
    return text


def _sorted(rows: dict[str, int]) -> list[str]:
    return sorted(rows, key=lambda name: (-rows[name], name))

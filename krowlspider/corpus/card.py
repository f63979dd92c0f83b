"""The dataset card: README.md of a corpus, with a head in the form of Hugging Face."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.corpus.figures import of_kind
from krowlspider.corpus.shards import ENDINGS

if TYPE_CHECKING:
    from krowlspider.corpus.build import Contents
    from krowlspider.corpus.quality.rules import Rules

_CONFIGS = """\
---
configs:
- config_name: default
  data_files: data/*{ending}
---

"""
_FIELDS = "`license` holds what a page itself names, `signals` its opt-outs. "
_HEAD = """\
# Text of web pages

{accepted:,} pages, made by `scrapy corpus` from the responses of WARC files.

The pages are the work of their authors: this collection gives no licence to them.
{fields}Pages with {refused} were left out.

## Counts

| what | pages |
| --- | ---: |
| responses read | {responses:,} |
| accepted | {accepted:,} |
"""
# By the rule of keeping.KEEP.
_KEPT = {
    "first": "the first",
    "oldest": "the oldest",
    "canonical": "the canonical one",
    "shortest": "the one with the shortest URL",
}


def card(built: Contents, rules: Rules, form: str, keep: str) -> str:
    """Return the card as Markdown."""
    counts, languages = built.counts, built.languages
    signals = ", ".join(f"`{each}`" for each in sorted(rules.refused)) or "no signal"
    # WET has none of the fields, and `datasets` does not read it.
    has_fields = form != "wet"
    text = _CONFIGS.format(ending=ENDINGS[form]) if has_fields else ""
    text += _HEAD.format(
        fields=_FIELDS if has_fields else "",
        accepted=counts["accepted"],
        responses=counts["responses"],
        refused=signals,
    )
    for title, prefix, numbers in (
        ("Skipped: no page, or none that could be read", "skipped/", counts),
        ("Rejected, by the first rule that a page failed", "rejected/", counts),
        ("Masked in accepted pages", "masked/", counts),
        ("Languages of accepted pages", "", languages),
    ):
        lines = [f"| {name} | {n:,} |" for name, n in of_kind(numbers, prefix).items() if n]
        if lines:
            text += f"\n## {title}\n\n| what | pages |\n| --- | ---: |\n" + "\n".join(lines) + "\n"
    return text + _limits(rules, keep)


def _limits(rules: Rules, keep: str) -> str:
    """Return the rules that were in force, in their order; of duplicates, one by ``keep`` stays."""
    languages = ", ".join(sorted(rules.languages)) or "all"
    same = "the same words" if rules.exact else ""
    share = rules.similarity
    near = "" if share is None else f"{share:.0%} of their sequences of five words in common"
    most = rules.boilerplate
    lines_removed = "" if most is None else f" Lines on more than {most} pages of a host: removed."
    duplicates = ", ".join(filter(None, (same, near)))
    duplicates = f"{duplicates}; {_KEPT[keep]} is kept" if duplicates else "kept"
    lines = [f"| {each.name} | {_limit(each.low)} | {_limit(each.high)} |" for each in rules.rules]
    return (
        f"\n## Rules\n\nLanguages: {languages}. Duplicates: {duplicates}.{lines_removed}\n\n"
        "| rule | at least | at most |\n| --- | ---: | ---: |\n" + "\n".join(lines) + "\n"
    )


def _limit(value: float | None) -> str:
    return "" if value is None else f"{value:,}"

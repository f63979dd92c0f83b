"""What a corpus holds: the figures of its report, and its dataset card.

The card is README.md of the corpus, with a head in the form of Hugging Face.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from krowlspider.corpus.copies.duplicates import (
    DUPLICATE,
    KNOWN_VERSION,
    NEAR_DUPLICATE,
    OLDER_VERSION,
)
from krowlspider.corpus.copies.versions import ALL, LAST
from krowlspider.corpus.folder import read_options, read_summaries
from krowlspider.corpus.quality.rules import rule_names
from krowlspider.corpus.record import ENDINGS
from krowlspider.corpus.tallies import OTHERS, Tallies
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.corpus.build import Contents
    from krowlspider.corpus.quality.rules import Rules
    from krowlspider.corpus.tallies import Pairs

_HOSTS_SHOWN = 50

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
_VERSIONS = {ALL: "each that is no duplicate", LAST: "the last one"}


def figures(path: Path) -> dict[str, Any]:
    """Return the figures of the final slices in a folder, for JSON. Raises OSError.

    :raises KrowlError: it is no folder of a corpus
    """
    try:
        options = read_options(path)
        counts: Counter[str] = Counter()
        tallies, slices = Tallies(), 0
        for _, summary in read_summaries(path):
            counts.update(summary.counts)
            tallies.add(summary.tallies)
            slices += 1
    except (FileNotFoundError, msgspec.DecodeError) as error:
        raise KrowlError(f"{path} is no folder of scrapy corpus: {error}") from error
    rejected = of_kind(counts, "rejected/")
    accepted = counts["accepted"]
    others = tallies.hosts.pop(OTHERS, [0, 0])
    return {
        "slices": slices,
        "responses": counts["responses"],
        "skipped": of_kind(counts, "skipped/"),
        "pages": accepted + sum(rejected.values()),
        "accepted": accepted,
        "rules": _rules(accepted, rejected, options),
        "languages": _rows(tallies.languages),
        "hosts": _rows(tallies.hosts)[:_HOSTS_SHOWN],
        "hosts_counted": len(tallies.hosts),
        "pages_of_hosts_not_counted": sum(others),
        "lengths": [
            {"from": 1 << bits >> 1, "below": 1 << bits, "accepted": pair[0], "rejected": pair[1]}
            for bits, pair in sorted((int(bits), pair) for bits, pair in tallies.lengths.items())
        ],
    }


def of_kind(counts: dict[str, int], kind: str) -> dict[str, int]:
    """Return the counts whose names begin with ``kind``, by the rest; the largest come first."""
    found = {name.removeprefix(kind): n for name, n in counts.items() if name.startswith(kind)}
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


def _rules(
    accepted: int, rejected: dict[str, int], options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return for each rule that was in force how many pages came to it, and how many it rejected.

    A page comes to a rule if it has passed all before it. Pages that could not be read come first.
    """
    tables = options["rules"]
    signals = tables["signals"]["refused"]
    rules = [name for name in rule_names() if tables[name]["enabled"]]
    languages = ["language"] if tables["language"]["accepted"] else []
    duplicates = tables["duplicates"]
    copies = [
        name
        for name, is_on in (
            (OLDER_VERSION, options.get("versions") == LAST),
            (KNOWN_VERSION, True),
            (DUPLICATE, duplicates["exact"]),
            (NEAR_DUPLICATE, duplicates["near"]),
        )
        if is_on
    ]
    known = [*sorted(signals), *languages, *rules, *copies]
    left, found = accepted + sum(rejected.values()), []
    for name in [*(name for name in rejected if name not in known), *known]:
        found.append({"rule": name, "pages": left, "rejected": rejected.get(name, 0)})
        left -= rejected.get(name, 0)
    return found


def _rows(pairs: Pairs) -> list[dict[str, Any]]:
    """Return rows by name, those with the most pages first."""
    names = sorted(pairs, key=lambda name: (-sum(pairs[name]), name))
    return [
        {"name": name, "accepted": pairs[name][0], "rejected": pairs[name][1]} for name in names
    ]


def card(built: Contents, rules: Rules, form: str, keep: str, versions: str) -> str:
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
    return text + _limits(rules, keep, versions)


def _limits(rules: Rules, keep: str, versions: str) -> str:
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
        f"\n## Rules\n\nLanguages: {languages}. Duplicates: {duplicates}. Versions of a URL:"
        f" {_VERSIONS[versions]}.{lines_removed}\n\n"
        "| rule | at least | at most |\n| --- | ---: | ---: |\n" + "\n".join(lines) + "\n"
    )


def _limit(value: float | None) -> str:
    return "" if value is None else f"{value:,}"

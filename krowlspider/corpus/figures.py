"""The figures of a corpus, from its folder alone: what its report shows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from krowlspider.corpus.finish import DUPLICATE, NEAR_DUPLICATE
from krowlspider.corpus.folder import read_options, read_summaries
from krowlspider.corpus.quality.rules import rule_names
from krowlspider.corpus.tallies import OTHERS, Tallies
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.corpus.tallies import Pairs

_HOSTS_SHOWN = 50


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
        "rules": _rules(accepted, rejected, options["rules"]),
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
    accepted: int, rejected: dict[str, int], tables: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return for each rule that was in force how many pages came to it, and how many it rejected.

    A page comes to a rule if it has passed all before it. Pages that could not be read come first.
    """
    signals = tables["signals"]["refused"]
    rules = [name for name in rule_names() if tables[name]["enabled"]]
    languages = ["language"] if tables["language"]["accepted"] else []
    duplicates = tables["duplicates"]
    copies = [
        name
        for name, is_on in (
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

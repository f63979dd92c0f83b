"""The figures of a corpus, and its report."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from krowlspider.corpus.figures import figures
from krowlspider.corpus.folder import Folder, Slice, Summary
from krowlspider.corpus.quality.rules import read_rules
from krowlspider.corpus.tallies import OTHERS, Tallies
from krowlspider.errors import KrowlError
from krowlspider.programs.corpus import corpus_page

if TYPE_CHECKING:
    from pathlib import Path


def test_figures_come_from_the_folder_alone(tmp_path: Path) -> None:
    """Each rule has the pages that passed all before it."""
    folder = Folder(tmp_path)
    folder.begin({"rules": read_rules().source})
    for number in range(2):
        tallies = Tallies()
        tallies.count("https://user@A.example:80/x", "en", 300, accepted=True)
        tallies.count("http://<b>", "de", 511, accepted=False)
        tallies.count("http://a.example/y", "", 0, accepted=False)
        counts = {"responses": 5, "accepted": 1, "rejected/words": 1, "rejected/cut off": 1,
                  "skipped/not HTML": 2}  # fmt: skip
        folder.finish(Slice("a", number), Summary(counts=counts, tallies=tallies))
    folder.close()
    found = figures(tmp_path)
    assert (found["pages"], found["accepted"], found["skipped"]) == (6, 2, {"not HTML": 4})
    assert found["rules"][0] == {"rule": "cut off", "pages": 6, "rejected": 2}
    rules = {each["rule"]: (each["pages"], each["rejected"]) for each in found["rules"]}
    assert (rules["chars"], rules["words"]) == ((4, 0), (4, 2))
    assert rules["word_length"] == rules["near_duplicate"] == (2, 0)
    assert "braces" not in rules
    assert list(rules).index("chars") < list(rules).index("words") < list(rules).index("top_2gram")
    assert found["hosts"] == [
        {"name": "a.example", "accepted": 2, "rejected": 2},
        {"name": "<b>", "accepted": 0, "rejected": 2},
    ]
    assert found["lengths"] == [{"from": 256, "below": 512, "accepted": 2, "rejected": 2}]

    page = corpus_page("<i>", found)
    assert "<b>&lt;" not in page
    assert "<td>&lt;b&gt;</td>" in page
    assert "Corpus &lt;i&gt;" in page
    assert not re.findall(r"<script|<link|src=|href=|@import|url\(|https?://", page)


def test_the_hosts_of_a_slice_are_bounded() -> None:
    tallies = Tallies()
    for number in range(10):
        for _ in range(number + 1):
            tallies.count(f"http://{number}.example/", "en", 9, accepted=number > 4)
    tallies.keep_hosts(3)
    tallies.keep_hosts(3)
    assert tallies.hosts == {
        **{f"{number}.example": [number + 1, 0] for number in (9, 8, 7)},
        OTHERS: [6 + 7, 1 + 2 + 3 + 4 + 5],
    }


def test_a_folder_without_a_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(KrowlError, match=str(tmp_path)):
        figures(tmp_path)

"""What is found of personal data: tables of cases, and an evaluation set of others."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from krowlspider.corpus.quality.personal_data import emails, ips, phones

FOLDER = Path(__file__).parent / "personal"
FIND = {"email": emails, "ip": ips, "phone": phones}


def cases() -> list[dict[str, str]]:
    with (FOLDER / "cases.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def found(kind: str, text: str) -> list[str]:
    return [text[start:end] for start, end in FIND[kind](text)]


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case['kind']}: {case['text']}")
def test_each_case_is_found_or_left(case: dict[str, str]) -> None:
    expected = case["masked"].split(" ¦ ") if case["masked"] else []
    for text in (case["text"], f"See {case['text']}\nthere"):
        assert found(case["kind"], text) == expected


@pytest.mark.parametrize(("kind", "recall"), [("email", 1.0), ("ip", 0.9), ("phone", 0.93)])
def test_recall_and_precision_on_an_evaluation_set(kind: str, recall: float) -> None:
    """A place counts if its letters and digits are all masked, and no others."""
    named = hit = 0
    for line in (FOLDER / "presidio_research.jsonl").read_text(encoding="utf-8").splitlines():
        each = json.loads(line)
        places = [each["text"][s:e] for name, s, e in each["places"] if name == kind]
        expected = [re.sub(r"\W", "", place) for place in places]
        masked = [re.sub(r"\W", "", place) for place in found(kind, each["text"])]
        assert [place for place in masked if place not in expected] == []
        named += len(expected)
        hit += len(masked)
    assert hit / named >= recall

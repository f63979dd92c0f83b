"""Personal data: what is found, by tables of cases and an evaluation set; and how it is masked."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from krowlspider.corpus.quality.personal_data import KINDS, emails, ips, mask, phones
from krowlspider.corpus.quality.rules import read_rules
from krowlspider.corpus.text.document import Document
from krowlspider.corpus.text.extractors import CorpusLink, NameValue
from tests.corpus.warcs import html, made_of, response, write
from tests.support.tables import table
from tests.support.work import seconds

FOLDER = Path(__file__).parent / "personal"
FIND = {"email": emails, "ip": ips, "phone": phones}


def cases() -> list[dict[str, str]]:
    with (FOLDER / "cases.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def found(kind: str, text: str) -> list[str]:
    return [text[start:end] for start, end in FIND[kind](text)]


@table("case", cases())
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


def masked(text: str, *kinds: str) -> tuple[str, dict[str, int]]:
    found = Document(text, "en", 1, "utf-8")
    counts = mask(found, kinds or KINDS)
    return found.text, counts


@table(
    ("text", "kind"),
    [
        ("<jane.doe+list@mail.example.co.uk>", "email"),
        ("mailto:jörg_9@example.org.", "email"),
        ("+49 (0)30 1234-5678", "phone"),
        ("+442071838750,", "phone"),
        ("(555) 123-4567", "phone"),
        ("555-123-4567", "phone"),
        ("8.8.4.4.", "ip"),
        ("[2606:4700:4700::1111]:443", "ip"),
        ("2a00:1450:4001:830::,", "ip"),
    ],
)
def test_addresses_and_numbers_are_masked(text: str, kind: str) -> None:
    found, counts = masked(f"Ask {text} or 8 others", kind)
    assert counts == {kind: 1}
    assert found.count("|||") == 2
    assert not any(part in found for part in ("doe", "9@", "123", "8387", "8.8", "4700", "830"))
    assert masked(f"Ask {text} or 8 others", *(KINDS - {kind}))[1] == {}


@table(
    "text",
    [
        *("@decorator", "user@localhost", "a @ b.com", "127.0.0.1", "192.168.1.1", "1.2.3.4.5"),
        *("999.1.1.1", "std::vector", "12:30:45", "2001:db8::1", "1.2.3", "2026-01-02", "+1 234"),
        *("\n\n4.1.2.3.\u00a0String Constants", "\n 27.2.5.1 Überblick", "\n2.1.1.1 Общее"),
        *("978-3-16-148410-0", "1555-123-45678", "0x2606:4700::1", "100,000,000", "v8.8.4.4-rc1"),
    ],
)
def test_what_looks_alike_is_left(text: str) -> None:
    assert masked(f"See {text} there") == (f"See {text} there", {})


def test_fields_that_people_write_are_masked() -> None:
    pairs = [NameValue("title", "By a@b.example"), NameValue("url", "http://b.example/a@b.example")]
    fields = {
        "author": "a@b.example",
        "open_graph": pairs,
        "links": [CorpusLink("u", "a@b.example")],
    }
    found = Document("", "en", 1, "utf-8", fields=fields)
    assert mask(found, ["email"]) == {"email": 3}
    mark = "|||EMAIL_ADDRESS|||"
    assert fields["author"] == fields["links"][0].text == mark
    assert [pair.value for pair in pairs] == [f"By {mark}", "http://b.example/a@b.example"]


@pytest.mark.parametrize(
    "part",
    [
        *("a", "a.", "a@", "a@a.", "1.", "+", "+1", "1", "2000:", "(555) ", "+1 (2) 3-4.5 "),
        *("a'", "ä@ä.", "8.8.4.4 ", "version 8.8.4.4, ", "tel ", "call me ", "0 ", "01 23 ", "1 "),
    ],
)
def test_masking_takes_linear_time(part: str) -> None:
    assert seconds(lambda: masked(f"{part * 20_000}@ "), enough=1) < 1


def test_a_page_is_masked_and_counted(tmp_path: Path) -> None:
    """In its text and title. Pages that differ only in what is masked are duplicates."""
    path = tmp_path / "rules.toml"
    path.write_text('pii = {email = "mask"}\n')
    pages = [
        html(1).replace(b"Page 1", of).replace(b"<p>", b"<p>" + of + b": ")
        for of in (b"Of ann@example.org", b"Of bob@example.org")
    ]
    source = write(tmp_path / "a.warc.gz", [response("http://a/", page) for page in pages])
    for rules in (read_rules(), read_rules(path)):
        made = made_of(source, rules)
        hidden = len({line.exact for line, _ in made}) == 1
        is_masked = rules.masked == {"email"}
        assert hidden == all("@" not in record.text for _, record in made) == is_masked
        assert [line.masked for line, _ in made] == [{"email": 2} if hidden else {}] * 2
        assert ("Of |||EMAIL_ADDRESS|||" in {record.title for _, record in made}) == hidden

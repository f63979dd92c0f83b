"""Queries of people: those that the ancestor documents, those of common engines, and any text."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.search.filters import Filter, Span
from krowlspider.search.query import CLAUSES_MAX, LENGTH_MAX, WORD_MAX, TermKind, parse


def terms(text: str) -> list[list[str]]:
    """The words of each clause, with the marks of their kinds."""
    marks = {TermKind.WORD: "{}", TermKind.PHRASE: '"{}"', TermKind.PREFIX: "{}*"}
    return [[marks[term.kind].format(term.text) for term in each] for each in parse(text).clauses]


def day(year: int, month: int = 1, number: int = 1) -> datetime:
    return datetime(year, month, number, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("Gemini content_type:text/gemini", [Filter("type", "text/gemini")]),
        ("UNIX content_type:text/plain", [Filter("type", "text/plain")]),
        (
            "gemini domain:gemini.circumlunar.space",
            [Filter("site", "gemini.circumlunar.space")],
        ),
        ("Gemini size:<2048", [Filter("size", Span(None, 2048))]),
        ("Gemini size:>5K", [Filter("size", Span(5001, None))]),
        ("Gemini size:<5KB", [Filter("size", Span(None, 5000))]),
        ("Gemini size:<0.005MiB", [Filter("size", Span(None, 5242))]),
        (
            "Gemini NOT content_type:text/gemini",
            [Filter("type", "text/gemini", is_negative=True)],
        ),
        (
            "Gemini content_type:text/gemini content_type:text/plain",
            [Filter("type", "text/gemini"), Filter("type", "text/plain")],
        ),
        (
            "Gemini content_type:text/gemini size:<5K",
            [Filter("type", "text/gemini"), Filter("size", Span(None, 5000))],
        ),
    ],
)
def test_filters_of_tlgs_mean_the_same(text: str, filters: list[Filter]):
    """The examples of its page on search."""
    query = parse(text)
    assert [*query.filters] == filters
    assert [[term.text] for [term] in query.clauses] == [[text.split(maxsplit=1)[0]]]
    assert not query.notes


@pytest.mark.parametrize("unit", ["", "B", "byte", "bytes"])
def test_units_of_tlgs_are_known(unit: str):
    assert parse(f"size:>=7{unit}").filters == (Filter("size", Span(7, None)),)


@pytest.mark.parametrize(
    ("unit", "size"),
    [("k", 10**3), ("Ki", 2**10), ("M", 10**6), ("miB", 2**20), ("GB", 10**9), ("Gi", 2**30)],
)
def test_units_are_thousands_or_powers_of_two(unit: str, size: int):
    assert parse(f"size:2{unit}..3{unit}").filters == (
        Filter("size", Span(2 * size, 3 * size + 1)),
    )


def test_query_of_filters_alone_is_one():
    """TLGS asks for a word. Here the pages are listed, the newest first."""
    query = parse("content_type:text/plain")
    assert not query.is_empty
    assert not query.clauses


def test_bad_filter_is_left_out_with_a_note():
    """TLGS leaves it out silently."""
    query = parse("gemini size:huge lang:deutsch host:a/b,c type:! scheme:ftp date:2026-02-30")
    assert terms("gemini size:huge") == [["gemini"]]
    assert query.filters == (Filter("host", "a"),)
    assert [note.partition(" is no ")[0] for note in query.notes] == [
        *("size:huge", "lang:deutsch", "type:!", "scheme:ftp", "date:2026-02-30")
    ]
    assert "give size:>10k" in query.notes[0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a b", [["a"], ["b"]]),
        ('"a b" c', [['"a b"'], ["c"]]),
        ("“a b” c", [['"a b"'], ["c"]]),
        ('a "b c', [["a"], ['"b c"']]),
        ("comp* ab*", [["comp*"], ["ab*"]]),
        ("c*", [["c*"]]),
        ("a OR b OR c d", [["a", "b", "c"], ["d"]]),
        ('a OR "b c"', [["a", '"b c"']]),
        ("OR a OR", [["OR"], ["a"]]),
        ("a OR site:b.test c", [["a"], ["c"]]),
        ("a or b", [["a"], ["or"], ["b"]]),
        ("to be or not to be", [["to"], ["be"], ["or"], ["not"], ["to"], ["be"]]),
        ("(a OR b) c", [["a", "b"], ["c"]]),
        ("foo:bar 10:30", [['"foo bar"'], ["10:30"]]),
        ("https://a.test/x", [['"https //a.test/x"']]),
        ("a - b", [["a"], ["b"]]),
        ("well-known", [["well-known"]]),
        ("日本語 ö", [["日本語"], ["ö"]]),
        ("... !? \x00 -", []),
        ("NOT", [["NOT"]]),
        ("lang: site:", [["lang:"], ["site:"]]),
    ],
)
def test_words_phrases_prefixes_and_alternatives(text: str, found: list[list[str]]):
    assert terms(text) == found


def test_prefix_has_two_letters():
    assert [term.kind for term in parse("c* co* *").terms] == [TermKind.WORD, TermKind.PREFIX]


@pytest.mark.parametrize("text", ["a -b", "a NOT b", "-b a"])
def test_excluded_words(text: str):
    query = parse(text)
    assert [term.text for term in query.terms] == ["a"]
    assert [term.text for term in query.excluded] == ["b"]


def test_excluded_phrases_and_filters():
    query = parse('a -"b c" -lang:de NOT site:x.test not type:text/')
    assert [term.text for term in query.excluded] == ["b c"]
    assert [(each.name, each.value) for each in query.filters if each.is_negative] == [
        *(("lang", "de"), ("site", "x.test"), ("type", "text/"))
    ]


def test_only_excluded_words_are_no_query():
    query = parse("-a -b")
    assert query.is_empty
    assert "must have" in query.notes[0]


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("date:2026", day(2026), day(2027)),
        ("date:2026-11", day(2026, 11), day(2026, 12)),
        ("date:20261130", day(2026, 11, 30), day(2026, 12)),
        ("date:2024-02-29", day(2024, 2, 29), day(2024, 3)),
        ("date:2026-11..", day(2026, 11), None),
        ("date:..2026-11", None, day(2026, 12)),
        ("date:2026-11-05..2026-11-07", day(2026, 11, 5), day(2026, 11, 8)),
        ("date:>2026-11", day(2026, 12), None),
        ("date:>=2026-11", day(2026, 11), None),
        ("date:<2026-11", None, day(2026, 11)),
        ("date:<=2026-11", None, day(2026, 12)),
        ("since:2026-11", day(2026, 11), None),
        ("until:2026-11", None, day(2026, 12)),
    ],
)
def test_dates(text: str, low: datetime | None, high: datetime | None):
    assert parse(text).filters == (Filter("date", Span(low, high)),)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("site:HTTPS://Example.org/a/b", "site", "example.org"),
        ("site:*.example.org.", "site", "example.org"),
        ("host:example.org:1965", "host", "example.org:1965"),
        ("host:[::1]:80", "host", "[::1]:80"),
        ("lang:en-GB", "lang", "en"),
        ("type:text/*", "type", "text/"),
        ('type:"text/html"', "type", "text/html"),
        ("scheme:gemini", "scheme", "gemini"),
    ],
)
def test_values_are_given_in_many_forms(text: str, name: str, value: str):
    assert parse(text).filters == (Filter(name, value),)


def test_intitle():
    query = parse('intitle:gemini title:"a b" x')
    assert [(term.text, term.field) for term in query.terms] == [
        *(("gemini", "title"), ("a b", "title"), ("x", ""))
    ]


def test_place_of_a_word_is_that_in_the_text():
    text = "a\t(bb) -cc intitle:dd ee*"
    query = parse(text)
    found = [text[slice(*term.place)] for term in (*query.terms, *query.excluded)]
    assert found == ["a", "bb", "dd", "ee*", "cc"]


def test_query_has_bounds_and_says_so():
    query = parse("x " * LENGTH_MAX)
    assert len(query.clauses) <= CLAUSES_MAX
    assert len(query.notes) == 2
    query = parse("x" * 2 * LENGTH_MAX)
    assert len(query.clauses[0][0].text) == WORD_MAX


@given(st.text() | st.text(alphabet='aO RNT-"*:<>.0size:datelang()\ud800\x00').map(str))
def test_any_text_is_a_query(text: str):
    query = parse(text)
    assert len([*query.terms]) + len(query.excluded) + len(query.filters) <= CLAUSES_MAX
    for term in (*query.terms, *query.excluded):
        begin, end = term.place
        assert 0 <= begin < end <= LENGTH_MAX
        term.text.encode()


@pytest.mark.parametrize("piece", ['"', "-", "a:", "size:>", "date:", "(", " OR", "-a:-", '-"'])
def test_hostile_text_takes_no_time(piece: str):
    begun = time.thread_time()
    parse(piece * 200_000)
    assert time.thread_time() - begun < 0.5

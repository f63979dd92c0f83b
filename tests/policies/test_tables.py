"""Sheets of the rows of a table."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from krowlspider.policies.sheets import BadPolicies, Policies
from krowlspider.policies.tables import sheets_of, unread
from tests.support.tables import table


def policies(*rows: dict[str, Any]) -> Policies:
    return Policies.parse(text(*rows), "p.toml", delay_min=0.25)


def text(*rows: dict[str, Any]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return sheets_of(columns, ([row.get(each) for each in columns] for row in rows), "t", 0.25)


def errors(*rows: dict[str, Any]) -> list[str]:
    with pytest.raises(BadPolicies) as raised:
        text(*rows)
    return raised.value.errors


def test_a_row_is_a_sheet_and_null_is_no_key() -> None:
    found = policies(
        {
            "name": 'a "b" \\ é',
            "match": "example.org",
            "delay": Decimal("2.5"),
            "depth": Decimal(3),
            "include": "[a-z]+\\.html$",
            "exclude": '["/print/", "[?&]sort="]',
            "head": 1,
            "archive": False,
            "headers": '{"Accept-Language": "de"}',
            "max_pages": None,
        },
        {"name": "second", "match": ["a.example", "host:b.example:8080"], "max_pages": 7},
    )
    first, second = found.sheets
    assert first.name == 'a "b" \\ é'
    patterns = {key: [each.pattern for each in first.values.pop(key)] for key in ("include",)}
    assert patterns == {"include": ["[a-z]+\\.html$"]}
    assert [each.pattern for each in first.values.pop("exclude")] == ["/print/", "[?&]sort="]
    assert first.values == {
        "delay": 2.5,
        "depth": 3,
        "head": True,
        "archive": False,
        "headers": {"Accept-Language": "de"},
    }
    assert second.values == {"max_pages": 7}
    assert len(second.matches) == 2


def test_columns_of_ferrocrawl_are_read() -> None:
    row = {
        "id": 1,
        "host": "www.example.org",
        "crawl_delay_ms": 1500,
        "max_depth": 4,
        "recrawl_ttl_secs": 86_400,
        "user_agent": "x",
        "include_patterns": ["/news/"],
        "exclude_patterns": [],
        "created_at": "2026-01-01",
    }
    policy = policies(row).of_host("www.example.org:443")
    assert policy is not None
    assert policy.delay == 1.5
    found = policy.fixed
    assert (found.depth, found.recrawl_min, found.recrawl_max) == (4, 86_400, 86_400)
    assert found.exclude == ()
    assert policies(row).of_host("other.example.org") is None
    assert unread(list(row)) == ["user_agent"]


@table(
    ("row", "error"),
    [
        ({"name": "a", "match": None}, "t row a: it covers no site: match or host or domain is"),
        ({"name": None, "match": None, "depth": 1}, "t row 2: it covers no site"),
        ({"match": "example.org", "depth": 1.5}, "t row example.org: depth = '1.5': must be a"),
        ({"match": "example.org", "depth": "x"}, "t row example.org: depth = 'x': must be a whole"),
        ({"match": "a b"}, "t row a b: match: "),
        ({"match": "example.org", "delay": 0.1}, "t row example.org: delay = 0.1: below the 0.25"),
        ({"host": "example.org", "crawl_delay_ms": 0}, "t row example.org: delay = '0': must be"),
        ({"match": "example.org", "include": "("}, "t row example.org: include = "),
        ({"match": "example.org", "include": [1]}, "'[1]' must be a text or a list of texts"),
        ({"match": "example.org", "delay": 3, "crawl_delay_ms": 3000}, "delay a second time"),
        ({"match": "example.org", "headers": "x"}, "t row example.org: headers is no JSON object"),
        ({"match": "example.org", "headers": '{"A": null}'}, "headers is no JSON object of texts"),
        ({"match": "example.org", "delay": b"3"}, "t row example.org: delay is of the type bytes"),
        ({"name": "a\nb\0c", "match": "", "depth": 1}, "t row a b c: it covers no site"),
        ({"match": "example.org", "robots": "override"}, "t row example.org: robots"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_written(row: dict[str, Any], error: str) -> None:
    (found,) = errors({"name": "good", "match": "good.example"}, row)
    assert error in found


def test_rows_that_contradict_each_other_are_named() -> None:
    one = {"name": "one", "match": "example.org", "delay": 1}
    (found,) = errors(one, one | {"name": "two", "delay": 2})
    assert "delay of sheet 'two' contradicts" in found
    many = errors(*({"name": f"n{at}", "match": ""} for at in range(30)))
    assert len(many) == 21
    assert many[-1] == "t: 10 more errors"

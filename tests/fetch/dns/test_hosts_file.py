from __future__ import annotations

import pytest

from krowlspider.fetch.guard import LocalNames, parse_hosts
from tests.support.tables import table


def test_a_hosts_file_maps_every_name_of_a_line() -> None:
    text = "# a\n127.0.0.1 localhost\n10.0.0.1\tDB db.intra # the db\n::2 db\nnonsense\nx y\n\n"
    assert parse_hosts(text) == {
        "localhost": ["127.0.0.1"],
        "db": ["10.0.0.1", "::2"],
        "db.intra": ["10.0.0.1"],
    }


@table(
    ("name", "addresses"),
    [
        ("10.1.2.3", ["10.1.2.3"]),
        ("[::1]", ["::1"]),
        ("::1", ["::1"]),
        ("localhost", ["127.0.0.1", "::1"]),
        ("a.localhost", ["127.0.0.1", "::1"]),
        ("both", ["10.0.0.2", "::2"]),
        ("notlocalhost", None),
        ("example.org", None),
    ],
)
def test_names_that_need_no_dns(name: str, addresses: list[str] | None) -> None:
    assert LocalNames({}, {"both": ["::2", "10.0.0.2"]}).find(name) == addresses


def test_exact_override_precedes_the_longest_suffix() -> None:
    overrides = {"a.test": "10.0.0.1", "*.test": "10.0.0.2", "*.b.test": "[::3]"}
    names = LocalNames(overrides, {"a.test": ["10.9.9.9"]})
    assert names.find("a.test") == ["10.0.0.1"]
    assert names.find("c.test") == ["10.0.0.2"]
    assert names.find("x.y.b.test") == ["::3"]
    assert names.find("b.test") == ["10.0.0.2"]
    assert names.find("test") is None
    assert names.find("atest") is None


def test_an_override_that_is_no_address_is_named() -> None:
    with pytest.raises(ValueError, match=r"'a\.test' is mapped to 'elsewhere'"):
        LocalNames({"a.test": "elsewhere"}, {})

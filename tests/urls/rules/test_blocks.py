"""Rules that block hosts: what a person gives, and which hosts it covers."""

from __future__ import annotations

import pytest

from krowlspider.urls.rules.blocks import Blocks, block_rule


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ("example.org", "org,example,"),
        ("Example.ORG.", "org,example,"),
        ("www.example.org", "www.example.org"),
        ("example.org:8080", "example.org:8080"),
        ("https://example.org/", "example.org"),
        ("blog.github.io", "io,github,blog,"),
        ("192.0.2.1", "192.0.2.1"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("org,example,", "org,example,"),
        ("org,example)", "org,example)"),
        ("http://(org,example,www,)", "org,example,www)"),
        ("org,", "org,"),
    ],
)
def test_a_rule_is_of_a_host_a_domain_or_a_surt_prefix(given: str, rule: str) -> None:
    assert block_rule(given) == rule


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("", "is no host"),
        ("a b", "is no host"),
        ("https://example.org/private/", "exclude it by KROWL_EXCLUDE"),
        ("org,example)/private", "ends with ','"),
        ("org,exa", "ends with ','"),
        (",", "no SURT prefix"),
        ("org,a/b,", "no SURT prefix"),
    ],
)
def test_another_text_is_refused(given: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        block_rule(given)


@pytest.mark.parametrize(
    ("rule", "covered", "free"),
    [
        ("www.example.org", ["www.example.org"], ["www.example.org:8080", "example.org"]),
        ("org,example)", ["example.org", "example.org:81"], ["www.example.org"]),
        (
            "org,example,",
            ["example.org", "a.b.example.org", "www.example.org:81"],
            ["example.org.uk", "myexample.org", "org"],
        ),
        ("[2001:db8::1]", ["[2001:db8::1]"], ["[2001:db8::1]:81", "[2001:db8::2]"]),
    ],
)
def test_a_rule_covers_its_hosts_only(rule: str, covered: list[str], free: list[str]) -> None:
    blocks = Blocks({rule: "note"}.items())
    assert [blocks.rule_of(host) for host in covered] == [rule] * len(covered)
    assert [blocks.rule_of(host) for host in free] == [None] * len(free)

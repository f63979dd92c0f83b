"""Rules that block hosts: what a person gives, and which hosts it covers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.seeds import Blocks, PatternList, block_rule, ordered_host, parse_patterns
from tests.support.tables import table

# What people give for one name at all its ports, and at one port.
NAMES = [
    ("www.example.org", "www.example.org"),
    ("example.org", "example.org"),
    (" WWW.Example.ORG. ", "www.example.org"),
    ("www.example.org:8080", "www.example.org:8080"),
    ("www.example.org.:8080", "www.example.org:8080"),
    ("www.example.org:80", "www.example.org:80"),
    ("www.example.org:443", "www.example.org:443"),
    ("https://www.example.org", "www.example.org"),
    ("HTTP://www.example.org/", "www.example.org"),
    ("http://www.example.org:8080/a?b#c", "www.example.org:8080"),
    ("https://www.example.org:443/", "www.example.org:443"),
    ("www.example.org/private/", "www.example.org"),
    ("www.example.org?u=http://other.test/", "www.example.org"),
    ("www.b\u00fccher.example", "www.xn--bcher-kva.example"),
    ("WWW.B\u00dcCHER.example", "www.xn--bcher-kva.example"),
    ("127.0.0.80", "127.0.0.80"),
    ("127.0.0.80:8080", "127.0.0.80:8080"),
    ("0x7f.80", "127.0.0.80"),
    ("[2001:DB8::1]", "[2001:db8::1]"),
    ("2001:DB8:0::1", "[2001:db8::1]"),
    ("::1", "[::1]"),
    ("[::1]:8080", "[::1]:8080"),
    ("http://[::1]/", "[::1]"),
    ("localhost", "localhost"),
]
NO_NAMES = [
    *("", " ", "a b", ".", ":8080", "ftp://example.org/", "http://", "//example.org/", "/path"),
    *("example.org:port", "example.org:99999", "[::1", "*.example.org", "http://*.example.org/"),
    *(".example.org", "a..example.org", "user@example.org"),
]


@table(("given", "host"), NAMES)
def test_a_name_is_read_as_people_write_it(given: str, host: str) -> None:
    assert ordered_host(given) == host
    assert ordered_host(host) == host


@table("given", NO_NAMES)
def test_what_is_no_name_of_a_host_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="is not the name of "):
        ordered_host(given)


@pytest.mark.parametrize("given", ["x" * 9000, f"http://{'a.' * 127}test/"])
def test_a_name_is_no_longer_than_any_host(given: str) -> None:
    with pytest.raises(ValueError, match="longer than any name of a host"):
        ordered_host(given)


@table(
    ("given", "rule"),
    [
        *((given, host) for given, host in NAMES if host != "example.org"),
        ("example.org", "org,example,"),
        ("Example.ORG.", "org,example,"),
        ("*.example.org", "org,example,"),
        (".www.example.org", "org,example,www,"),
        ("example.org:8080", "example.org:8080"),
        ("https://example.org/", "org,example)"),
        ("https://example.org/private/", "org,example)"),
        ("github.io", "github.io"),
        ("org", "org"),
        ("blog.github.io", "io,github,blog,"),
        ("b\u00fccher.example", "example,xn--bcher-kva,"),
        ("org,example,", "org,example,"),
        ("org,example)", "org,example)"),
        ("http://(org,example,www,)", "org,example,www)"),
        ("org,", "org,"),
    ],
)
def test_a_rule_is_of_a_name_a_domain_or_a_surt_prefix(given: str, rule: str) -> None:
    assert block_rule(given) == rule
    assert block_rule(rule) == rule


@table(
    ("given", "fault"),
    [
        ("", "is no host"),
        ("a b", "is no host"),
        ("a.*.example.org", "is no host"),
        ("org,example)/private", "ends with ','"),
        ("org,exa", "ends with ','"),
        (",", "no SURT prefix"),
        ("org,a/b,", "no SURT prefix"),
        ("org,*,", "no SURT prefix"),
        ("x" * 301, "longer than any name"),
    ],
)
def test_another_text_is_refused(given: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        block_rule(given)


@table(
    ("rule", "covered", "free"),
    [
        ("www.example.org", ["www.example.org", "www.example.org:8080"], ["example.org"]),
        ("www.example.org:81", ["www.example.org:81"], ["www.example.org", "www.example.org:8"]),
        ("www.example.org:80", ["www.example.org", "www.example.org:80"], ["www.example.org:81"]),
        ("www.example.org:443", ["www.example.org"], ["www.example.org:8080"]),
        ("127.0.0.80", ["127.0.0.80", "127.0.0.80:8080"], ["127.0.0.8", "127.0.0.8:80"]),
        ("org,example)", ["example.org", "example.org:81"], ["www.example.org"]),
        (
            "org,example,",
            ["example.org", "a.b.example.org", "www.example.org:81"],
            ["example.org.uk", "myexample.org", "org"],
        ),
        ("[2001:db8::1]", ["[2001:db8::1]", "[2001:db8::1]:81"], ["[2001:db8::2]"]),
        ("[2001:db8::1]:81", ["[2001:db8::1]:81"], ["[2001:db8::1]"]),
    ],
)
def test_a_rule_covers_its_hosts_only(rule: str, covered: list[str], free: list[str]) -> None:
    blocks = Blocks({rule: "note"}.items())
    assert [blocks.rule_of(host) for host in covered] == [rule] * len(covered)
    assert [blocks.rule_of(host) for host in free] == [None] * len(free)


# --- the expressions of excluded URLs ---


def test_each_line_is_an_expression() -> None:
    found = parse_patterns(b"\xef\xbb\xbf# who asked\r\n^https?://a\\.test/\n\n  /private#/  \n")
    assert [pattern.pattern for pattern in found.patterns] == [r"^https?://a\.test/", "/private#/"]
    assert found.bad == ()


def test_bad_line_is_reported_and_the_rest_holds() -> None:
    found = parse_patterns(b"good\nbro(ken\n\xff\n# no\nfine\n")
    assert [pattern.pattern for pattern in found.patterns] == ["good", "fine"]
    assert [number for number, _ in found.bad] == [2, 3]
    assert found.bad[0][1].startswith("not a regular expression: ")
    assert found.bad[1][1] == "not UTF-8"


def test_an_expression_holds_wherever_it_is_found() -> None:
    assert not PatternList().match("https://a.test/x")
    exclusions = parse_patterns(b"//b\\.test/\n/x$")
    assert exclusions.match("https://a.test/x")
    assert exclusions.match("https://b.test/y")
    assert not exclusions.match("https://a.test/xy")


HOST = "http://127.0.0.80:8080/"


@table(
    ("line", "excluded", "free"),
    [
        ("127.0.0.80", ["http://127.0.0.80/", HOST, "https://127.0.0.80:8443/a"], []),
        ("127.0.0.80:8080", [HOST], ["http://127.0.0.80/"]),
        ("http://127.0.0.80/", [HOST, "https://127.0.0.80/"], ["http://127.0.0.8/"]),
        ("[2001:DB8::1]", ["http://[2001:db8::1]:81/"], ["http://a.test/1"]),
        ("2001:db8::1", ["http://[2001:db8::1]:81/"], ["http://a.test/1"]),
        ("[::1]:81", ["http://[::1]:81/"], ["http://[::1]/", "http://a.test:81/"]),
        ("WWW.Example.ORG.", ["https://www.example.org:81/"], ["https://example.org/"]),
        ("Example.org", ["https://a.b.example.org:81/"], ["https://example.com/"]),
        ("https://example.org", ["http://example.org:81/"], ["https://www.example.org/"]),
        ("b\u00fccher.example", ["https://www.xn--bcher-kva.example/"], ["https://bcher.example/"]),
        ("^https?://a[0-9]", ["https://a1.test/"], ["https://b.test/"]),
        # As before, a name is an expression too.
        ("sign.in", ["https://b.test/sign.in?x", "https://sign.in/"], ["https://b.test/"]),
    ],
)
def test_a_name_excludes_its_host_at_all_ports(
    line: str, excluded: list[str], free: list[str]
) -> None:
    found = parse_patterns(line.encode())
    assert not found.bad
    assert [url for url in excluded + free if found.match(url)] == excluded


@given(st.binary())
def test_no_bytes_raise_and_no_line_is_both_good_and_bad(data: bytes) -> None:
    found = parse_patterns(data)
    assert len(found.patterns) + len(found.bad) <= len(data.splitlines())

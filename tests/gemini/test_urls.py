"""The normal form of gemini URLs, and where they belong."""

from __future__ import annotations

from datetime import date

import pytest

from krowlspider.frontier.entry import Entry
from krowlspider.frontier.store.schema import authorities_of
from krowlspider.job.intake import host_finder
from krowlspider.urls.canonical import (
    authority_of,
    domain_of,
    host_of,
    identity,
    normalise,
    normalise_all,
    orders_for,
    path_start,
)
from krowlspider.urls.scope import Traps
from krowlspider.urls.seeds import BadSeed, block_rule, ordered_host, parse_seed

HOSTS = {
    "gemini://example.org/": "example.org:1965",
    "gemini://example.org:1966/a": "example.org:1966",
    "gemini://example.org./": "example.org:1965",
    "gemini://example.org.:1966/": "example.org:1966",
    "gemini://[::1]/": "[::1]:1965",
    "gemini://[::1]:1966/": "[::1]:1966",
    "gemini://127.0.0.1/a//b": "127.0.0.1:1965",
}


@pytest.mark.usefixtures("gemini")
@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("gemini://example.org", "gemini://example.org/"),
        ("GEMINI://Example.ORG:1965/A/./b/../c", "gemini://example.org/A/c"),
        ("gemini://example.org?q", "gemini://example.org/?q"),
        ("gemini://example.org/#part", "gemini://example.org/"),
        ("gemini://example.org:1966/", "gemini://example.org:1966/"),
        ("gemini://bücher.example/é", "gemini://xn--bcher-kva.example/%C3%A9"),
        ("gemini://[::1]:1965/", "gemini://[::1]/"),
        ("gemini://0x7f.1/", "gemini://127.0.0.1/"),
        # The query is what a person has typed: nothing of it is changed.
        ("gemini://example.org/?b=%2b&a&A=%e9'", "gemini://example.org/?b=%2b&a&A=%e9'"),
        ("gemini://example.org/a\\b", "gemini://example.org/a\\b"),
        ("gemini://example.org/" + "a" * 1003, "gemini://example.org/" + "a" * 1003),
        ("gemini://example.org/" + "a" * 1004, None),
        ("gemini://user@example.org/", None),
        ("gemini://user:word@example.org/", None),
        ("gemini:///path", None),
        ("gemini:path", None),
        ("gemini://example.org:99999/", None),
        ("gemini://exa mple.org/", None),
        ("gemini://%00.org/", None),
        ("titan://example.org/", None),
    ],
)
def test_the_normal_form(given: str, normal: str | None):
    assert normalise(given) == normal
    if normal is not None:
        assert normalise(normal) == normal


@pytest.mark.parametrize("given", ["gemini://example.org/", "gemini://example.org", "gemini:x"])
def test_none_is_accepted_without_the_switch(given: str):
    assert normalise(given) is None
    refused: list[str] = []
    assert normalise_all([given, "/a"], "http://a.test/", refused) == ["http://a.test/a"]
    assert refused == [given]


@pytest.mark.usefixtures("gemini")
def test_links_lead_from_web_to_gemini_and_back():
    """Long ones are told from those of other schemes; fragments do not make two of one."""
    long = "gemini://a.test/" + "b" * 1020
    refused, oversize = list[str](), list[str]()
    links = ["gemini://A.test#x", "gemini://a.test/", "mailto:a@b.test", long, "/c?d#e", "//f.test"]
    assert normalise_all(links, "https://web.test/g", refused, oversize) == [
        *("gemini://a.test/", "https://web.test/c?d", "https://f.test/")
    ]
    assert (refused, oversize) == (["mailto:a@b.test"], [long])
    links += ["h", "?i", "http://web.test"]
    found = normalise_all(links, "gemini://a.test/j/k", refused, [])
    assert found == [
        *("gemini://a.test/", "gemini://a.test/c?d", "gemini://f.test/", "gemini://a.test/j/h"),
        *("gemini://a.test/j/k?i", "http://web.test/"),
    ]


@pytest.mark.parametrize(("url", "host"), HOSTS.items())
def test_a_host_has_its_port_always(url: str, host: str):
    assert host_of(url) == host
    assert host_of(authority_of(url) + "/robots.txt") == host
    assert authority_of(url) in authorities_of(host)
    entry = Entry(url, 3, via=url, path="L", chain=(url,))
    read = Entry.decode(entry.encode(host), host)
    assert (read.url, read.via, read.chain, read.depth) == (url, url, (url,), 3)


def test_web_and_gemini_of_a_name_are_two_hosts_of_a_domain():
    hosts = [host_of(f"{scheme}://a.example.org/") for scheme in ("http", "https", "gemini")]
    assert hosts == ["a.example.org", "a.example.org", "a.example.org:1965"]
    assert {domain_of(host) for host in hosts} == {"example.org"}
    assert authorities_of("a.example.org") == ("http://a.example.org", "https://a.example.org")
    assert orders_for(hosts[2]) == ("a.example.org:1965", "a.example.org")


def test_the_identity_keeps_a_query():
    """Web forms have parameters, whose order says nothing. A gemini query is one text."""
    query = "?utm_source=1&b&a"
    assert identity(f"gemini://a.test/{query}") == f"gemini://a.test/{query}"
    assert identity(f"http://a.test/{query}") == "http://a.test/?a&b"


def test_a_page_finds_the_hosts_of_its_links():
    find = host_finder("gemini://a.test/b/c")
    assert find("gemini://a.test/d") == "a.test:1965"
    assert find("gemini://other.test/") == "other.test:1965"
    assert find("http://a.test/") == "a.test"
    assert path_start("gemini://a.test/b") == len("gemini://a.test")


def test_traps_look_at_the_path():
    traps = Traps(skip_extensions=["zip"], today=date(2026, 1, 1))
    assert traps.refusal("gemini://2031-05.test/a") is None
    assert traps.refusal("gemini://a.test/calendar/2031-05") == "calendar"
    assert traps.refusal("gemini://a.test/b.zip") == "extension"


def test_a_seed_without_the_switch_names_it():
    with pytest.raises(BadSeed, match="KROWL_GEMINI=True"):
        parse_seed(b"gemini://example.org/")


@pytest.mark.usefixtures("gemini")
def test_a_seed_may_be_gemini():
    seed = parse_seed(b"gemini://Example.org")
    assert seed is not None
    assert (seed.url, seed.bare) == ("gemini://example.org/", False)
    for line in (b"gemini://a@b.test/", b"gemini://example.org:22/", b"gopher://example.org/"):
        with pytest.raises(BadSeed):
            parse_seed(line)


def test_an_order_may_name_a_gemini_server():
    assert ordered_host("gemini://Example.org/a?b") == "example.org:1965"
    assert ordered_host("gemini://example.org:1966") == "example.org:1966"
    assert block_rule("gemini://www.example.org/") == "www.example.org:1965"
    with pytest.raises(ValueError, match="is not the name of a host"):
        ordered_host("gemini://a@example.org/")

"""Host, authority and domain of a URL."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tldextract import TLDExtract

from krowlspider.urls.canonical import (
    BAD_PORTS,
    RULES,
    Ports,
    authority_of,
    domain_of,
    has_bad_port,
    host_of,
    name_of,
    normalise,
    port_of,
)
from tests.support.tables import table


@table(
    ("url", "host", "authority"),
    [
        ("https://example.com/", "example.com", "https://example.com"),
        ("http://example.com/", "example.com", "http://example.com"),
        ("http://example.com:8080/a", "example.com:8080", "http://example.com:8080"),
        ("http://example.com:443/", "example.com:443", "http://example.com:443"),
        ("https://www.example.com/a//b?c=/d", "www.example.com", "https://www.example.com"),
        ("http://127.0.0.1/", "127.0.0.1", "http://127.0.0.1"),
        ("http://[::1]/", "[::1]", "http://[::1]"),
        ("http://[::1]:8080/", "[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_host_has_its_port_and_authority_its_scheme(url: str, host: str, authority: str) -> None:
    assert host_of(url) == host
    assert authority_of(url) == authority


@pytest.mark.parametrize(
    "url",
    ["", "example.com", "example.com/", "ftp://example.com/", "https://example.com", "https:///x"],
)
def test_other_text_raises(url: str) -> None:
    with pytest.raises(ValueError, match="normalised"):
        host_of(url)
    with pytest.raises(ValueError, match="normalised"):
        authority_of(url)


@given(st.text("ab.:[]1/?#@\\"))
@example(".:1")
def test_normalised_url_begins_with_its_authority(text: str) -> None:
    """Except a root dot: a name with it and without it is one host with one robots.txt."""
    url = normalise(f"http://{text}")
    if url is not None:
        assert authority_of(url) == f"http://{host_of(url)}"
        start, *_ = url.partition("//")[2].partition("/")
        assert start in (host_of(url), host_of(url) + ".") or ".:" in start
        assert domain_of(host_of(url))


@table(
    ("host", "domain"),
    [
        ("example.com", "example.com"),
        ("www.example.com", "example.com"),
        ("www.example.com:8080", "example.com"),
        ("a.b.example.co.uk", "example.co.uk"),
        ("example.com.", "example.com"),
        ("www.xn--mnchen-3ya.de", "xn--mnchen-3ya.de"),
        ("a.b.c.kobe.jp", "b.c.kobe.jp"),
        ("www.city.kobe.jp", "city.kobe.jp"),
        ("www.b.xn--55qx5d.cn", "b.xn--55qx5d.cn"),
    ],
)
def test_a_domain_is_what_its_owner_registered(host: str, domain: str) -> None:
    assert domain_of(host) == domain


LIBRARY = TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)
LISTED = sorted(RULES)


def test_the_rules_are_those_of_tldextract() -> None:
    assert set(LIBRARY.tlds) == RULES


def test_a_wildcard_holds_for_names_with_rules_below_them() -> None:
    """Where *.futurecms.at and *.ex.futurecms.at are rules, tldextract forgets the first."""
    assert {"*.futurecms.at", "*.ex.futurecms.at"} <= RULES
    assert domain_of("ex.futurecms.at") == "ex.futurecms.at"
    assert domain_of("a.b.c.ex.futurecms.at") == "b.c.ex.futurecms.at"


@given(
    st.lists(
        st.sampled_from(["a", "www", "b-c", "xn--mnchen-3ya", "co", "com", "github"]), max_size=3
    ),
    st.one_of(
        st.sampled_from(LISTED), st.sampled_from([rule for rule in LISTED if rule[0] in "*!"])
    ),
)
@settings(max_examples=500)
def test_domains_are_those_of_tldextract(labels: list[str], rule: str) -> None:
    base = rule.replace("*.", "any.").lstrip("!").encode("idna").decode()
    host = ".".join([*labels, base])
    found = LIBRARY.extract_str(host)
    assert domain_of(host) == (found.top_domain_under_public_suffix or host)


def test_users_of_one_hoster_have_domains_of_their_own() -> None:
    assert domain_of("a.alice.github.io") == "alice.github.io"
    assert domain_of("alice.github.io") != domain_of("bob.github.io")


@table(
    ("host", "domain"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1:8080", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[2001:db8::1]:8080", "[2001:db8::1]"),
        ("localhost:80", "localhost"),
        ("intranet", "intranet"),
        ("a.b.internal", "b.internal"),
        ("co.uk", "co.uk"),
        ("github.io", "github.io"),
    ],
)
def test_an_address_or_a_name_without_registry_is_its_own_domain(host: str, domain: str) -> None:
    assert domain_of(host) == domain


def test_the_suffix_list_is_read_without_network_or_cache_folder() -> None:
    """A new interpreter whose sockets and folders fail still finds domains."""
    code = """
import os, socket
def refuse(*a, **k): raise OSError("refused")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
os.makedirs = refuse
from krowlspider.urls.canonical import domain_of
print(domain_of("www.example.co.uk"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "example.co.uk\n"


# --- which ports URLs may have ---


@pytest.mark.parametrize(
    ("host", "name", "port"),
    [
        ("a.test", "a.test", None),
        ("a.test:8080", "a.test", 8080),
        ("1.2.3.4:0", "1.2.3.4", 0),
        ("[::1]", "[::1]", None),
        ("[2001:db8::80]:443", "[2001:db8::80]", 443),
    ],
)
def test_a_host_is_a_name_and_maybe_a_port(host: str, name: str, port: int | None) -> None:
    assert (name_of(host), port_of(host)) == (name, port)


def test_the_ports_that_browsers_block_are_blocked() -> None:
    """The whole table of the Fetch standard."""
    assert len(BAD_PORTS) == 83
    assert all(has_bad_port(f"a.test:{port}") for port in BAD_PORTS)
    for host in ("a.test", "a.test:80", "a.test:443", "a.test:8080", "a.test:6379", "[::25]"):
        assert not has_bad_port(host)


def test_single_ports_are_listed_and_ranges_span() -> None:
    ports = Ports(["80", " 8080 ", "1024-2000", "1-1"])
    assert [port for port in range(70_000) if ports.lists(port)] == [80, 8080]
    assert [port for port in range(70_000) if ports.spans(port)] == [1, *range(1024, 2001)]


@table("text", ["", "a", "-1", "1-", "65536", "2-1", "1-2-3", "22", "٣", "1" * 9])
def test_what_is_no_port_or_range_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=repr(text)):
        Ports(["80", text])

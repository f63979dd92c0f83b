"""The columns of URLs, as commoncrawl/cc-index-table makes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.catalogue.records.hosts import HostColumns, Parts, host_of, split
from tests.support.tables import table


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "host1.sub2.subdomain.Example.com",
            HostColumns(
                "host1.sub2.subdomain.example.com",
                *("com", "example", "subdomain", "sub2", "host1"),
                *("com", "example.com", "com", "example.com"),
                "com.example.subdomain.sub2.host1",
            ),
        ),
        (
            "bbc.co.uk",
            HostColumns(
                "bbc.co.uk",
                *("uk", "co", "bbc", None, None),
                *("co.uk", "bbc.co.uk", "co.uk", "bbc.co.uk"),
                "uk.co.bbc",
            ),
        ),
        (
            "myblog.blogspot.com",
            HostColumns(
                "myblog.blogspot.com",
                *("com", "blogspot", "myblog", None, None),
                *("com", "blogspot.com", "blogspot.com", "myblog.blogspot.com"),
                "com.blogspot.myblog",
            ),
        ),
        ("192.0.2.1", HostColumns("192.0.2.1")),
        ("[2001:db8::1]", HostColumns("[2001:db8::1]")),
        (
            "localhost",
            HostColumns("localhost", "localhost", *(None,) * 8, "localhost"),
        ),
    ],
)
def test_names(name: str, expected: HostColumns):
    assert host_of(name) == expected


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("co.uk", None),
        ("www.example.com.", "example.com"),
        # A wildcard rule, and an exception of it.
        ("a.b.kawasaki.jp", "a.b.kawasaki.jp"),
        ("www.city.kawasaki.jp", "city.kawasaki.jp"),
        # A rule in Unicode.
        ("www.xn--55qx5d.cn", "www.xn--55qx5d.cn"),
        ("a.unlisted-suffix", None),
    ],
)
def test_registered_domains(name: str, domain: str | None):
    assert host_of(name).registered_domain == domain


@pytest.mark.parametrize(
    ("name", "ascii_name"),
    [
        # Of HostNameTest in commoncrawl/cc-index-table.
        ("www.🧠.com", "www.xn--qv9h.com"),
        ("%f0%9f%a7%a0.s.country", "xn--qv9h.s.country"),
        ("münchen.de", "xn--mnchen-3ya.de"),
        ("www.\x7f.com", "www.\x7f.com"),
    ],
)
def test_names_are_ascii(name: str, ascii_name: str):
    assert host_of(name).name == ascii_name


@table(
    ("url", "name", "parts"),
    [
        (
            "https://www.example.com:8443/path/index.html?q=abc&lang=en#part",
            "www.example.com",
            Parts("https", 8443, "/path/index.html", "q=abc&lang=en"),
        ),
        ("https://example.com:443/", "example.com", Parts("https", 443, "/", None)),
        ("http://example.com/?", "example.com", Parts("http", None, "/", "")),
        ("http://user:pass@example.com/", "example.com", Parts("http", None, "/", None)),
        ("http://[2001:db8::1]:8080/", "[2001:db8::1]", Parts("http", 8080, "/", None)),
        ("dns:www.example.com", "www.example.com", Parts("dns", None, "", None)),
        # Of WarcUriTest.
        *(
            (f"{start}www.google.com/robots.txt", "www.google.com", Parts(kind, None, path, None))
            for kind, path in (("http", "/robots.txt"), ("https", "/robots.txt"))
            for start in (f"{kind}:/", f"{kind}://", f"{kind}:////")
        ),
        (
            "http://sites.google.com////robots.txt",
            "sites.google.com",
            Parts("http", None, "////robots.txt", None),
        ),
    ],
)
def test_urls(url: str, name: str, parts: Parts):
    host, found = split(url)
    assert (host.name, found) == (name, parts)


@given(st.text(max_size=60))
def test_any_text_has_columns(url: str):
    host, parts = split(url)
    assert host.name == host.name.lower()
    assert parts.path is not None

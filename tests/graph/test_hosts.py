"""Hosts and domains as vertices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.graph.adjacency import Graph
from krowlspider.graph.domains import fold
from krowlspider.graph.hosts import host_in, reverse
from krowlspider.graph.text_form import Names
from tests.support.tables import table

# The pairs of TestHostToDomainGraph of cc-webgraph, and how many hosts each domain has.
FOLDED = [
    (
        "com.example com.example.www com.example.xyz org.example",
        "com.example 3 org.example 1",
    ),
    (
        (
            "ac.e-bike ac.e-bikes ac.e-com ac.e.subdomain ac.eagle ac.gov ac.gov.ascension"
            " ac.gov.ascension-island ac.gov.ascension.mail ac.gov.conservation-ascension-island"
            " ac.gov.postoffice"
        ),
        (
            "ac.e 1 ac.e-bike 1 ac.e-bikes 1 ac.e-com 1 ac.eagle 1 ac.gov.ascension 2"
            " ac.gov.ascension-island 1 ac.gov.conservation-ascension-island 1 ac.gov.postoffice 1"
        ),
    ),
    (
        (
            "no.hordaland no.hordaland-teater no.hordaland.os no.hordaland.os.bibliotek"
            " no.hordaland.oygarden no.hordalandfolkemusikklag"
        ),
        (
            "no.hordaland 2 no.hordaland-teater 1 no.hordaland.os.bibliotek 1"
            " no.hordalandfolkemusikklag 1"
        ),
    ),
    (
        (
            "no.hedland no.hedmark-folkemusikklag no.hedmark-trafikk no.hedmark.m no.hedmark.os.www"
            " no.hedmark.www no.hedmarktrafikk"
        ),
        (
            "no.hedland 1 no.hedmark 2 no.hedmark-folkemusikklag 1 no.hedmark-trafikk 1"
            " no.hedmark.os.www 1 no.hedmarktrafikk 1"
        ),
    ),
]


@table(
    ("reference", "host"),
    [
        ("https://www.example.org/a", "org.example"),
        ("HTTP://User:pw@WWW.Example.ORG:8080?q", "org.example"),
        ("//sub.example.org#x", "org.example.sub"),
        (" \n//example.org/", "org.example"),
        (r"https:\\example.org\a", "org.example"),
        ("https://example.org./", "org.example"),
        ("https://www.com/", "com.www"),
        ("https://münchen.de/", "de.xn--mnchen-3ya"),
        ("https://a_b.example.org/", "org.example.a_b"),
        ("gemini://example.org/a", "org.example:1965"),
        ("gemini://www.example.org:01966", "org.example:1966"),
        ("gemini://example.org:", "org.example:1965"),
        *(
            (none, None)
            for none in (
                *("/a", "a.html", "?b", "#c", "", "mailto:a@b.c", "javascript://a.b/", "http:a.b"),
                *("ftp://example.org/", "file:///C:/a", "https://192.0.2.1/", "https://[::1]/"),
                *("https://localhost/", "https://-a.org/", "https://a..org/", "https://a b.org/"),
                *("https://www.1.2.3.4/", f"https://{'a' * 64}.org/", "https://é\udc80.org/"),
                *(f"https://{'a.' * 150}org/", "gemini://example.org:x/", "https://\0.org"),
            )
        ),
    ],
)
def test_a_reference_leads_to_a_host(reference: str, host: str | None):
    assert host_in(reference) == host


def test_a_reference_without_a_scheme_has_that_of_its_page():
    assert host_in("//example.org/", "gemini:") == "org.example:1965"


@given(st.text(max_size=300))
def test_any_reference_gives_a_name_or_none(reference: str):
    for text in (reference, f"https://{reference}", f"gemini://{reference}.org"):
        host = host_in(text)
        assert host is None or (host.isascii() and not set(host) & set(" \t\r\n/"))


@pytest.mark.parametrize("name", ["example.org", "a.b.c", "example.org:1965", "org"])
def test_reversing_twice_gives_the_name(name: str):
    assert reverse(reverse(name)) == name
    assert reverse("www.example.org:1965") == "org.example.www:1965"


@pytest.mark.parametrize(("hosts", "domains"), FOLDED)
def test_hosts_fold_as_in_common_crawl(hosts: str, domains: str):
    names = Names("".join(f"{each}\n" for each in hosts.split()).encode())
    folded = fold(Graph.of(len(names), []), names)
    found = " ".join(
        f"{name} {count}" for name, count in zip(folded.names, folded.hosts, strict=True)
    )
    assert found == domains


def test_links_fold_with_their_hosts():
    """Those within a domain, and of public suffixes, are left out; a capsule is of its domain."""
    hosts = ["com.example", "com.example.www:1965", "test.a.b", "test.c.d", "uk.co", "uk.co.a"]
    names = Names("".join(f"{each}\n" for each in hosts).encode())
    links = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (5, 1)]
    folded = fold(Graph.of(len(names), links), names)
    assert list(folded.names) == ["com.example", "test.a", "test.c", "uk.co.a"]
    ends = np.stack((folded.graph.sources, folded.graph.targets), axis=1).tolist()
    assert ends == [[0, 1], [1, 2], [3, 0]]
    assert folded.hosts.tolist() == [2, 1, 1, 1]

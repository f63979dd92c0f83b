"""Keys equal those of the ``surt`` package, which pywb and cdxj-indexer use; each test calls it."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.archive.surt import surt
from krowlspider.urls.canonical import normalise
from tests.support.tables import table
from tests.support.work import seconds

with warnings.catch_warnings():
    # Of expressions that are no raw strings.
    warnings.simplefilter("ignore")
    import surt as theirs

LETTERS = "abcdefghijklmnopqrstuvwxyz"
HEX = "0123456789abcdef" * 2
FOLDER = "(s(abcdefghijklmnopqrstuvwx))"

# fmt: off
KEYS = {
    # Hosts.
    "http://example.org/": "org,example)/",
    "https://example.org": "org,example)/",
    "http://www.example.org/": "org,example)/",
    "http://www2.example.org/": "org,example)/",
    "http://www.www.org/": "org,www)/",
    "http://www/": "www)/",
    "http://wwwx.org/": "org,wwwx)/",
    "http://www.org/": "org)/",
    "HTTP://User:Pass@WWW.Example.ORG:80/": "org,example)/",
    "http://example.org./": "org,example)/",
    "http://example..org/": "org,example)/",
    "http://exa_mple.org/": "org,exa_mple)/",
    "http://b%C3%BCcher.example/": "example,xn--bcher-kva)/",
    "http://bücher.example/ü?ü": "example,xn--bcher-kva)/%c3%bc?%c3%bc",
    "http://xn--bcher-kva.example/": "example,xn--bcher-kva)/",
    "http://%65xample.org/": "org,example)/",
    "http://a b/": "a%20b)/",
    # Addresses.
    "http://127.0.0.1/": "1,0,0,127)/",
    "http://www.127.0.0.1.example/": "example,1,0,0,127)/",
    "http://1.2.3/": "3,0,2,1)/",
    "http://010.1.1.1/": "1,1,1,8)/",
    "http://0.0.0.0/": "0,0,0,0)/",
    "http://4294967297/": "1,0,0,0)/",
    "http://[::1]:8080/a": "::1:8080)/a",
    "http://[2001:DB8::1]/": "2001:db8::1)/",
    # Ports.
    "http://example.org:8080/": "org,example:8080)/",
    "http://example.org:443/": "org,example:443)/",
    "https://example.org:443/": "org,example)/",
    "http://example.org:/": "org,example)/",
    "http://example.org:0/": "org,example)/",
    "ftp://example.org:21/A": "org,example:21)/a",
    # Paths.
    "http://a.b/A/B/": "b,a)/a/b",
    "http://a.b//x///y": "b,a)/x/y",
    "http://a.b/x/./y/../z": "b,a)/x/z",
    "http://a.b/..": "b,a)/..",
    "http://a.b/../../x": "b,a)/x",
    "http://a.b/.well-known/x": "b,a)/.well-known/x",
    "http://a.b/x%2Fy%3Fz%23w": "b,a)/x/y?z%23w",
    "http://a.b/100%25": "b,a)/100%25",
    "http://a.b/%2541": "b,a)/a",
    "http://a.b/caf%E9": "b,a)/caf%e9",
    "http://a.b/x;y=z,(1)!$*": "b,a)/x;y=z,(1)!$*",
    'http://a.b/"[]^`{|}\\': 'b,a)/"[]^`{|}\\',
    "http://a.b/x#y": "b,a)/x",
    # Queries.
    "http://a.b/?": "b,a)/",
    "http://a.b/?#": "b,a)/",
    "http://a.b/?b=2&a=1": "b,a)/?a=1&b=2",
    "http://a.b/?b=2&a=2&a=1": "b,a)/?a=1&a=2&b=2",
    "http://a.b/?a&a=": "b,a)/?a&a=",
    "http://a.b/?a-=1&a=2": "b,a)/?a=2&a-=1",
    "http://a.b/?X=Y": "b,a)/?x=y",
    "http://a.b/?b&": "b,a)/?&b",
    "http://a.b/?&": "b,a)/?&",
    "http://a.b/?a=1%26b=2": "b,a)/?a=1&b=2",
    "http://a.b/?a=%20+": "b,a)/?a=%20+",
    "http://a.b?x": "b,a)/?x",
    # Session ids.
    f"http://a.b/?jsessionid={HEX}": "b,a)/",
    f"http://a.b/?x&JSESSIONID={HEX}&y": "b,a)/?x&y",
    f"http://a.b/?PHPSESSID={HEX}&x": "b,a)/?x",
    f"http://a.b/?x&sid={HEX}": "b,a)/?&x",
    f"http://a.b/?unresid={HEX}&x": "b,a)/?unrex",
    f"http://a.b/?sid={HEX}0&x": f"b,a)/?sid={HEX}0&x",
    f"http://a.b/?sid={HEX}&sid={HEX}": f"b,a)/?&sid={HEX}",
    f"http://a.b/?ASPSESSIONIDABCDEFGH={LETTERS[:24]}&x": "b,a)/?x",
    "http://a.b/?cfid=1&cftoken=2&x": "b,a)/?x",
    "http://a.b/?cfid=1&x&cftoken=2": "b,a)/?cfid=1&cftoken=2&x",
    f"http://a.b/{FOLDER}/page.aspx": "b,a)/page.aspx",
    f"http://a.b/({LETTERS[:24]})/page.ASPX?x": "b,a)/page.aspx?x",
    f"http://a.b/{FOLDER}/page.html": f"b,a)/{FOLDER}/page.html",
    f"http://a.b/;jsessionid={HEX}": f"b,a)/;jsessionid={HEX}",
    # What is not of the web.
    "dns:www.Example.ORG": "dns:www.example.org",
    "urn:uuid:ABC": "urn:uuid:abc",
    "whois://whois.example/X": "example,whois)/x",
    "foo:?a": "foo:/?a",
    "http://": "http:",
    "http:///example.org/x": "org,example)/x",
    "http:////": "http:/",
    "http://http://example.org/": "org,example)/",
    "https://http://example.org:443/": "org,example:443)/",
    "example.org/x": "org,example)/x",
    " http://exa\nmple.org/\t": "org,example)/",
    "": "-",
}
# fmt: on


@table("url", KEYS)
def test_key_is_the_one_pywb_looks_up(url: str) -> None:
    assert surt(url) == KEYS[url] == theirs.surt(url)


@pytest.mark.parametrize("url", ["http://a.b:x/", "http://a.b:+8/", "http://a.b:65536/y z"])
def test_url_with_an_invalid_port_is_its_own_key(url: str) -> None:
    with pytest.raises(ValueError, match=r"[Pp]ort"):
        theirs.surt(url)
    assert surt(url) == url


PIECES = st.sampled_from(
    [
        *("/", "//", "/./", "/../", "/x", "/X.html", ";", "?", "&", "=", "a", "B", "-", "+", "#"),
        *("%20", "%25", "%2f", "%2e", "%3F", "%26", "%23", "%c3%bc", "%FF", "%", "%4", "ü", "|"),
        *("sid=", HEX, "jsessionid=", "PHPSESSID=", "cfid=", "cftoken=", "&sid=", LETTERS[:24]),
        *(f"aspsessionid{LETTERS[:8]}=", FOLDER, f"({LETTERS[:24]})", ".aspx", "(", ")", "a=b&"),
    ]
)
HOSTS = st.sampled_from(
    [
        *("example.org", "www.example.org", "www12.x", "www", "localhost", "xn--bcher-kva.de"),
        *("1.2.3.4", "0.0.0.0", "192.0.2.1", "[::1]", "[2001:db8::ff]", "a1", "x.y1", "a.b."),
        *("BÜCHER.example", "Example.ORG", "%77ww.x.org", "u:p@x.org", "1.2", "07.1.1.255", "12"),
    ]
)
PORTS = st.sampled_from(["", "", "", ":80", ":443", ":8080", ":"])
SCHEMES = st.sampled_from(["http://", "https://", "HTTP://", "ftp://"])
URLS = st.builds(
    lambda scheme, host, port, rest: scheme + host + port + "".join(rest),
    SCHEMES,
    HOSTS,
    PORTS,
    st.lists(PIECES, max_size=8).map(lambda rest: ["/", *rest]),
)


@given(URLS)
def test_any_url_has_the_key_of_the_surt_package(url: str) -> None:
    assert surt(url) == theirs.surt(url)
    fetched = normalise(url)
    if fetched is not None:
        assert surt(fetched) == theirs.surt(fetched)


@given(st.text(max_size=40))
def test_any_path_and_query_has_the_key_of_the_surt_package(text: str) -> None:
    for url in (f"http://example.org/{text}", f"https://example.org/?{text}", f"dns:{text}"):
        assert surt(url) == theirs.surt(url)
        assert surt(url).isascii()
        assert not surt(url).split()[1:]


@given(
    st.text(LETTERS + "0123456789-._%~ äßİ✓", min_size=1, max_size=20).filter(
        # They would ask the DNS for what looks like an address and is none.
        lambda name: not name.strip(".")[-1:].isdigit()
    )
)
def test_any_host_has_the_key_of_the_surt_package(name: str) -> None:
    assert surt(f"http://{name}/") == theirs.surt(f"http://{name}/")


@pytest.mark.parametrize(
    "url",
    [
        "http://a.b/?" + "cfid=" * 3000,
        "http://a.b/?" + "sid=" * 3000,
        "http://a.b/?" + "&cftoken=" + "cfid=1" * 2500,
        "http://a.b/" + f"{FOLDER}/" * 500 + ".aspx?",
        "http://a.b/%" + "25" * 7000,
    ],
)
def test_longest_url_takes_little_time(url: str) -> None:
    assert seconds(lambda: surt(url), enough=0.5) < 0.5

"""URLs, as the ancestor's tests have them, and where this project differs.

The cases are those of tlgsutils/tests: url_parser_test.cpp, url_blacklist_test.cpp, trie_test.cpp,
and LinkCompositionTest and NonUriActionTest of utils_test.cpp. Its other tests are in test_gemtext,
test_robots and test_ascii_art, but for those of what is not here: its hash, its escapes for
PostgreSQL, and the keys of users on shared hosts by which it ranks.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from krowlspider.urls.canonical import host_of, normalise
from krowlspider.urls.seeds import parse_patterns
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("gemini")


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("http://example.com", "http://example.com/"),
        ("gemini://localhost/index.gmi?15", "gemini://localhost/index.gmi?15"),
        ("gemini://localhost:1965/index.gmi?15", "gemini://localhost/index.gmi?15"),
        ("gemini://localhost:1966", "gemini://localhost:1966/"),
        ("GEMINI://localhost", "gemini://localhost/"),
        ("gemini://localhost/a/../b", "gemini://localhost/b"),
        ("gemini://localhost:1965/aaa", "gemini://localhost/aaa"),
        # The ancestor keeps fragments, and takes them away before each request. Here the normal
        # form has none.
        ("gemini://localhost/aaa#123", "gemini://localhost/aaa"),
        ("gemini://localhost/aaa?456#123", "gemini://localhost/aaa?456"),
        ("gemini://localhost/aaa#123?456", "gemini://localhost/aaa"),
        # The ancestor refuses these two. Browsers read them as http://example.com/, and so do the
        # authors who write them.
        ("http:/example.com", "http://example.com/"),
        ("http://example.com:/", "http://example.com/"),
    ],
)
def test_urls_are_normalised(given: str, normal: str):
    assert normalise(given) == normal


def test_hosts_have_their_ports():
    """The ancestor guesses the port of a scheme, 80 and 1965."""
    assert host_of("http://example.com/") == "example.com"
    assert host_of("gemini://localhost/") == "localhost:1965"
    assert host_of("gemini://localhost:1966/") == "localhost:1966"


@pytest.mark.parametrize(
    "given",
    [
        *("$!@://example.com", "./example.com", "http://example.com:ababababa", "://example.com"),
        *("", "://", "geini://example.com:65536/", "geini://example.com:-1/"),
        *("geini://example.com:0/", "gemini/example://example.com/"),
        *("/example.com//gemini://example.com/", "example.com//example.com"),
        # Without a page around them, these name no scheme.
        *("//smol.pub/", "//smol.pub/123456"),
        # Ports that the typing error above hides.
        *("gemini://example.com:65536/", "gemini://example.com:-1/"),
    ],
)
def test_other_texts_are_no_urls(given: str):
    assert normalise(given) is None


def test_a_scheme_in_front_of_a_url_is_a_name_without_answer():
    """The ancestor refuses it. By both standards it is the path //example.com at a host "gemini"
    with an empty port: no name server knows it."""
    assert normalise("http://gemini://example.com") == "http://gemini//example.com"


def test_an_empty_label_is_a_name_without_answer():
    """The ancestor refuses it; here the name server does."""
    assert normalise("gemini://.smol.pub/") == "gemini://.smol.pub/"


@pytest.mark.parametrize(
    ("base", "reference", "joined"),
    [
        ("gemini://localhost/", "/dir", "gemini://localhost/dir"),
        ("gemini://localhost/asd", "/dir", "gemini://localhost/dir"),
        ("gemini://localhost/asd", "dir", "gemini://localhost/dir"),
        ("gemini://localhost/asd/", "dir", "gemini://localhost/asd/dir"),
        ("gemini://localhost/asd/", "dir/", "gemini://localhost/asd/dir/"),
        ("gemini://localhost/asd#123456", "dir/", "gemini://localhost/dir/"),
        ("gemini://localhost/asd/zxc", "../dir", "gemini://localhost/dir"),
        ("gemini://localhost/asd?123", "dir", "gemini://localhost/dir"),
        ("gemini://localhost/asd", "dir?123", "gemini://localhost/dir?123"),
        ("gemini://localhost/asd#123", "dir?789", "gemini://localhost/dir?789"),
        ("gemini://127.0.0.1/asd#123", "dir?789", "gemini://127.0.0.1/dir?789"),
        ("gemini://localhost/test/one.gmi", "../two.gmi", "gemini://localhost/two.gmi"),
        (
            "gemini://dhammapada.example.com/chapter-3/33.gmi",
            "../chapter-2/32.gmi",
            "gemini://dhammapada.example.com/chapter-2/32.gmi",
        ),
        # The normal form has no fragment.
        ("gemini://localhost/asd#123456", "dir#789", "gemini://localhost/dir"),
        # From its tests of URLs: the scheme is that of the page.
        ("gemini://localhost/", "//smol.pub/123456", "gemini://smol.pub/123456"),
    ],
)
def test_references_are_joined(base: str, reference: str, joined: str):
    assert normalise(reference, base) == joined


@pytest.mark.parametrize("action", ["javascript:void(2)", "mailto:tom@example.com"])
def test_actions_are_no_links(action: str):
    assert normalise(action, "gemini://localhost/") is None


# The ancestor's blacklist is a list of prefixes. KROWL_EXCLUDE is one of expressions, in which "^"
# begins a prefix and "(?:[/?]|$)" ends one of whole segments.
EXCLUDED = rb"""
gemini://example.com/
^gemini://example\.org/
^gemini://example\.net/cgi-bin(?:[/?]|$)
^gemini://example\.gov/data/
^gemini://example\.gov/data3(?:[/?]|$)
"""


@pytest.mark.parametrize(
    ("given", "is_blocked"),
    [
        *(("gemini://example.com/", True), ("gemini://example.com/index.gmi", True)),
        # Its trie does not block the first one, its blacklist does.
        *(("gemini://example.com", True), ("gemini://example.org/", True)),
        *(("gemini://example.org/index.gmi", True), ("gemini://example.net/cgi-bin", True)),
        ("gemini://example.net/cgi-bin/get-data?123456", True),
        ("gemini://example.net/cgi-bin/get-data?123456#123", True),
        *(("gemini://example.net/data/cgi-bin", False), ("gemini://example.online/", False)),
        *(("gemini://example", False), ("gemini://example.gov/data", False)),
        ("gemini://example.gov/test/../data/", True),
        *(("gemini://example.gov/data3#test", True), ("http://example.com", False)),
    ],
)
def test_prefixes_are_excluded(given: str, is_blocked: bool):
    found = parse_patterns(EXCLUDED)
    url = normalise(given)
    assert found.bad == ()
    assert url is not None
    assert found.match(url) is is_blocked


# Forms of prefixes that are in the ancestor's blacklist (tlgs/crawler/blacklist.cpp).
PREFIXES = """# of our own
gemini://www.example.com/

gemini://tictactoe.example.eu
gemini://wiki.example.org:1966
gemini://music.example.com/song.gmi.php/
gemini://search.example.nu/search?
gemini://club.example/~sloum/geminews
gemini://calc.example.com/cgi-bin/calc.cgi?
gemini://odd.example.com/a+b(c)[d]|$^*
"""


@pytest.mark.parametrize(
    ("given", "is_blocked"),
    [
        *(("gemini://www.example.com", True), ("gemini://www.example.com/a/b?c", True)),
        *(("http://www.example.com/", False), ("gemini://example.com/", False)),
        *(("gemini://www.example.com:1966/", False), ("gemini://tictactoe.example.eu/o-x", True)),
        *(("gemini://tictactoe.example.eu:1966/", False), ("gemini://wiki.example.org/", False)),
        *(("gemini://wiki.example.org:1966/a", True), ("gemini://wiki.example.org:19660/", False)),
        ("gemini://tictactoe.example.eu.example/", False),
        ("gemini://music.example.com/song.gmi.php/a", True),
        ("gemini://music.example.com/song-gmi-php/a", False),
        ("gemini://search.example.nu/search?a", True),
        ("gemini://search.example.nu/search/a", False),
        ("gemini://club.example/~sloum/geminews", True),
        ("gemini://club.example/~sloum/geminews/1.gmi", True),
        ("gemini://calc.example.com/cgi-bin/calc.cgi?1+1", True),
        ("gemini://calc.example.com/cgi-bin/calcXcgi?1", False),
        ("gemini://odd.example.com/a+b(c)[d]|$^*", True),
    ],
)
def test_a_list_of_prefixes_becomes_a_file_of_exclusions(
    tmp_path: Path, given: str, is_blocked: bool
):
    """By the line of docs/gemini.md, as it is there."""
    [line] = [
        each
        for each in (ROOT / "docs/gemini.md").read_text().splitlines()
        if each.startswith("sed ")
    ]
    (tmp_path / "prefixes.txt").write_text(PREFIXES)
    made = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, check=True)
    found = parse_patterns(made.stdout)
    url = normalise(given)
    assert found.bad == ()
    assert len(made.stdout.splitlines()) == 8
    assert url is not None
    assert found.match(url) is is_blocked

"""Mirrors and pages without end are found by their URLs, and capped.

Cases marked TLGS are of its blacklist (tlgs/crawler/blacklist.cpp).
"""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.gemini.mirrors import (
    FOLDER_MAX,
    MIRRORED_MAX,
    QUERIES_MAX,
    Mirrors,
    group_of,
    kind_of,
)
from krowlspider.job.parts import trap_rules
from krowlspider.urls.scope import Scope, ScopeRules, Traps
from tests.rpc.urlfrontier.served import project_settings

HOST = "gemini://example.org"


def rules(groups: int = 100) -> tuple[Mirrors, list[str]]:
    """Return the rules, and the groups that they report."""
    full: list[str] = []
    traps = Traps(skip_extensions=["zip"], today=date(2026, 11, 21))
    return Mirrors(traps, full.append, groups), full


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        # TLGS: its lists of code, RFCs, manual pages, encyclopedias and proxies.
        *(("gemini://wp.pitr.ca/", "encyclopedia"), ("gemini://wp.glv.one/", "encyclopedia")),
        ("gemini://wikipedia.geminet.org:1966/", "encyclopedia"),
        ("gemini://drewdevault.com/cgi-bin/web.sh?https://example.org", "proxy"),
        *(("gemini://gemiprox.pollux.casa/", "proxy"), ("gemini://ecs.d2evs.net/proxy/", "proxy")),
        ("gemini://gemini.bortzmeyer.org/rfc-mirror/rfc9309.txt", "rfc"),
        *(("gemini://chris.vittal.dev/rfcs", "rfc"), ("gemini://gmi.noulin.net/rfc", "rfc")),
        ("gemini://hellomouse.net/user-pages/handicraftsman/ietf/", "rfc"),
        ("gemini://going-flying.com/git/cgi/gemini.git/", "git"),
        ("gemini://szczezuja.flounder.online/git/", "git"),
        ("gemini://gmi.noulin.net/man", "man"),
        # TLGS: its patterns of repositories and proxies of gopher.
        (f"{HOST}/gemserv.git/tree/src", "git"),
        *((f"{HOST}/x.git/blob/a.c", "git"), (f"{HOST}/cgi-bin/git.sh", "git")),
        (f"{HOST}/x/commits/0123abcd/a.gmi", "git"),
        *(
            ("gemini://git.sr.example/~a/b", "git"),
            (f"{HOST}/gopher:/:/gopher.floodgap.com", "proxy"),
        ),
        # Others of these kinds.
        *((f"{HOST}/man1/ls.1", "man"), (f"{HOST}/manpages/openbsd/ssh", "man")),
        *((f"{HOST}/rfc/rfc1436.gmi", "rfc"), (f"{HOST}/docs/rfc3986", "rfc")),
        *((f"{HOST}/cgi/p?https%3A%2F%2Fexample.com", "proxy"), (f"{HOST}/https/a.com/b", "proxy")),
        (f"{HOST}/project/commit/7c9e6679a1b2", "git"),
    ],
)
def test_mirrors_have_a_kind(url: str, kind: str):
    assert kind_of(url) == kind


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/gemlog/2026-01-01-git-and-me.gmi", "/digit/1.gmi", "/manual.gmi", "/woman/1.gmi"),
        *("/many/", "/~ann/", "/tree/", "/trees/oak.gmi", "/commit.gmi", "/refs/people.gmi"),
        *("/posts/why-i-read-rfc-1436.gmi", "/wiki/Main", "/proxy.gmi", "/blob/", "/http.gmi"),
        *("/search?rfc", "/std/", "/notes/wikipedia.gmi", "/human/", "/Emmanuel/a.gmi"),
        "/tree/oak/",
    ],
)
def test_pages_of_people_have_none(path: str):
    """None of 2,654 pages of 68 capsules with public sources has one either."""
    assert kind_of(HOST + path) is None


def test_a_mirror_is_capped_and_reported_once():
    mirrors, full = rules()
    urls = [f"{HOST}/man/{number}" for number in range(MIRRORED_MAX + 3)]
    found = [mirrors.refusal(url) for url in urls]
    assert found == [None] * MIRRORED_MAX + ["mirror"] * 3
    assert full == ["example.org man"]
    assert mirrors.refusal(f"{HOST}/gemlog/") is None
    assert mirrors.refusal("gemini://example.org:1966/man/1") is None


def test_answers_of_a_program_are_capped():
    """TLGS lists games, calculators and searches one by one."""
    mirrors, full = rules()
    urls = [f"{HOST}/cgi-bin/tictactoe?{number:x}" for number in range(QUERIES_MAX + 1)]
    assert [mirrors.refusal(url) for url in urls] == [None] * QUERIES_MAX + ["mirror"]
    assert mirrors.refusal(f"{HOST}/cgi-bin/weather?oslo") is None
    assert full == ["example.org/cgi-bin/tictactoe?"]


@pytest.mark.parametrize(
    "path",
    ["/oeis/A{0:06}", "/calendar/{1}/{2:02}/{3:02}.gmi", "/z/{4:08x}/index.gmi", "/{0}/{0}.gmi"],
)
def test_pages_without_end_are_capped(path: str):
    mirrors, full = rules()
    pages = (
        path.format(n, 1970 + n // 336, n // 28 % 12 + 1, n % 28 + 1, n * 0x10001)
        for n in range(FOLDER_MAX + 1)
    )
    found = [mirrors.refusal(HOST + page) for page in pages]
    assert found == [None] * FOLDER_MAX + ["mirror"]
    assert len(full) == 1


def test_months_beyond_next_year_are_refused_at_once():
    mirrors, _ = rules()
    assert mirrors.refusal(f"{HOST}/calendar/2031/05/") == "calendar"


def test_groups_are_bounded():
    mirrors, _ = rules(groups=2)
    for _ in range(MIRRORED_MAX):
        mirrors.refusal(f"{HOST}/man/1")
    assert mirrors.refusal(f"{HOST}/man/1") == "mirror"
    mirrors.refusal(f"{HOST}/a/")
    mirrors.refusal(f"{HOST}/b/")
    assert mirrors.refusal(f"{HOST}/man/1") is None


def test_the_web_has_no_caps():
    mirrors, _ = rules()
    found = {mirrors.refusal("https://example.org/man/1") for _ in range(2 * MIRRORED_MAX)}
    assert found == {None}
    assert mirrors.refusal("https://example.org/a.zip") == "extension"


@pytest.mark.parametrize(("is_on", "last"), [(True, "mirror"), (False, None)])
def test_a_crawl_caps_with_the_setting_alone(is_on: bool, last: str | None):
    settings = project_settings()
    settings.set("KROWL_GEMINI", is_on)
    scope = Scope(ScopeRules(), max_url_length=1024, traps=trap_rules(settings))
    urls = [f"{HOST}/man/{number}" for number in range(MIRRORED_MAX + 1)]
    hosts = ["example.org:1965"] * len(urls)
    assert scope.refusals(urls, hosts, 1, "example.org:1965")[-1] == last
    # What a person names is no link.
    assert scope.refusal(urls[0], hosts[0], 0, None) is None


@given(st.text(max_size=100))
def test_no_url_raises(path: str):
    kind_of(f"{HOST}/{path}")
    assert len(group_of(f"{HOST}/{path}").name) < 300

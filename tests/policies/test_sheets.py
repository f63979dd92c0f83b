"""Sheets: what they cover, which decides, and the errors of a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.policies import sheets
from krowlspider.policies.keys import KEYS, Policy
from krowlspider.policies.rewrites import rewritten
from krowlspider.policies.sheets import BadPolicies, Policies, _parts
from krowlspider.urls import seeds
from krowlspider.urls.canonical import RULES, is_public_suffix, normalise
from tests.support.tables import table

DOCS = Path(__file__).parents[2] / "docs" / "policies.md"


def sheet(name: str, match: str, *rows: str) -> str:
    return "\n".join(["[[sheet]]", f'name = "{name}"', f"match = ['{match}']", *rows, ""])


def parsed(*sheets: str) -> Policies:
    return Policies.parse("".join(sheets), "p.toml", delay_min=0.25)


def errors(*sheets: str) -> list[str]:
    with pytest.raises(BadPolicies) as raised:
        parsed(*sheets)
    return raised.value.errors


# From the least to the most specific, for http://www.example.org:8080/news/a?b at 192.0.2.7.
RANKS = (
    "192.0.0.0/16",
    "192.0.2.0/24",
    "org,",
    "example.org",
    "org,example,www,",
    "host:www.example.org",
    "www.example.org:8080",
    "org,example,www,)/",
    "org,example,www,)/news",
    "org,example,www,)/news/a?b",
)
URL = "http://www.example.org:8080/news/a?b"


@table("higher", range(1, len(RANKS)))
@table("is_first", [False, True])
def test_the_most_specific_sheet_decides_each_key(higher: int, is_first: bool) -> None:
    """Whatever the order in the file; a key that it does not have comes from the one below."""
    low = sheet("low", RANKS[higher - 1], "depth = 1", "max_pages = 1")
    high = sheet("high", RANKS[higher], "depth = 2")
    policies = parsed(high, low) if is_first else parsed(low, high)
    found = policies.of_host("www.example.org:8080", "192.0.2.7")
    assert found is not None
    assert (found.of(URL).depth, found.of(URL).max_pages) == (2, 1)
    why = [found.why(URL, key) for key in ("depth", "max_pages", "delay")]
    expected = (("high", 4), ("low", 9)) if is_first else (("high", 9), ("low", 5))
    assert why == [*expected, None]


@table(
    ("match", "covered", "not_covered"),
    [
        ("example.org", "example.org a.b.example.org:99", "example.com xample.org"),
        ("*.b.example.org", "b.example.org a.b.example.org", "example.org ab.example.org"),
        ("www.example.org", "www.example.org www.example.org:99", "example.org a.www.example.org"),
        ("host:example.org", "example.org example.org:99", "www.example.org"),
        ("www.example.org:99", "www.example.org:99", "www.example.org"),
        ("www.example.org:443", "www.example.org", "www.example.org:99"),
        ("org,example)", "example.org", "www.example.org"),
        ("uk,co,", "co.uk www.example.co.uk", "example.uk"),
        ("host:github.io", "github.io", "a.github.io"),
        ("intranet", "intranet", "a.intranet"),
        ("192.0.2.0/24", "192.0.2.7 192.0.2.7:99", "192.0.3.7 example.org"),
        ("2001:db8::/32", "[2001:db8::1]", "[2001:db9::1] 192.0.2.7"),
        ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
        ("bücher.example", "xn--bcher-kva.example", "bucher.example"),
    ],
)
def test_a_match_covers_hosts(match: str, covered: str, not_covered: str) -> None:
    policies = parsed(sheet("a", match, "depth = 1"))
    assert all(policies.of_host(host) for host in covered.split())
    assert not any(policies.of_host(host) for host in not_covered.split())


def test_a_block_covers_hosts_whose_address_is_known() -> None:
    policies = parsed(sheet("a", "192.0.2.0/24", "depth = 1"))
    assert policies.of_host("example.org") is None
    assert policies.of_host("example.org", "192.0.2.7") is not None
    assert policies.of_host("example.org", "192.0.3.7") is None


def test_paths_are_prefixes_of_each_other() -> None:
    """Also where other prefixes sort between a prefix and the path."""
    rows = ("/a", "/a/b", "/a/b/c", "/a/bb", "/b")
    policies = parsed(
        sheet("host", "host:example.org", "depth = 99"),
        *(
            sheet(path, f"org,example){path}", f"depth = {at}", f'exclude = ["{at}"]')
            for at, path in enumerate(rows)
        ),
    )
    found = policies.of_host("example.org")
    assert found is not None
    cases = {"/": 99, "/a": 0, "/a/a": 0, "/a/b/b": 1, "/a/b/c/d": 2, "/a/bbb": 3, "/a/c": 0}
    cases |= {"/az": 0, "/b?": 4, "/c": 99}
    assert {path: found.of(path).depth for path in cases} == cases
    assert {path: found.of(f"http://example.org{path}").depth for path in cases} == cases
    assert found.fixed == Policy(depth=99)


@pytest.mark.parametrize("path", ["/ü", "/%c3%bc", "/%C3%BC"])
def test_escapes_of_a_path_have_one_form(path: str) -> None:
    found = parsed(sheet("umlaut", f"org,example){path}", "depth = 3")).of_host("example.org")
    assert found is not None
    assert [found.of(each).depth for each in ("/%c3%bc/a", "/%C3%bc", "/u")] == [3, 3, None]


@given(st.lists(st.text("ab/", max_size=4), unique=True), st.text("ab/", max_size=6))
def test_the_longest_path_decides(prefixes: list[str], path: str) -> None:
    path = f"/{path}"
    rows = [
        sheet(f"s{at}", f"org,example)/{prefix}", f"depth = {len(prefix)}", f"max_pages = {at}")
        for at, prefix in enumerate(prefixes)
    ]
    found = parsed(*rows).of_host("example.org")
    fitting = [each for each in prefixes if path.startswith(f"/{each}")]
    depth = None if found is None else found.of(path).depth
    assert depth == max(map(len, fitting), default=None)


def test_hosts_without_a_sheet_have_none() -> None:
    assert parsed().of_host("example.org") is None


@table(
    ("rows", "error"),
    [
        ("deley = 3", "line 4: deley is no key of a sheet: did you mean delay?"),
        ("zzz = 3", "line 4: zzz is no key of a sheet; docs/policies.md has them all"),
        ("delay = 0.1", "line 4: delay = 0.1: below the 0.25 s of KROWL_DELAY_MIN"),
        ("delay = -1", "line 4: delay = '-1': must be a number of seconds above 0"),
        ("delay = nan", "line 4: delay = 'nan': must be a number of seconds above 0"),
        ("delay = true", "line 4: delay = 'True': must be a number of seconds above 0"),
        ("depth = 1.5", "line 4: depth = '1.5': must be a whole number from 0"),
        ('scope = "site"', "line 4: scope = 'site': must be 'host' or 'domain' or 'any'"),
        ('exclude = ["a("]', "line 4: exclude = \"['a(']\": 'a(' is not a regular expression"),
        ('exclude = ["(a+)+$"]', "could take exponential time"),
        ('exclude = ["(a|aa)*c"]', "could take exponential time"),
        ('exclude = ["a.*b.*c.*d"]', "could take time beyond the square of its length"),
        ('exclude = "a"', "line 4: exclude = 'a': must be a list of texts"),
        ('robots = "override"', "line 4: robots = 'override' needs it in writing: write permi"),
        ('permission = "a letter"', "line 4: permission is for robots = 'override': write robots"),
        ('robots = "obey"\npermission = "x"', "line 5: permission is for robots = 'override': "),
        ("recrawl_min = 9\nrecrawl_max = 8", "line 4: recrawl_min is above recrawl_max"),
        ('headers = {Crawler-Max-Price = "USD 1"}', "no request may offer to pay"),
        ('headers = {Cookie = "a"}', "must not set Cookie: use the key cookies"),
        ('headers = {X-A = "1", x-a = "2"}', "x-a stands twice: a header has one value"),
        ('headers = {A = "a\\nb"}', "A must have a text of printable ASCII characters"),
        ('www = "drop"\nwww = "keep"', "line 5: not TOML at column "),
        ("depth = ", "line 4: not TOML at column "),
        ("[other]\na = 1", "line 4: other is no part of a sheet"),
        ('depth = """\n1"""', "line 4: a text of several lines is not read"),
        ("depth = 007", "line 4: not TOML"),
    ],
)
def test_an_error_names_file_line_and_way_out(rows: str, error: str) -> None:
    (found,) = errors(sheet("a", "example.org", rows))
    assert found.startswith("p.toml line ")
    assert error in found


@table(
    ("match", "error"),
    [
        (
            "http://example.org/a",
            "has a path but is no SURT prefix: write 'org,example,www,)/news'",
        ),
        ("example.org/a", "has a path but is no SURT prefix"),
        ("192.0.2.1/24", "is no block of addresses"),
        ("2001:db8::7/128", "blocks are known up to /64: write 2001:db8::/64"),
        ("a b", "is no host, domain or SURT prefix"),
        ("com", "is a public suffix: write 'com,' for all names below it, or 'host:com' for"),
        ("Co.uk", "is a public suffix: write 'uk,co,' for all names below it, or 'host:co.uk'"),
        ("www*.example.org", "is no host, domain or SURT prefix"),
        ("org,example,)news", "is no SURT prefix such as org,example,)/news"),
        ("", "is no host"),
    ],
)
def test_a_bad_match_is_named(match: str, error: str) -> None:
    (found,) = errors(sheet("a", match, "depth = 1"))
    assert "line 3: match: " in found
    assert error in found


def test_a_sheet_needs_a_name_and_a_match() -> None:
    found = errors("depth = 1\n[[sheet]]\n", sheet("a", "a.test"), sheet("a", "b.test"))
    assert [each.partition(": ")[2] for each in found] == [
        "depth stands outside a sheet: begin sheets with [[sheet]]",
        'a sheet needs a name: write name = "news"',
        'a sheet needs what it covers: write match = ["example.org"]',
        "name = 'a': the sheet of line 3 has this name: give another",
    ]


def test_sheets_of_equal_rank_must_not_contradict() -> None:
    (found,) = errors(
        sheet("a", "example.org", "depth = 1", "max_pages = 2"),
        sheet("b", "*.example.org", "depth = 3", "max_pages = 2"),
    )
    assert found == (
        "p.toml line 9: depth of sheet 'b' contradicts line 4, of sheet 'a': both match"
        " example.org; leave it out of one of them"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("www.example.org:80", "www.example.org:443"),
        ("www.example.org:443", "host:www.example.org:80"),
    ],
)
def test_a_host_is_one_at_its_default_ports(one: str, other: str) -> None:
    (found,) = errors(sheet("a", one, "depth = 1"), sheet("b", other, "depth = 2"))
    assert found.startswith("p.toml line 8: depth of sheet 'b' contradicts line 4, of sheet 'a'")
    assert "both match www.example.org at ports 80 and 443" in found
    policies = parsed(sheet("a", one, "depth = 1"), sheet("b", other, "delay = 2"))
    host = policies.of_host("www.example.org")
    assert host is not None
    assert host.fixed == Policy(depth=1, delay=2.0)
    assert policies.of_host("www.example.org:8080") is None


PERMITTED = ("/", "/obey", "/own")


def test_a_permission_is_that_of_the_sheet_that_decides_about_robots() -> None:
    override = 'robots = "override"'
    policies = parsed(
        sheet("a", "example.org", override, 'permission = "first"'),
        sheet("b", "org,example)/obey", 'robots = "obey"'),
        sheet("c", "org,example)/own", override, 'permission = "second"'),
    )
    found = policies.of_host("example.org")
    assert found is not None
    rules = {path: (found.of(path).robots, found.of(path).permission) for path in PERMITTED}
    assert rules == {
        "/": ("override", "first"),
        "/obey": ("obey", None),
        "/own": ("override", "second"),
    }
    assert [found.why(path, "permission") for path in PERMITTED] == [("a", 5), None, ("c", 14)]
    explained = policies.explained("http://example.org/obey")
    assert explained == ["robots = obey: sheet b, line 9"]


def test_equal_sheets_of_equal_rank_are_merged() -> None:
    policies = parsed(
        sheet("a", "example.org", "depth = 1"),
        sheet("b", "*.example.org", "depth = 1", "delay = 2"),
    )
    found = policies.of_host("example.org")
    assert found is not None
    assert found.fixed == Policy(depth=1, delay=2.0)


PLAIN = (
    'depth = 3 # a "comment"',
    "delay = 2.50",
    "archive = false\r",
    "exclude = ['a\\d', \"b\"]",
    'user_agent_suffix = "x"',
    "  priority  =  7  ",
    "parameters = [ 'a' , 'b', ]",
)


ROWS = ("[[sheet]]", " [[ sheet ]] # x\r", "[[other]]", "a = '[['", "[sheet.headers]", "x", "")


@given(st.lists(st.sampled_from(ROWS), max_size=9))
def test_a_text_is_cut_at_the_headers_of_sheets(rows: list[str]) -> None:
    parts: list[list[str]] = [[]]
    for row in rows or [""]:
        if row in ROWS[:2]:
            parts.append([])
        else:
            parts[-1].append(row)
    assert list(_parts("\n".join(rows))) == parts


def test_sheets_are_forgotten_in_small_steps() -> None:
    matches = ("a.test", "host:b.test", "test,c,)/x", "192.0.2.0/24")
    policies = parsed(*(sheet(each, each, "depth = 1") for each in matches))
    assert policies.of_host("a.test") is not None
    policies.dismantle()
    emptied = (policies.sheets, policies._found, policies._hosts, policies._names)
    assert [*emptied, policies._paths, policies._blocks] == [[], {}, {}, {}, {}, {}]


def lines_of(policies: Policies) -> list[list[int]]:
    return [[each.line_of(key) for key in each.values] for each in policies.sheets]


def test_plain_rows_are_read_as_tomllib_reads_them() -> None:
    text = sheet("a", "example.org", *PLAIN)
    quick = parsed(text)
    slow = parsed(text.replace("depth = 3", "depth = 0x3"))
    assert quick.sheets[0].values == slow.sheets[0].values
    assert lines_of(quick) == lines_of(slow)


def test_rows_of_any_form_of_toml_are_read() -> None:
    rows = ("headers = {A = 'b'}", "exclude = [\n  'a', # x\n]", '"depth" = 3')
    found = parsed(sheet("a", "example.org", *rows), sheet("b", "b.test", "[sheet.headers]\nC='d'"))
    first, second = (
        each.of("/") for host in ("example.org", "b.test") if (each := found.of_host(host))
    )
    assert (first.headers, first.exclude, first.depth) == ({"A": "b"}, (re.compile("a"),), 3)
    assert second.headers == {"C": "d"}
    assert lines_of(found) == [[4, 5, 8], [12]]


PAIRS = ("A = 'b'", '"A-b" = "c=d, e"', "A = 'x' , B = \"y'\"", " C='' ")


@table(
    "rows",
    [
        *(f"headers = {{{pairs}}} # why" for pairs in PAIRS),
        *("headers = {}", "headers={ }", "headers = {A = 'b', }", "headers = {A = 'b' B = 'c'}"),
        *("headers = {A = 'b', A = 'c'}", "headers = {A = 1}", "headers = {A.B = 'c'}"),
        *("headers = {A = 'b'}}", "headers = {'A = 'b'}", "headers = {É = 'b'}"),
    ],
)
def test_headers_are_read_as_tomllib_reads_them(rows: str) -> None:
    """Also where they are wrong."""
    found: list[object] = []
    # tomllib alone reads a number such as this.
    for more in ("", "\ndepth = 0x3"):
        try:
            (read,) = parsed(sheet("a", "example.org", rows + more)).sheets
            found.append((read.values["headers"], read.line_of("headers")))
        except BadPolicies as error:
            found.append(error.errors)
    assert found[0] == found[1]


@given(st.text("a/-_Z.%", max_size=12))
def test_plain_paths_are_read_as_other_paths_are(path: str) -> None:
    def match() -> object:
        try:
            return sheets._match(f"org,example,www,)/{path}")
        except ValueError:
            return ""

    quick, pattern = match(), sheets._PLAIN_PATH
    sheets._PLAIN_PATH = re.compile("(?!)")
    try:
        assert match() == quick
    finally:
        sheets._PLAIN_PATH = pattern


@given(st.text("ab1-_.x", max_size=12))
def test_plain_names_are_read_as_other_names_are(name: str) -> None:
    def rule() -> str:
        try:
            return seeds.block_rule(name)
        except ValueError:
            return ""

    quick, pattern = rule(), seeds._PLAIN_NAME
    seeds._PLAIN_NAME = re.compile("(?!)")
    try:
        assert rule() == quick
    finally:
        seeds._PLAIN_NAME = pattern


def test_a_name_matches_as_an_order_to_block_it_does() -> None:
    """Also a public suffix, what a rule such as *.kobe.jp is about, and names below them."""
    known = {rule.removeprefix("*.").removeprefix("!") for rule in RULES}
    names = [f"{above}{name}" for name in known for above in ("", "a.", "b.a.")]
    names += [f"{above}{name}" for name in ("unknown", "1.2.3.4") for above in ("", "a.", "b.a.")]
    for name in filter(seeds.is_plain_name, names):
        try:
            ((kind, covered),) = parsed(sheet("x", name)).sheets[0].matches
        except BadPolicies:
            assert is_public_suffix(name)
            continue
        assert (kind, covered) == ("below" if seeds.is_domain(name) else "host", name)


def test_the_documentation_has_all_keys() -> None:
    rows = [f"| `{name}` | {key.says} |" for name, key in KEYS.items()]
    assert "\n".join(rows) in DOCS.read_text()


def test_the_example_of_the_documentation_is_read() -> None:
    example = DOCS.read_text().split("```toml\n")[1].split("```")[0]
    policies = parsed(example)
    found = policies.of_host("www.example.org")
    assert found is not None
    assert (found.fixed.delay, found.fixed.max_pages) == (10.0, 500)


@table(
    ("rows", "url", "expected"),
    [
        ({"www": "drop"}, "http://www.a.test/", "http://a.test/"),
        ({"www": "drop"}, "http://www.test/", "http://www.test/"),
        ({"www": "keep"}, "http://www.a.test/", "http://www.a.test/"),
        ({"index_pages": "drop"}, "http://a.test/b/Index.php?c", "http://a.test/b/?c"),
        ({"index_pages": "drop"}, "http://a.test/myindex.html", "http://a.test/myindex.html"),
        ({"trailing_slash": "drop"}, "http://a.test/b/?c/", "http://a.test/b?c/"),
        ({"trailing_slash": "drop"}, "http://a.test/", "http://a.test/"),
        ({"trailing_slash": "add"}, "http://a.test/b?c", "http://a.test/b/?c"),
        ({"trailing_slash": "add"}, "http://a.test/b.html", "http://a.test/b.html"),
        ({"duplicate_slashes": "drop"}, "http://a.test//b///c", "http://a.test/b/c"),
        ({"parameters": ("s*", "t")}, "http://a.test/?sid=1&t&ts=2", "http://a.test/?ts=2"),
        ({"parameters": ("sid",)}, "http://a.test/?sid=1", "http://a.test/"),
        ({"parameters": ("f[xy]",)}, "http://a.test/?f[xy]=1&fx=2", "http://a.test/?fx=2"),
        ({"sort_query": True}, "http://a.test/?b=1&a=2", "http://a.test/?a=2&b=1"),
        ({}, "http://www.a.test//index.html?b&a", "http://www.a.test//index.html?b&a"),
    ],
)
def test_urls_are_rewritten(rows: dict[str, object], url: str, expected: str) -> None:
    assert rewritten(url, Policy(**rows)) == expected  # type: ignore[arg-type]
    assert normalise(expected) == expected

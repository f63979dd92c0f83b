"""The cases of pywb: test_cdxops.py, test_cdx_server_app.py and canonicalize.py, by their names."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.cdx.errors import QueryError
from krowlspider.cdx.ranges import ranges_of
from tests.cdx.asking import lines_of, samples, text_of
from tests.support.tables import table

if TYPE_CHECKING:
    from krowlspider.cdx.archives import Archives

IANA = "http://iana.org/"
WWW = "http://www.iana.org/"
CSS = "http://iana.org/_css/2013.1/screen.css"
PRINT = "http://www.iana.org/_css/2013.1/print.css"
BOLD = "http://iana.org/_css/2013.1/fonts/opensans-bold.ttf"
EXAMPLE = "http://example.com"
_EXAMPLES = ("example", "dupes", "example-url-agnostic-revisit", "example-url-agnostic-orig")
DOMAINS = ["825", "1248", "1127", "1239", "1054", "912", "927", "928", "1227"]
HTML = [f"20140126{20_0000 + int(each):06}" for each in DOMAINS]


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Archives]:
    folder = tmp_path_factory.mktemp("samples")
    return {
        "iana": samples(folder / "iana", "iana"),
        "both": samples(folder / "both", "iana", "dupes"),
        "examples": samples(folder / "examples", *_EXAMPLES),
        "post": samples(folder / "post", "post-test"),
    }


CASES: dict[str, tuple[str, dict[str, Any], list[str], list[str]]] = {
    # name: archive, parameters, filters, timestamps of the answer
    "Merge Sort Multipe CDX Sources": (
        *("both", {"url": IANA}, []),
        ["20140126200624", "20140127171238", "20140127171238"],
    ),
    "Limit CDX Stream": (
        *("iana", {"url": BOLD, "limit": 3}, []),
        ["20140126200625", "20140126200654", "20140126200706"],
    ),
    "Reverse CDX Stream": (
        *("iana", {"url": BOLD, "reverse": True, "resolveRevisits": True, "limit": 3}, []),
        ["20140126201308", "20140126201249", "20140126201240"],
    ),
    "Reverse CDX Stream, limit=1": (
        "iana",
        {"url": "http://iana.org/_js/2013.1/jquery.js", "sort": "reverse", "limit": 1},
        [],
        ["20140126201307"],
    ),
    "From & To": (
        *("examples", {"url": f"{EXAMPLE}/", "from_": "2013", "to": "2013"}, []),
        ["20130729195151"],
    ),
    "From": (
        *("examples", {"url": f"{EXAMPLE}/", "from_": "2014"}, []),
        ["20140127171200", "20140127171251"],
    ),
    "No results": ("examples", {"url": f"{EXAMPLE}/", "to": "2012"}, [], []),
    "No matching results": (
        *("iana", {"url": f"{IANA}dont_have_this", "reverse": True, "limit": 2}, []),
        [],
    ),
    "No matching -- limit=1": (
        *("iana", {"url": f"{IANA}dont_have_this", "reverse": True, "limit": 1}, []),
        [],
    ),
    "Filter cdx (default: contains)": (
        *("iana", {"url": f"{IANA}domains", "matchType": "prefix"}, ["mimetype:html"]),
        HTML,
    ),
    "Filter cdx (regex)": (
        *("iana", {"url": f"{IANA}domains", "matchType": "prefix"}, ["~mimetype:.*/html$"]),
        HTML,
    ),
    "Filter cdx (exact)": (
        *("iana", {"url": f"{IANA}domains", "matchType": "prefix"}, ["=mimetype:text/html"]),
        HTML,
    ),
    "Filter statuscode": ("iana", {"url": CSS}, ["statuscode:200"], ["20140126200625"]),
    "Filter Alt field name": ("iana", {"url": CSS}, ["status:200"], ["20140126200625"]),
    "Filter -- no field specified": (
        *("iana", {"url": CSS}, ["screen.css 20140126200625"]),
        ["20140126200625"],
    ),
    "Filter -- no such field, no matches": ("iana", {"url": CSS}, ["blah:200"], []),
    "Filter exact -- (* prefix)": (
        *("examples", {"url": f"{EXAMPLE}*"}, ["=urlkey:com,example)/?example=1"]),
        ["20140103030321", "20140103030341"],
    ),
    "Filter exact invert": (
        "examples",
        {"url": EXAMPLE, "matchType": "prefix"},
        ["!=urlkey:com,example)/?example=1", "!=urlkey:com,example)/?example=2"],
        ["20130729195151", "20140127171200", "20140127171251"],
    ),
    "Filter contains": (
        *("examples", {"url": EXAMPLE, "matchType": "prefix"}, ["urlkey:example=1"]),
        ["20140103030321", "20140103030341"],
    ),
    "Filter contains invert": (
        *("examples", {"url": EXAMPLE, "matchType": "prefix"}, ["!urlkey:example="]),
        ["20130729195151", "20140127171200", "20140127171251"],
    ),
    "Filter regex": (
        *("examples", {"url": EXAMPLE, "matchType": "prefix"}, ["~urlkey:.*example=1$"]),
        ["20140103030321", "20140103030341"],
    ),
    "Filter regex invert": (
        *("examples", {"url": EXAMPLE, "matchType": "prefix"}, ["!~urlkey:.*example=[0-9]$"]),
        ["20130729195151", "20140127171200", "20140127171251"],
    ),
    "Collapse by timestamp": (
        *("iana", {"url": CSS, "collapseTime": 11}, []),
        ["20140126200625", "20140126200653", "20140126201054"],
    ),
    "Collapse by timestamp, resolved revisits": (
        *("iana", {"url": CSS, "collapseTime": "11", "resolveRevisits": True}, []),
        ["20140126200625", "20140126201054"],
    ),
    "Sort by closest timestamp": (
        *("iana", {"url": BOLD, "closest": "20140126200826", "limit": 10}, []),
        [
            *("20140126200826", "20140126200816", "20140126200805", "20140126200912"),
            *("20140126200738", "20140126200930", "20140126200718", "20140126200706"),
            *("20140126200654", "20140126200625"),
        ],
    ),
    "both reverse and closest, closest takes precedence": (
        "iana",
        {"url": BOLD, "closest": "20140126200826", "limit": 3, "reverse": True},
        [],
        ["20140126200826", "20140126200816", "20140126200805"],
    ),
    "closest of two": (
        *("both", {"url": f"{IANA}dnssec", "closest": "20140126201306"}, []),
        ["20140126201306", "20140126201307"],
    ),
    "closest of two, the other one": (
        *("iana", {"url": f"{IANA}dnssec", "closest": "20140126201307"}, []),
        ["20140126201307", "20140126201306"],
    ),
    "equal dist prefer earlier": (
        *("iana", {"url": BOLD, "closest": "20140126200700", "limit": 2}, []),
        ["20140126200654", "20140126200706"],
    ),
    "equal dist, a second before": (
        *("iana", {"url": BOLD, "closest": "20140126200659", "limit": 2}, []),
        ["20140126200654", "20140126200706"],
    ),
    "equal dist, a second after": (
        *("iana", {"url": BOLD, "closest": "20140126200701", "limit": 2}, []),
        ["20140126200706", "20140126200654"],
    ),
    "test_filters_1": (
        *("both", {"url": f"{WWW}_css/2013.1/screen.css"}),
        ["mime:warc/revisit", "filename:dupes.warc.gz"],
        ["20140127171239"],
    ),
    "test_filters_2_no_fuzzy_no_match": (
        *("both", {"url": f"{WWW}_css/2013.1/screen.css", "allowFuzzy": "false"}),
        ["!mime:warc/revisit", "filename:dupes.warc.gz"],
        [],
    ),
    "test_filters_3": (
        *("both", {"url": f"{WWW}_css/2013.1/screen.css"}),
        ["!mime:warc/revisit", "!filename:dupes.warc.gz"],
        ["20140126200625"],
    ),
    "test_limit": (
        *("both", {"url": f"{WWW}_css/2013.1/screen.css", "limit": "1"}, []),
        ["20140126200625"],
    ),
    "test_limit, reverse": (
        *("both", {"url": f"{WWW}_css/2013.1/screen.css", "limit": "1", "reverse": "1"}, []),
        ["20140127171239"],
    ),
    "test_exact_url": (
        *("both", {"url": WWW}, []),
        ["20140126200624", "20140127171238", "20140127171238"],
    ),
    "POST of a form": (
        *("post", {"url": "http://httpbin.org/post?__wb_method=POST&foo=bar&test=abc"}, []),
        ["20140610000859"],
    ),
    "POST to a URL with a query": (
        *("post", {"url": "http://httpbin.org/post?foo=bar&__wb_method=POST&data=^"}, []),
        ["20140610001255"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case_of_pywb(every: dict[str, Archives], name: str):
    archive, given, filters, expected = CASES[name]
    assert lines_of(
        every[archive], filters=filters, fields="timestamp", output="text", **given
    ) == (expected)


def test_output_is_cdxj_by_default(every: dict[str, Archives]):
    """test_exact_url: the lines are those of the index."""
    line = lines_of(every["iana"], url=WWW)[0]
    assert line == (
        'org,iana)/ 20140126200624 {"url": "http://www.iana.org/", "mime": "text/html",'
        ' "status": "200", "digest": "OSSAPWJ23L56IYVRW3GFEAR4MCJMGPTB", "length": "2258",'
        ' "offset": "334", "filename": "iana.warc.gz"}'
    )


def test_exact_url_json(every: dict[str, Archives]):
    found = [json.loads(line) for line in lines_of(every["both"], url=WWW, output="json")]
    assert len(found) == 3
    assert found[0]["urlkey"] == "org,iana)/"


def test_exact_url_plain_text(every: dict[str, Archives]):
    lines = lines_of(every["both"], url=WWW, output="text")
    rows = (
        "20140126200624 http://www.iana.org/ text/html 200 {} - - 2258 334 iana.warc.gz",
        "20140127171238 http://iana.org unk 302 {} - - 343 1858 dupes.warc.gz",
        "20140127171238 http://www.iana.org/ warc/revisit - {} - - 536 2678 dupes.warc.gz",
    )
    page, moved = "OSSAPWJ23L56IYVRW3GFEAR4MCJMGPTB", "3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"
    expected = [text.format(each) for text, each in zip(rows, (page, moved, page), strict=True)]
    assert lines == [f"org,iana)/ {each}" for each in expected]
    [nine, *_] = lines_of(every["both"], url=WWW, output="cdx9")
    assert nine.split(" ")[6:] == ["-", "334", "iana.warc.gz"]


def test_prefix_match(every: dict[str, Archives]):
    lines = lines_of(every["iana"], url=WWW, matchType="prefix")
    assert len(lines) == 81
    assert lines == lines_of(every["iana"], url="www.iana.org/*")


def test_fields(every: dict[str, Archives]):
    given = {"url": PRINT, "fields": "urlkey,timestamp,status"}
    lines = lines_of(every["both"], **given)
    assert lines
    for line in lines:
        assert re.fullmatch(r'org,iana\)/_css/2013.1/print.css \d{14} \{("status": "200")?\}', line)
    first = json.loads(lines_of(every["both"], output="json", **given)[0])
    assert [*first] == ["urlkey", "timestamp", "status"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"output": "foo", "fields": "urlkey"}, "output=foo not supported"),
        ({"matchType": "foo"}, "matchType=foo: give one of exact, prefix, host, domain, range"),
        ({"sort": "up"}, "sort=up: give one of default, reverse, closest"),
        ({"limit": "-1"}, "limit=-1: give 1 or more"),
        ({"limit": "0"}, "limit=0: give 1 or more"),
        ({"limit": "10001", "sort": "reverse"}, "limit=10001: with sort=reverse, give at most"),
        ({"from_": "yesterday"}, "from=yesterday: give up to 14 digits"),
        ({"page": "x"}, "page=x: give 0 or more"),
        ({"page": "7"}, "page=7: the only page is 0"),
        ({"pageSize": "1000"}, "pageSize=1000: give 1 to 100"),
        ({"fl": "a b"}, "fields=a b: give names"),
        ({"urlkey": "org,iana)/"}, "give one of url= and urlkey="),
        ({"collapse": "a:b"}, "collapse=a:b: give a field"),
    ],
    ids=lambda given: next(iter(given), "") if isinstance(given, dict) else "",
)
def test_bad_parameter_is_named(every: dict[str, Archives], given: dict[str, str], message: str):
    """test_error_unknown_output_format, test_error_unknown_match_type, and others."""
    with pytest.raises(QueryError, match=f"^{re.escape(message)}"):
        text_of(every["iana"], url=PRINT, **given)


def test_resolve_revisits(every: dict[str, Archives]):
    """test_resolveRevisits and "Resolve Revisits": the three fields, and status and mime."""
    url = "http://iana.org/_css/2013.1/fonts/inconsolata.otf"
    lines = lines_of(every["iana"], url=url, resolveRevisits=True, output="text")
    first, second, *_ = lines
    assert len(lines) == 5
    assert first.endswith(" 34054 620049 iana.warc.gz - - -")
    assert second == (
        "org,iana)/_css/2013.1/fonts/inconsolata.otf 20140126200912"
        " http://www.iana.org/_css/2013.1/fonts/Inconsolata.otf application/octet-stream 200"
        " LNMEDYOENSOEI5VPADCKL3CB6N3GWXPR - - 546 667073 iana.warc.gz 34054 620049 iana.warc.gz"
    )


def test_resolve_revisits_orig_fields(every: dict[str, Archives]):
    given = {"url": PRINT, "fields": "orig.length,orig.offset,orig.filename", "output": "text"}
    first, *others = lines_of(every["iana"], resolveRevisits=1, **given)
    assert first == "- - -"
    assert others
    assert all(each.endswith(" iana.warc.gz") for each in others)


def test_collapse_time_with_revisits_in_reverse(every: dict[str, Archives]):
    """test_collapseTime_resolveRevisits_reverse"""
    given = {"collapseTime": "11", "resolveRevisits": "true", "reverse": "true"}
    lines = lines_of(every["both"], url=PRINT, fl="timestamp", output="text", **given)
    assert len(lines) == 3
    assert lines == sorted(lines, reverse=True)


@table(
    ("url", "match", "begin", "end"),
    [
        ("http://example.com/path/file.html", "exact", "com,example)/path/file.html ", "{}!"),
        ("http://example.com/path/file.html", "prefix", "com,example)/path/file.html", "{}"),
        ("http://example.com/path/", "prefix", "com,example)/path/", "com,example)/path0"),
        ("http://example.com/path?", "prefix", "com,example)/path?", "com,example)/path@"),
        ("http://example.com/path/?", "prefix", "com,example)/path?", "com,example)/path@"),
        ("http://example.com/path/file.html", "host", "com,example)", "com,example*"),
        ("http://example.com/path/file.html", "domain", "com,example)", "com,example-"),
        ("com", "domain", "com,", "com-"),
    ],
)
def test_calc_search_range(url: str, match: str, begin: str, end: str):
    """The doctests of pywb's calc_search_range."""
    if end == "{}!":
        end = "com,example)/path/file.html!"
    elif end == "{}":
        end = "com,example)/path/file.htmm"
    assert ranges_of(url, match)[0] == (begin.encode(), end.encode())

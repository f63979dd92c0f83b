"""The cases of OutbackCDX: WbCdxApiTest, FilterTest, IndexTest and WebappTest, by their names.

Not taken: what writes to an index, aliases, access points and fuzzy keys, which are not here. The
captures closest to a date are those by time, as in pywb; OutbackCDX compares the digits.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from krowlspider.archive.cdxj import line, line_of_request
from krowlspider.archive.reading import Location
from krowlspider.archive.surt import RequestQuery
from krowlspider.cdx.archives import Archives
from krowlspider.cdx.capture import CaptureLine
from krowlspider.cdx.errors import QueryError
from krowlspider.cdx.filters import outback_filter, pywb_filter
from krowlspider.cdx.query import query_of
from krowlspider.cdx.ranges import expanded
from tests.archive.captures import Odd, capture, written
from tests.cdx.asking import OUTBACK, lines_of, text_of
from tests.support.tables import table

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = "M5ORM4XQ5QCEZEDRNZRGSWXPCOGUVASI"
NLA = "http://nla.gov.au/"
REDIRECTS = {
    "http://redirtest.com/": "https://www.redirtest.com/",
    "https://redirtest.com/": "https://www.redirtest.com/",
    "http://www.redirtest.com/": "https://www.redirtest.com/",
    "https://www.redirtest.com/": "https://www.newsite.com/",
}


def row(date: str, url: str, status: str = "200", digest: str = DIGEST, file: str = "w1") -> str:
    place = Location(f"{file}.warc.gz", 100, 832)
    return line(place, url=url, date=date, mime="text/html", status=status, digest=digest)


def archive(folder: Path, *lines: str) -> Archives:
    """An archive with an index for each file that the lines name."""
    folder.mkdir(exist_ok=True)
    for each in sorted(lines):
        name = json.loads("{" + each.partition("{")[2])["filename"]
        with (folder / name.replace(".warc.gz", ".cdxj")).open("a") as file:
            file.write(each)
    return Archives([folder])


@pytest.fixture
def nla(tmp_path: Path) -> Archives:
    """The captures of WebappTest.test, with those that an alias brings there."""
    dates = ["20050614070159", "20060614070159", "20100614070159", "20030614070159"]
    posted = row("20210203115119", NLA)
    return archive(
        tmp_path / "warc",
        *(row(date, NLA) for date in (*dates, "20040614070159")),
        row("20030614070159", "http://example.com/"),
        line_of_request(posted, NLA, RequestQuery("POST", "x=1&y=2")),
    )


@pytest.mark.parametrize(
    ("url", "match", "expected"),
    [
        ("http://example.org/*", "", ("http://example.org/", "prefix")),
        ("*.example.org", "", ("example.org", "domain")),
        ("http://example.org/*", "exact", ("http://example.org/*", "exact")),
    ],
    ids=["ExpandPrefixWildcards", "ExpandDomainWildcards", "ExactMatchShouldNotExpandWildcards"],
)
def test_query_wildcards(url: str, match: str, expected: tuple[str, str]):
    assert expanded(url, match) == expected


def test_query_post_url_key_encoding():
    given = {"url": "http://example.org/?a=1", "method": "POST", "requestBody": "hello=world"}
    assert query_of(given, [], OUTBACK).key == "org,example)/?__wb_method=post&a=1&hello=world"


def test_post_is_found_by_method_and_body(nla: Archives):
    """WebappTest.test"""
    found = text_of(nla, OUTBACK, url="nla.gov.au")
    assert "au,gov,nla)/ 20050614070159" in found
    assert "example" not in found
    given = {"url": "nla.gov.au", "method": "POST", "requestBody": "x=1&y=2"}
    found = text_of(nla, OUTBACK, **given)
    assert "20210203115119" in found
    assert "20050614070159" not in found


def asked_by_xml(archives: Archives, q: str, **given: object) -> ElementTree.Element:
    return ElementTree.fromstring(text_of(archives, OUTBACK, q=q, **given))


URLQUERY = "type:urlquery url:http%3A%2F%2Fnla.gov.au%2F"


@pytest.mark.parametrize(
    ("more", "given", "returned"),
    [
        ("", {}, "5"),
        (" limit:2 offset:0", {}, "2"),
        ("", {"count": "3", "start_page": "1"}, "3"),
        ("", {"count": "3", "start_page": "2"}, "2"),
    ],
)
def test_xml_query(nla: Archives, more: str, given: dict[str, str], returned: str):
    """WebappTest.test"""
    found = asked_by_xml(nla, URLQUERY + more, **given)
    assert found.findtext("request/numreturned") == returned
    assert found.findtext("request/numresults") == "5"
    assert len(found.findall("results/result")) == int(returned)


def test_xml_query_names_the_closest_capture(nla: Archives):
    found = asked_by_xml(nla, f"{URLQUERY} date:20060614070000")
    [closest] = [each for each in found.iter("result") if each.find("closest") is not None]
    assert closest.findtext("capturedate") == "20060614070159"
    assert closest.findtext("file") == "w1.warc.gz"
    assert closest.findtext("compressedoffset") == "100"


def test_xml_prefix_query_counts_each_url(nla: Archives):
    found = asked_by_xml(nla, "type:prefixquery url:http%3A%2F%2Fnla.gov.au%2F")
    first, posted = found.findall("results/result")
    assert [each.text for each in first] == [
        *("au,gov,nla)/", NLA, "1", "5", "20030614070159", "20100614070159"),
    ]
    assert posted.findtext("numcaptures") == "1"


@pytest.mark.parametrize(
    ("q", "title"),
    [
        ("type:urlquery url:http://nowhere.test/", "Resource Not In Archive"),
        ("type:other url:http://nla.gov.au/", "Unsupported query type"),
    ],
)
def test_xml_error(nla: Archives, q: str, title: str):
    assert asked_by_xml(nla, q).findtext("error/title") == title


def test_xml_escapes_what_a_url_has(tmp_path: Path):
    url = "http://a.test/?a=<b>&c=\x0b]]>"
    archives = archive(tmp_path / "warc", row("20200101000000", url))
    [found] = asked_by_xml(archives, "url:a.test/ type:prefixquery").iter("originalurl")
    assert found.text == url.replace("\x0b", "�")


# --- the forms of answers ---

ONE = ("19870102030405", "http://example.org/")


def test_cdxj_output_format(tmp_path: Path):
    """testCdxjOutputFormat: values that it does not know are kept."""
    text = row(*ONE).replace('"url"', '"non-standard-field": ["yes", 2, 3], "url"')
    found = lines_of(archive(tmp_path / "a", text), OUTBACK, url=ONE[1], output="cdxj")
    assert found == [text.strip()]


def test_json_dict_output_format(tmp_path: Path):
    """testJsonDictOutputFormat: numbers are numbers, and what is missing is left out."""
    archives = archive(tmp_path / "a", row(*ONE))
    assert json.loads(text_of(archives, OUTBACK, url=ONE[1], output="jsondict")) == [
        {
            "urlkey": "org,example)/",
            "timestamp": 19870102030405,
            "url": ONE[1],
            "mime": "text/html",
            "status": 200,
            "digest": DIGEST,
            "length": 832,
            "offset": 100,
            "filename": "w1.warc.gz",
        }
    ]


def test_json_output_format(tmp_path: Path):
    """testJsonOutputFormat: the first row has the names."""
    archives = archive(tmp_path / "a", row(*ONE))
    names = "urlkey timestamp url mime status digest redirecturl robotflags length offset filename"
    assert json.loads(text_of(archives, OUTBACK, url=ONE[1], output="json")) == [
        names.split(),
        [
            *("org,example)/", 19870102030405, ONE[1], "text/html", 200, DIGEST, "-", "-"),
            *(832, 100, "w1.warc.gz"),
        ],
    ]
    assert json.loads(text_of(archives, OUTBACK, url="nowhere.test", output="json"))[1:] == []


def test_fields_are_named_as_they_were_asked_for(tmp_path: Path):
    archives = archive(tmp_path / "a", row(*ONE))
    given = {"url": ONE[1], "fl": "original,statuscode"}
    rows = json.loads(text_of(archives, OUTBACK, output="json", **given))
    assert rows == [["original", "statuscode"], [ONE[1], 200]]
    [found] = json.loads(text_of(archives, OUTBACK, output="jsondict", **given))
    assert found == {"original": ONE[1], "statuscode": 200}
    assert lines_of(archives, OUTBACK, output="cdxj", **given)[0].endswith(
        '{"original": "http://example.org/", "statuscode": "200"}'
    )


# --- filters ---


def made(**values: str) -> CaptureLine:
    return CaptureLine(f"k 20190101000000 {json.dumps(values)}".encode())


FILES = made(filename="one.warc.gz", status="201"), made(filename="two.warc.gz", status="202")


@table(
    ("spec", "one", "two"),
    [
        ("filename:one.*", True, False),
        ("status:20.", True, True),
        ("status:201", True, False),
        ("!status:201", False, True),
        ("~filename:one", True, False),
        ("~status:20", True, True),
        ("~status:201", True, False),
        ("~!status:201", False, True),
        # The whole value matches.
        ("filename:one", False, False),
    ],
)
def test_filter(spec: str, one: bool, two: bool):
    """testRegexFilter and testSubstringFilter"""
    assert [outback_filter(spec)(each) for each in FILES] == [one, two]


@pytest.mark.parametrize("spec", ["bogus:.*", ".*", "status:(", "status:" + "a" * 500])
def test_wrong_filter_is_refused(spec: str):
    """bogusField, noField, and expressions that are none"""
    with pytest.raises(QueryError, match=r"^filter="):
        outback_filter(spec)


@pytest.mark.parametrize("text", ["(a+)+$", "(a|a)*b", "(.*)*x", ".*a.*b.*c.*d", "(?i)(a|aa)+$"])
def test_exponential_expression_is_refused(text: str):
    """Searching it would hold all threads of the process, those of a crawl too."""
    for spec in (f"~url:{text}", f"!~{text}"):
        with pytest.raises(QueryError, match="could take long"):
            pywb_filter(spec)
    with pytest.raises(QueryError, match="could take long"):
        outback_filter(f"url:{text}")


@pytest.mark.parametrize(
    "text", [r".*\.php$", r"(?i).*\.php", "text/.*", ".*a.*b", "20[0-9]|30[12]", r"[^/]+/\d{4}/.*"]
)
def test_usual_expression_is_taken(text: str):
    assert not pywb_filter(f"~url:{text}")(made(url="-"))


# --- collapse ---


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"collapse": "original"}, ["20190101000000"]),
        ({"collapseToFirst": "timestamp"}, ["20190101000000", "20190101000005"]),
        ({"collapse": "timestamp:13"}, ["20190101000000"]),
        ({"collapseToLast": "original"}, ["20190101000005"]),
        ({"collapseToLast": "timestamp"}, ["20190101000000", "20190101000005"]),
        ({"collapseToLast": "timestamp:13"}, ["20190101000005"]),
    ],
    ids=lambda given: "-".join(map(str, given.items())) if isinstance(given, dict) else "",
)
def test_collapse(tmp_path: Path, given: dict[str, str], expected: list[str]):
    """testCollapseToFirst and testCollapseToLast"""
    url = "http://example.com/collapse"
    archives = archive(
        tmp_path / "a", row("20190101000000", url), row("20190101000005", url, "404")
    )
    assert lines_of(archives, OUTBACK, url=url, fl="timestamp", **given) == expected
    assert lines_of(archives, OUTBACK, url="nowhere.test", fl="timestamp", **given) == []


def test_answer_is_collapsed_in_its_order(tmp_path: Path):
    """As OutbackCDX does, not before: the last capture in reverse is the first one."""
    dates = ["20190101000000", "20190102000000", "20190103000000"]
    archives = archive(tmp_path / "a", *(row(date, "http://a.org/") for date in dates))
    given = {"url": "a.org", "fl": "timestamp", "collapse": "digest"}
    assert lines_of(archives, OUTBACK, sort="reverse", **given) == [dates[2]]
    assert lines_of(archives, OUTBACK, sort="reverse", limit=1, **given) == [dates[2]]
    others = [row("20180101000000", "http://a.org/", digest="X" * 32)]
    more = archive(tmp_path / "b", *(row(date, "http://a.org/") for date in dates), *others)
    found = lines_of(more, OUTBACK, sort="reverse", limit=2, **given)
    assert found == [dates[2], "20180101000000"]
    found = lines_of(archives, OUTBACK, sort="closest", closest="2019010201", **given)
    assert found == [dates[1]]


# --- order and dates ---


def test_closest(tmp_path: Path):
    """IndexTest.testClosest"""
    dates = ["20050101000000", "20060101000000", "20060201000000", "20070101000000"]
    archives = archive(tmp_path / "a", *(row(date, "http://closest.org/") for date in dates))
    given = {"url": "closest.org", "sort": "closest", "fl": "timestamp"}
    found = lines_of(archives, OUTBACK, closest="20060129000000", **given)
    assert found == [dates[2], dates[1], dates[3], dates[0]]
    # pywb asks so for the newest.
    assert lines_of(archives, OUTBACK, closest="", **given) == dates


def test_forward_reverse_from_and_to(tmp_path: Path):
    """IndexTest.testForwardAndReverse and testFromAndTo"""
    dates = ["20050101000000", "20060101000000", "20070101000000"]
    others = [row("19960101000000", f"http://{name}.org/") for name in "bc"]
    archives = archive(tmp_path / "a", *(row(each, "http://a.org/") for each in dates), *others)
    given = {"url": "a.org", "fl": "timestamp"}
    assert lines_of(archives, OUTBACK, **given) == dates
    assert lines_of(archives, OUTBACK, sort="reverse", **given) == dates[::-1]
    assert lines_of(archives, OUTBACK, from_="2006", **given) == dates[1:]
    assert lines_of(archives, OUTBACK, to="2006", **given) == dates[:2]
    assert lines_of(archives, OUTBACK, from_="2006", to="20060101", **given) == [dates[1]]
    assert lines_of(archives, OUTBACK, urlkey="org,b)/", fl="url") == ["http://b.org/"]
    found = lines_of(archives, OUTBACK, url="a.org", matchType="range", fl="url", limit="4")
    assert found == [*["http://a.org/"] * 3, "http://b.org/"]


def test_self_redirect_filtering(tmp_path: Path):
    """testSelfRedirectFiltering: the target stands in the record, not in the index."""
    answers = {
        url: Odd(b"HTTP/1.1 301 Moved\r\nLocation: %b\r\n\r\n" % target.encode(), b"")
        for url, target in REDIRECTS.items()
    }
    kept = [capture(9, url="https://www.redirtest.com/")]
    made = [capture(at, odd, url=url) for at, (url, odd) in enumerate(answers.items())]
    written(tmp_path, [*made, *kept])
    archives = Archives([tmp_path])
    given: dict[str, Any] = {"url": "http://redirtest.com/", "fl": "url,status"}
    found = lines_of(archives, OUTBACK, omitSelfRedirects="true", **given)
    assert sorted(found) == ["https://www.redirtest.com/ 200", "https://www.redirtest.com/ 301"]
    assert len(lines_of(archives, OUTBACK, omitSelfRedirects="false", **given)) == 5
    # An index that leads out of the folder leads nowhere.
    outside = tmp_path / "other"
    outside.mkdir()
    [warc] = tmp_path.glob("*.warc.gz")
    index = (warc.with_name(warc.name.replace(".warc.gz", ".cdxj"))).read_text()
    led_out = index.replace(warc.name, f"../{warc.name}").splitlines(keepends=True)
    first = json.dumps(json.loads("{" + led_out[0].partition("{")[2]) | {"filename": "a.warc.gz"})
    led_out[0] = f"{led_out[0].partition('{')[0]}{first}\n"
    (outside / "a.cdxj").write_text("".join(led_out))
    assert len(lines_of(Archives([outside]), OUTBACK, omitSelfRedirects="true", **given)) == 5
    # Of a file that was moved elsewhere, nothing is known.
    for warc in tmp_path.glob("*.warc.gz"):
        warc.unlink()
    assert len(lines_of(archives, OUTBACK, omitSelfRedirects="true", **given)) == 5

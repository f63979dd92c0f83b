"""AI preferences of the IETF and RSL licences: a table of cases, and whole corpora."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.corpus.optouts import signals, terms_in, tokens_in
from krowlspider.corpus.quality.rules import read_rules
from tests.corpus.test_corpus import read, run
from tests.corpus.test_sites import index_of
from tests.corpus.warcs import html, made_of, pdf, prose, response, write
from tests.support.tables import table
from tests.support.work import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

TABLE = Path(__file__).parent / "opt_outs" / "cases.jsonl"
CASES: list[dict[str, Any]] = list(map(json.loads, TABLE.read_text(encoding="utf-8").splitlines()))
RSL = "Content-Type: application/rsl+xml"
PROHIBITS = (
    b'<rsl xmlns="https://rslstandard.org/rsl"><content url="/"><license>'
    b'<prohibits type="usage">ai-train</prohibits></license></content></rsl>'
)


def of_case(case: dict[str, Any], text: str) -> str:
    """Return a text with the host of the case: each case has its own."""
    return text.replace("example.com", f"case{case['case']}.example")


def url_of(case: dict[str, Any], path: str) -> str:
    return of_case(case, f"https://example.com{path}")


# The date of records that are given none.
_DATE = "2026-01-02T03:04:05Z"


def id_of(url: str, date: str = _DATE, kind: str = "response") -> str:
    return f"urn:test:{abs(hash((url, date, kind)))}"


def records_of(case: dict[str, Any]) -> tuple[list[bytes], list[bytes]]:
    """Return the record of the page, and those of robots.txt and licences."""
    headers = ["Content-Type: text/html; charset=utf-8", *case.get("headers", ())]
    body = html(case["case"], of_case(case, case.get("head", "")))
    url = url_of(case, case["path"])
    pages = [response(url, body, of_case(case, "\r\n".join(headers)))]
    others = [
        response(of_case(case, url), of_case(case, text).encode(), RSL)
        for url, text in case.get("licences", {}).items()
    ]
    if robots := case.get("robots"):
        robots = of_case(case, robots).encode()
        others.append(response(url_of(case, "/robots.txt"), robots, "Content-Type: text/plain"))
    return pages, others


def expected_of(case: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the signals of a case with the ids of their records."""
    places = {"page": url_of(case, case["path"]), "robots": url_of(case, "/robots.txt")}
    said = [(name, places.get(by) or of_case(case, by)) for name, by in case["signals"]]
    return sorted((name, id_of(url)) for name, url in said)


def heard_in(folder: Path, pages: Path, *others: Path) -> dict[str, list[tuple[str, str]]]:
    """Return the signals of each page, by URL; none rejects it."""
    rules = folder / "rules.toml"
    rules.write_text("signals.refused = []\nduplicates.exact = false\nduplicates.near = false\n")
    index_of(folder, pages, *others)
    made = made_of(pages, read_rules(rules), folder / "sites")
    return {each.url: [(said.name, said.record_id) for said in each.signals] for _, each in made}


def files_of(folder: Path, cases: Iterable[dict[str, Any]]) -> tuple[Path, Path]:
    """Write two WARC files: pages, and what is said of them. Pages are read first."""
    found = [records_of(case) for case in cases]
    pages = write(folder / "a.warc.gz", [each for pages, _ in found for each in pages])
    return pages, write(folder / "b.warc.gz", [each for _, others in found for each in others])


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    folder = tmp_path_factory.mktemp("cases")
    return heard_in(folder, *files_of(folder, CASES))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['case']}: {case['source']}")
def test_each_case_is_heard(case: dict[str, Any], heard: dict[str, list[tuple[str, str]]]) -> None:
    assert heard[url_of(case, case["path"])] == expected_of(case)
    refused = [name for name, _ in case["signals"] if name in read_rules().refused]
    assert min(refused, default=None) == case["rejects"]


def test_a_whole_corpus_heeds_all_cases(tmp_path: Path) -> None:
    """Records and rejected pages name who says it."""
    (tmp_path / "warc").mkdir()
    files_of(tmp_path / "warc", CASES)
    rules, rejected = tmp_path / "rules.toml", tmp_path / "rejected.jsonl"
    rules.write_text("duplicates.exact = false\nduplicates.near = false\n")
    run(tmp_path / "warc", tmp_path / "out", "--rules", str(rules), "--rejected", str(rejected))
    lines = [json.loads(line) for line in rejected.read_text().splitlines()]
    refused = {line["url"]: (line["rule"], line["value"]) for line in lines}
    found = [each for path in (tmp_path / "out" / "data").iterdir() for each in read(path)]
    kept = {each["url"]: [(s["name"], s["record_id"]) for s in each["signals"]] for each in found}
    assert len(kept) + len(refused) == len(CASES)
    for case in CASES:
        url, expected = url_of(case, case["path"]), expected_of(case)
        if case["rejects"] is None:
            assert kept[url] == expected
        else:
            assert refused[url] == next(pair for pair in expected if pair[0] == case["rejects"])


def test_licences_of_pdfs_and_compressed_ones_count(tmp_path: Path) -> None:
    """Without a media type of its own, a compressed licence is known by its name."""
    link = 'Link: <https://a.example/license.xml>; rel=license; type="application/rsl+xml"'
    packed = gzip.compress(PROHIBITS)
    headers = "Content-Type: application/xml\r\nContent-Encoding: gzip"
    page = response(
        "https://a.example/p", pdf(prose(1)), f"Content-Type: application/pdf\r\n{link}"
    )
    (tmp_path / "warc").mkdir()
    licence = response("https://a.example/license.xml", packed, headers)
    write(tmp_path / "warc" / "a.warc.gz", [page, licence])
    out, rejected = tmp_path / "out", tmp_path / "rejected"
    run(tmp_path / "warc", out, "--pdf", "--rejected", str(rejected))
    [line] = [json.loads(line) for line in rejected.read_text().splitlines()]
    assert line["rule"] == "rsl:ai-train=no"
    assert line["value"] == id_of("https://a.example/license.xml")


def test_a_revisit_of_a_licence_says_what_its_response_says(tmp_path: Path) -> None:
    """And the newest answer counts."""
    robots = b"License: https://{}/license.xml\n"
    digest = "sha1:AAAA"

    def page(host: str) -> list[bytes]:
        said = robots.replace(b"{}", host.encode())
        return [
            response(f"https://{host}/p", html(1)),
            response(f"https://{host}/robots.txt", said, "Content-Type: text/plain"),
        ]

    def licence(host: str, body: bytes, day: int, **more: str) -> bytes:
        date = f"2026-01-{day:02}T00:00:00Z"
        return response(f"https://{host}/license.xml", body, RSL, "200 OK", date, **more)

    permits = PROHIBITS.replace(b"prohibits", b"permits")
    archive = write(
        tmp_path / "a.warc.gz",
        [
            *page("one.example"),
            *page("two.example"),
            *page("three.example"),
            licence("one.example", PROHIBITS, 1, digest=digest),
            licence("two.example", b"", 2, kind="revisit", digest=digest),
            licence("three.example", PROHIBITS, 1),
            licence("three.example", permits, 2),
        ],
    )
    found = heard_in(tmp_path, archive)
    names = {url: [name for name, _ in said] for url, said in found.items()}
    assert names["https://one.example/p"] == names["https://two.example/p"] == ["rsl:ai-train=no"]
    assert "rsl:ai-train=no" not in names["https://three.example/p"]
    revisit = id_of("https://two.example/license.xml", "2026-01-02T00:00:00Z", "revisit")
    assert found["https://two.example/p"][0][1] == revisit


@table(
    ("value", "expected"),
    [
        ("", {}),
        ('a=x, b, c=?0, d=1.5, e=-1, f=:aGk=:, g=@17, h="\\"", i=%"f%c3%bc"', "x"),
        ('a=x;b;c=1;d="y", b=(a "b" 1;c=?1);d, c=()', "x"),
        *(
            (bad, None)
            for bad in (
                *("A=x", "1a=x", "a=", "a==x", "a=x;", "a=x,,b", ",a=x", "a=x b", "a x", "a=x;B"),
                *('a="x', 'a="\\x"', "a=1.", "a=1.2345", "a=1234567890123456", "a=?2", "a=:*:"),
                *("a=(b", "a=(b,c)", "a=(bc)d", 'a=%"%C3"', "a=\u00e9", "a=@1.5", "\ta=x", "a=x\t"),
            )
        ),
    ],
)
def test_dictionaries_are_those_of_the_standard(value: str, expected: object) -> None:
    found = tokens_in(value)
    assert (found or {}).get("a", {} if found == {} else None) == expected


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", ["a=(", "a;", "a=(b ", "a,", 'a="', "a=:", 'a=%"', "a;b;", "a=1"])
def test_long_statements_take_linear_time(part: str) -> None:
    assert seconds(lambda: tokens_in(part * 50_000), enough=1) < 1


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        b"<rsl>" * 100_000,
        b"<rsl>"
        + b"<content url='/a*a*a'><license><permits>all</permits></license></content>" * 7000,
        b"<rsl><content url='" + b"*a" * 200_000 + b"'/></rsl>",
        b"<rsl a='" + b"x" * 500_000,
    ],
)
def test_large_licences_are_read_in_bounds(text: bytes) -> None:
    terms: list[Any] = []
    assert seconds(lambda: terms.append(terms_in(text)), enough=1) < 2
    assert len(terms[-1] or ()) <= 1000


# Headers, meta elements, signals of the site, and the signals that count.
SAID: list[tuple[list[tuple[str, str]], list[tuple[str, str]], list[str], list[str]]] = [
    (
        [("x-robots-tag", "NoIndex, nofollow"), ("x-robots-tag", "noai")],
        [],
        [],
        ["noai", "noindex"],
    ),
    ([("x-robots-tag", "googlebot: noindex")], [], [], []),
    ([("x-robots-tag", "unavailable_after: 25 Jun 2026, noarchive")], [], [], ["noarchive"]),
    # A prefix addresses rules up to the next.
    ([("x-robots-tag", "noai, otherbot: noindex, noarchive")], [], [], ["noai"]),
    ([("x-robots-tag", "otherbot: max-snippet:-1, noindex, *: noai")], [], [], ["noai"]),
    ([("x-robots-tag", "otherbot: noindex; noai")], [], [], []),
    ([("x-robots-tag", "360bot: noindex")], [], [], []),
    ([], [("robots", "none")], [], ["noindex"]),
    ([], [("robots", "index,noimageai"), ("googlebot", "noindex")], [], ["noimageai"]),
    ([("content-signal", "ai-train = no,search=yes")], [], [], ["ai-train=no"]),
    # A page overrides the reservation of its site.
    ([("tdm-reservation", "1")], [], [], ["tdm-reservation"]),
    ([("tdm-reservation", "0")], [("tdm-reservation", " 1 ")], [], ["tdm-reservation"]),
    ([("tdm-reservation", "1")], [("tdm-reservation", "0")], [], []),
    ([], [], ["tdm-reservation", "ai.txt"], ["ai.txt", "tdm-reservation"]),
    ([("tdm-reservation", "0")], [], ["tdm-reservation", "ai.txt"], ["ai.txt"]),
    ([], [("tdm-reservation", "0")], ["tdm-reservation", "ai.txt"], ["ai.txt"]),
    ([("tdm-reservation", "2")], [], ["tdm-reservation"], ["tdm-reservation"]),
]


@table(("headers", "metas", "site", "expected"), SAID)
def test_signals_of_a_page_are_found(
    headers: list[tuple[str, str]],
    metas: list[tuple[str, str]],
    site: list[str],
    expected: list[str],
) -> None:
    assert signals(headers, metas, site) == expected


# Rules with a value, which has a colon, before and after the refusals.
VALUED = (
    "max-snippet:-1, max-image-preview:large, noindex, noai",
    "Max-Video-Preview: 5, noai, noindex",
    "noai, max-snippet:20, noindex",
    "max-image-preview:large; noai; noindex",
    "max-snippet:-1 noai noindex",
    "unavailable_after: 25 Jun 2010 15:00:00 GMT, noai, noindex",
    "unavailable_after: Friday, 25-Jun-10 15:00:00 GMT, noai, noindex",
    "unavailable_after: Friday, 25-Jun-10 15:00:00 GMT; noai; noindex",
    "unavailable_after: 2010-06-25T15:00:00+00:00, noai, noindex",
)


@table("rules", VALUED)
def test_rules_with_values_hide_no_refusal(rules: str) -> None:
    assert signals([("x-robots-tag", rules)], []) == ["noai", "noindex"]
    assert signals([("x-robots-tag", f"*: {rules}")], []) == ["noai", "noindex"]
    assert signals([("x-robots-tag", f"otherbot: {rules}")], []) == []
    assert signals([], [("robots", rules)]) == ["noai", "noindex"]

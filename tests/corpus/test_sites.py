"""Opt-outs of whole sites: Content-Signal in robots.txt, ai.txt, and tdmrep.json."""

from __future__ import annotations

import gzip
import tracemalloc
from typing import TYPE_CHECKING

import msgspec
import pytest

from krowlspider.archive.payload import digest
from krowlspider.corpus.sites.index import Finding, SiteFile, SiteIndex, findings
from krowlspider.corpus.sites.terms import AI, READ_MAX, ROBOTS, TDM_FILE, site_of
from tests.corpus.warcs import html, response
from tests.support.tables import table

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://example.org/a/b?c"


@table(
    ("text", "signals"),
    [
        ("User-agent: *\nContent-Signal: ai-train=no, search=yes", ["ai-train=no"]),
        ("content-signal: ai-input = NO\nUser-agent: x\nDisallow: /", ["ai-input=no"]),
        ("User-agent: x\nUser-Agent: * # all\nContent-Signal: search=no", ["search=no"]),
        # Only a rule ends the agents of a group.
        ("User-agent: x\nContent-Signal: ai-train=no\nUser-agent: *\nAllow: /", ["ai-train=no"]),
        ("User-agent: *\nAllow: /\nUser-agent: x\nContent-Signal: ai-train=no", []),
        ("User-agent: x\nContent-Signal: ai-train=no\nDisallow:\nUser-agent: *\nAllow: /", []),
        # As the crawl reads them.
        ("\ufeffUseragents: *\rContent-Signal: search=no\rAllow: /", ["search=no"]),
        ("User-agent: *\nDisallow: /\x85User-agent: x\nContent-Signal: search=no", ["search=no"]),
        ("User-agent: *\n# Content-Signal: ai-train=no", []),
        ("User-agent: *\nContent-Signal: ai-train=yes\nDisallow: /", []),
    ],
)
def test_content_signals_for_all_crawlers_count(text: str, signals: list[str]) -> None:
    assert site_of(ROBOTS, text.encode()).signals_for(URL, "html") == signals


@table(
    ("rules", "kind", "refuses"),
    [
        ("Disallow: /", "html", True),
        ("Disallow: *", "html", True),
        ("Disallow: *.html", "html", True),
        ("Disallow: *.html", "pdf", False),
        ("Disallow: *.pdf", "pdf", True),
        ("Disallow: *.jpg\nAllow: *.html", "html", False),
        ("Disallow: /\nAllow: /a/", "html", False),
        ("Disallow: /a\nAllow: /a", "html", False),
        ("Disallow: /a/*c$", "html", True),
        ("Disallow: /a/$", "html", False),
        ("Disallow: /*b*b", "html", False),
        ("Disallow: /%61/B", "html", False),
        ("Disallow: /%61/%62", "html", True),
        ("Disallow:", "html", False),
    ],
)
def test_ai_txt_disallows_paths_and_kinds(rules: str, kind: str, refuses: bool) -> None:
    site = site_of(AI, b"\xef\xbb\xbfUser-Agent: *\n" + rules.encode())
    assert site.signals_for(URL, kind) == (["ai.txt"] if refuses else [])


WHOLE_SITE = '[{"location": "/", "tdm-reservation": 1}]'
# The example of the protocol with three groups of files.
GROUPS = """[
  {"location": "/directory-a/", "tdm-reservation": 1},
  {"location": "/directory-b/html/", "tdm-reservation": 1,
   "tdm-policy":"https://provider.com/policies/policy.json"},
  {"location": "/directory-b/images/*.jpg", "tdm-reservation": 0}
]"""


@table(
    ("text", "path", "reserved"),
    [
        (WHOLE_SITE, "/any/page?x", True),
        (GROUPS, "/directory-a/paper.pdf", True),
        (GROUPS, "/directory-b/html/page", True),
        (GROUPS, "/directory-b/images/a.jpg", False),
        (GROUPS, "/Directory-A/paper.pdf", False),
        (GROUPS, "/", False),
        *(
            (f'[{{"location": "{location}", "tdm-reservation": 1}}]', path, reserved)
            for location, path, reserved in (
                ("/path/foo-%24", "/path/foo-$", True),
                ("/this/path/exactly$", "/this/path/exactly", True),
                ("/this/path/exactly$", "/this/path/exactly/not", False),
                ("/this/*/then", "/this/and/then", True),
                ("/é*%2a", "/%c3%A9-*", True),
            )
        ),
        # The first rule that matches decides, not the longest.
        (f'[{{"location": "/a", "tdm-reservation": 0}}, {WHOLE_SITE[1:]}', "/a", False),
        (f'[{{"location": 7}}, 8, {WHOLE_SITE[1:]}', "/a", True),
        # Half of a character.
        (f'[{{"location": "/\\ud800", "tdm-reservation": 1}}, {WHOLE_SITE[1:]}', "/a", True),
        ('[{"location": "/", "tdm-reservation": "1"}]', "/", True),
        ('[{"location": "/", "tdm-reservation": 2}]', "/", False),
        ('[{"location": "/"}]', "/", False),
        ('{"location": "/", "tdm-reservation": 1}', "/", False),
        ("[" * 100_000, "/", False),
    ],
)
def test_tdmrep_json_reserves_paths(text: str, path: str, reserved: bool) -> None:
    site = site_of(TDM_FILE, text.encode())
    expected = ["tdm-reservation"] if reserved else []
    assert site.signals_for(f"https://provider.com{path}", "html") == expected


@pytest.mark.timeout(10)
def test_long_files_are_read_and_applied_in_linear_time() -> None:
    assert not site_of(ROBOTS, b"Content-Signal: a" + b" " * 200_000 + b"b").signals
    site = site_of(AI, b"Disallow: /%b\n" % (b"*a" * 240) * 1000)
    page = f"https://example.org/{'a' * 2000}"
    assert all(site.signals_for(page, "html") for _ in range(10))


def robots(host: str, signal: str, day: int, status: str = "200 OK") -> bytes:
    body = f"Content-Signal: {signal}\n".encode()
    date = f"2026-01-{day:02}T00:00:00Z"
    return response(f"http://{host}/robots.txt", body, "A: b", status, date)


def index_of(folder: Path, *files: Path) -> SiteIndex:
    """Return the published index of the answers in WARC files, read by name."""
    index = SiteIndex(folder / "index")
    for path in sorted(files):
        found = findings(path, lambda body, _: body)
        index.add(path.name, map(msgspec.json.encode, found))
        assert index.has(path.name)
    index.publish(folder / "sites")
    index.close()
    return index


class Sites(SiteFile):
    """The names of the signals of a site."""

    def signals_for(self, url: str, kind: str) -> list[str]:
        answers = self.answers_for(url)
        return sorted(name for each in answers for name in each.signals_for(url, kind))


def indexed(folder: Path, *files: Path) -> Sites:
    """Return the answers in WARC files, read by name."""
    index_of(folder, *files)
    return Sites(folder / "sites")


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_the_newest_answer_holds_whatever_file_has_it(tmp_path: Path, names: list[str]) -> None:
    """An error leaves the older answer; a missing robots.txt refuses nothing."""
    newer, older = (tmp_path / name for name in names)
    older.write_bytes(
        robots("one.example:80", "ai-train=no", 1)
        + robots("two.example", "ai-train=no", 1)
        + robots("four.example", "search=no", 1)
        + response("http://one.example/ai.txt", b"Disallow: /b")
        + response(f"http://five.example{TDM_FILE}", WHOLE_SITE.encode())
    )
    newer.write_bytes(
        robots("ONE.example", "ai-input=no", 2)
        + robots("two.example", "", 2, "404 Not Found")
        + robots("four.example", "", 2, "503 Busy")
        + b"".join(robots(f"{n}.example", "search=no", 2) for n in range(50))
        + response("http://three.example/x/robots.txt", b"Content-Signal: ai-train=no")
    )
    sites = indexed(tmp_path, newer, older)
    assert sites.signals_for("https://one.example/a", "html") == ["ai-input=no"]
    assert sites.signals_for("https://one.example/b", "html") == ["ai-input=no", "ai.txt"]
    assert sites.signals_for("http://two.example/", "html") == []
    assert sites.signals_for("http://three.example/", "html") == []
    assert sites.signals_for("http://four.example/", "html") == ["search=no"]
    assert all(sites.signals_for(f"http://{n}.example/", "html") for n in range(50))
    assert sites.signals_for("http://five.example/", "html") == ["tdm-reservation"]
    assert sites.signals_for("urn:x", "html") == []
    sites.close()


def test_hosts_take_no_memory(tmp_path: Path) -> None:
    """Neither of the process that keeps the index nor of those that look sites up."""
    hosts = [f"host{number}.example" for number in range(5000)]
    site = site_of(ROBOTS, b"Content-Signal: ai-train=no\n")
    found = (Finding(host, ROBOTS, "2026-01-01T00:00:00Z", 0, site) for host in hosts)
    tracemalloc.start()
    try:
        index = SiteIndex(tmp_path / "index")
        index.add("a.warc", map(msgspec.json.encode, found))
        index.publish(tmp_path / "sites")
        index.close()
        sites = Sites(tmp_path / "sites")
        assert all(sites.signals_for(f"http://{host}/", "html") for host in hosts)
        sites.close()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # With all of them in the cache it is 2.9 MB.
    assert most < 1_500_000


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_revisit_says_what_the_record_with_its_payload_says(
    tmp_path: Path, names: list[str]
) -> None:
    """Sites of one provider have the same file. Without that record, the older answer holds."""
    first, second = (tmp_path / name for name in names)
    refuses = b"Content-Signal: ai-train=no\nDisallow: /"

    def of(host: str, path: str = ROBOTS, status: str = "200 OK", digest: str = "sha1:A") -> bytes:
        date, url = "2026-01-03T00:00:00Z", f"http://{host}.example{path}"
        return response(url, b"", "A: b", status, date, kind="revisit", digest=digest)

    first.write_bytes(
        response("http://one.example/robots.txt", refuses, digest="sha1:A")
        + response("http://one.example/ai.txt", b"Disallow: /", digest="sha1:B")
        + robots("three.example", "search=no", 1)
        + robots("four.example", "search=no", 1)
        + robots("five.example", "search=no", 1)
    )
    second.write_bytes(
        of("two")
        + of("three", digest="sha1:away")
        + of("four", status="404 Not Found")
        + of("five", status="304 Not Modified")
        + of("six", path=AI)
        + of("seven", path=AI, digest="sha1:B")
        + of("seven")
    )
    sites = indexed(tmp_path, first, second)
    said = {
        host: sites.signals_for(f"http://{host}.example/", "html")
        for host in ("one", "two", "three", "four", "five", "six", "seven")
    }
    assert said == {
        "one": ["ai-train=no", "ai.txt"],
        "two": ["ai-train=no"],
        "three": ["search=no"],
        "four": [],
        "five": ["search=no"],
        # The ai.txt of one site may be the robots.txt of another.
        "six": ["ai.txt"],
        "seven": ["ai-train=no", "ai.txt"],
    }


def test_the_newest_revisit_whose_payload_is_known_counts(tmp_path: Path) -> None:
    """The same bytes in another coding are another payload."""
    url, refuses = "http://one.example/robots.txt", b"Content-Signal: ai-train=no"
    gzip, plain = "Content-Encoding: gzip", "A: b"

    def revisit(day: int, digest: str, headers: str = plain) -> bytes:
        date = f"2026-01-{day:02}T00:00:00Z"
        return response(url, b"", headers, "200 OK", date, kind="revisit", digest=digest)

    archive = tmp_path / "a"
    archive.write_bytes(
        robots("one.example", "search=no", 1)
        + response("http://two.example/robots.txt", refuses, gzip, digest="sha1:A")
        + response("http://three.example/robots.txt", b"", digest="sha1:A")
        + revisit(2, "sha1:A", gzip)
        + revisit(3, "sha1:away")
    )
    sites = indexed(tmp_path, archive)
    assert sites.signals_for("http://one.example/", "html") == ["ai-train=no"]


@pytest.mark.parametrize("size", [0, READ_MAX + 1])
def test_a_revisit_finds_a_response_without_payload_digest(tmp_path: Path, size: int) -> None:
    """A chunked response has none; of a long one, the whole payload has the digest."""
    body = b"Content-Signal: ai-train=no\n" + b"#" * size
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    archive, url = tmp_path / "a", "http://{}.example/robots.txt"
    archive.write_bytes(
        response(url.format("one"), chunked, "Transfer-Encoding: chunked")
        + response(url.format("two"), b"", kind="revisit", digest=digest(body, "sha1"))
    )
    sites = indexed(tmp_path, archive)
    for host in ("one", "two"):
        assert sites.signals_for(f"http://{host}.example/", "html") == ["ai-train=no"]


def test_damage_hides_no_answer_behind_it(tmp_path: Path) -> None:
    """Of the other responses only the start is read."""
    page = bytearray(gzip.compress(response("http://one.example/", html(1, words=3000)), mtime=0))
    page[400:500] = b"?" * 100
    archive = tmp_path / "a.warc.gz"
    archive.write_bytes(bytes(page) + gzip.compress(robots("one.example", "search=no", 1)))
    sites = indexed(tmp_path, archive)
    assert sites.signals_for("http://one.example/", "html") == ["search=no"]


def test_revisits_of_responses_that_are_elsewhere_are_counted(tmp_path: Path) -> None:
    """The newest answer of each host counts."""

    def revisit(host: str, day: int, payload: str = "sha1:away") -> bytes:
        url, date = f"http://{host}.example/robots.txt", f"2026-01-{day:02}T00:00:00Z"
        return response(url, b"", "A: b", "200 OK", date, kind="revisit", digest=payload)

    archive = tmp_path / "a"
    archive.write_bytes(
        response("http://zero.example/robots.txt", b"", digest="sha1:here")
        + revisit("one", 1)
        + revisit("two", 1, "sha1:here")
        + revisit("three", 1)
        + robots("three.example", "search=no", 2)
        + robots("four.example", "search=no", 2)
        + revisit("four", 3)
        + revisit("four", 4)
        # By its name it may be a licence.
        + response("http://five.example/license.html", b"", kind="revisit", digest="sha1:away")
    )
    index = index_of(tmp_path, archive)
    assert index.unknown == 2
    assert index.example in {"one.example/robots.txt", "four.example/robots.txt"}

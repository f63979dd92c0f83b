"""The rows of WARC files that the archive's own writer wrote."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.cdxj import index_path, parse
from krowlspider.archive.disk import ArchiveError
from krowlspider.archive.payload import digest
from krowlspider.archive.reading import read_members
from krowlspider.catalogue.columns import TABLES
from krowlspider.catalogue.records import content
from krowlspider.catalogue.rows import NOWHERE, rows_of
from krowlspider.recrawl.text import text_digest
from tests.catalogue.warcs import ALL, archived, fetch, note, rows
from tests.corpus.warcs import prose, response, write

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://www.example.org/a?b=c"
PAGE = f"""<!doctype html><html lang=en-GB><head><title> A  page </title>
<meta charset=utf-8><meta name=Description content="What it is">
<meta property="og:title" content="The page"><meta property="og:type" content=article>
<link rel=alternate hreflang=de href=/de><link rel=alternate href=/feed type=application/rss+xml>
<script type="application/ld+json">{{"@graph": [{{"@type": ["Article", "NewsArticle"]}},
{{"@type": "Organization"}}]}}</script></head>
<body><p>{prose(1)}</p><a href="/x" rel="nofollow UGC"> To <b>x</b> </a><a href="mailto:a@b.c">m</a>
<a href="//other.example/">Other</a></body></html>""".encode()


def test_a_page_has_the_columns_of_its_head_and_note(tmp_path: Path):
    page = fetch(URL, PAGE, b"Content-Language: en", mime=b"Text/HTML; charset=UTF-8", tag="news")
    told = [("via", "https://www.example.org/"), ("hop", "L"), ("depth", "1")]
    told += [("hopsFromSeed", "L"), ("fetchTimeMs", "12.500"), ("delayMs", "1500")]
    told.append(("sourceTag", "https://www.example.org/"))
    [warc] = archived(tmp_path, [page, note(page, *told)])
    [row] = rows(warc, "fetch")["fetch"]
    line = parse(index_path(warc).read_bytes())
    assert row == {
        "url_surtkey": "org,example)/a?b=c",
        "url": URL,
        "url_host_name": "www.example.org",
        "url_host_tld": "org",
        "url_host_2nd_last_part": "example",
        "url_host_3rd_last_part": "www",
        "url_host_4th_last_part": None,
        "url_host_5th_last_part": None,
        "url_host_registry_suffix": "org",
        "url_host_registered_domain": "example.org",
        "url_host_private_suffix": "org",
        "url_host_private_domain": "example.org",
        "url_host_name_reversed": "org.example.www",
        "url_protocol": "https",
        "url_port": None,
        "url_path": "/a",
        "url_query": "b=c",
        "fetch_time": datetime(2026, 1, 1, microsecond=250_000, tzinfo=UTC),
        "fetch_status": 200,
        "fetch_redirect": None,
        "content_digest": digest(PAGE).removeprefix("sha1:"),
        "content_mime_type": "text/html",
        "content_mime_detected": "text/html",
        "content_charset": "UTF-8",
        "content_languages": "eng",
        "content_truncated": None,
        "warc_filename": warc.name,
        "warc_record_offset": line.offset,
        "warc_record_length": line.length,
        "warc_segment": "0",
        "krowl_record_id": page.identity.strip("<>"),
        "krowl_title": "A page",
        "krowl_description": "What it is",
        "krowl_og": '[["title", "The page"], ["type", "article"]]',
        "krowl_jsonld_types": '["Article", "NewsArticle", "Organization"]',
        "krowl_hreflang": '[["de", "https://www.example.org/de"]]',
        "krowl_language": "en-GB",
        "krowl_text_digest": text_digest(PAGE, "text/html").hex(),
        "krowl_fetch_milliseconds": 12.5,
        "krowl_delay": 1.5,
        "krowl_hops": "L",
        "krowl_via": "https://www.example.org/",
        "krowl_seed": "https://www.example.org/",
        "krowl_tag": "news",
        "krowl_revisit": None,
        "subset": "warc",
        "crawl": "autumn",
    }
    assert list(row)[: len(TABLES["fetch"])] == [column.name for column in TABLES["fetch"]]


def test_languages_are_null_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(content, "_can_detect", lambda: False)
    [warc] = archived(tmp_path, [fetch(URL, PAGE)])
    [row] = rows(warc, "fetch")["fetch"]
    assert (row["content_languages"], row["krowl_language"]) == (None, "en-GB")


def test_subsets_are_those_of_common_crawl(tmp_path: Path):
    [warc] = archived(
        tmp_path,
        [
            fetch(URL),
            fetch("https://a.test/robots.txt", b"", status=b"404 Not Found"),
            fetch("https://a.test/old", b"", b"Location: /new#x", status=b"301 Moved"),
            fetch("https://a.test/gone", status=b"410 Gone", body=b"gone"),
            fetch("https://a.test/robots.txt?x", body=b"other"),
        ],
    )
    found = {row["url"]: row for row in rows(warc, "fetch")["fetch"]}
    assert {url: row["subset"] for url, row in found.items()} == {
        URL: "warc",
        "https://a.test/robots.txt": "robotstxt",
        "https://a.test/old": "crawldiagnostics",
        "https://a.test/gone": "crawldiagnostics",
        "https://a.test/robots.txt?x": "warc",
    }
    assert found["https://a.test/old"]["fetch_redirect"] == "https://a.test/new"


def test_each_line_of_the_index_has_one_row(tmp_path: Path):
    """Revisits too, and answers to POST with the key of their line."""
    form = b"POST /a HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    form += b"Content-Length: 3\r\n\r\nq=1"
    made = [fetch(URL), fetch("https://b.test/"), fetch("https://a.test/a", b"x", request=form)]
    made += [fetch(URL, b"", minute=1, status=b"304 Not Modified")]
    [warc] = archived(tmp_path, made)
    found = rows(warc, "fetch")["fetch"]
    lines = sorted(map(parse, index_path(warc).read_bytes().splitlines()), key=lambda x: x.offset)
    assert [(row["url_surtkey"], row["warc_record_offset"]) for row in found] == [
        (line.key, line.offset) for line in lines
    ]
    # The second page has the body of the first.
    revisits = [row["krowl_revisit"] for row in found]
    assert revisits == [None, "identical-payload-digest", None, "server-not-modified"]
    assert [row["krowl_title"] for row in found] == [None] * 4


def test_a_file_without_index_has_the_same_rows(tmp_path: Path):
    [warc] = archived(tmp_path, [fetch(URL, PAGE), fetch("https://b.test/")])
    expected = rows(warc)
    index_path(warc).unlink()
    assert rows(warc) == expected


def test_links_have_text_and_rel(tmp_path: Path):
    [warc] = archived(tmp_path, [fetch(URL, PAGE)])
    found = rows(warc, "link")["link"]
    assert [(row["target_url"], row["text"], row["rel"], row["number"]) for row in found] == [
        ("https://www.example.org/x", "To x", "nofollow ugc", 0),
        ("https://other.example/", "Other", None, 1),
    ]
    assert {row["source_url"] for row in found} == {URL}


def test_robots_txt_is_summed_up(tmp_path: Path):
    body = b"User-agent: a\nDisallow: /\n\nUser-agent: *\nCrawl-delay: 2.5\nDisallow: /\n"
    body += b"Sitemap: https://a.test/map.xml\n"
    made = [
        fetch("https://a.test/robots.txt", body, mime=b"text/plain"),
        fetch("https://b.test/robots.txt", b"<p>none", status=b"404 Not Found"),
        fetch("https://c.test/robots.txt", b"user-agent: *\nDisallow: /\nAllow: /\n"),
    ]
    [warc] = archived(tmp_path, made)
    one, none, both = rows(warc, "robots")["robots"]
    assert one["groups"] == 2
    assert (one["crawl_delay"], one["disallows_all"]) == (2.5, True)
    assert json.loads(one["sitemaps"]) == ["https://a.test/map.xml"]
    assert (none["fetch_status"], none.get("groups")) == (404, None)
    assert (both["disallows_all"], both["crawl_delay"]) == (False, None)


def test_sitemaps_are_told_from_other_xml(tmp_path: Path):
    space = b'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    pages = (
        b"<urlset %b><url><loc>https://a.test/1</loc><lastmod>2026-01-02</lastmod></url>" % space
    )
    pages += b"<url><loc>https://a.test/2</loc><lastmod>2025-01-02</lastmod></url></urlset>"
    index = (
        b"<sitemapindex %b><sitemap><loc>https://a.test/m</loc></sitemap></sitemapindex>" % space
    )
    feed = b"<rss><channel><item><link>https://a.test/3</link></item></channel></rss>"
    made = [
        fetch(f"https://a.test/{number}.xml", body, mime=b"application/xml")
        for number, body in enumerate((pages, index, feed, b"<broken", b"\x1f\x8b broken"))
    ]
    [warc] = archived(tmp_path, made)
    found = rows(warc, "sitemap")["sitemap"]
    assert [(row["kind"], row["urls"], row["newest_lastmod"]) for row in found] == [
        ("urlset", 2, "2026-01-02"),
        ("index", 1, None),
    ]


def test_hosts_add_up(tmp_path: Path):
    made = [
        fetch("https://a.test/"),
        fetch("http://a.test:80/2", b"2", minute=1),
        fetch("http://a.test:8080/", b"3"),
        fetch("https://a.test/no", b"4", status=b"404 Not Found", minute=2),
    ]
    [warc] = archived(tmp_path, made)
    found = {row["host"]: row for row in rows(warc, "host_by_file")["host_by_file"]}
    lines = list(map(parse, index_path(warc).read_bytes().splitlines()))
    assert found.keys() == {"a.test", "a.test:8080"}
    host = found["a.test"]
    assert (host["fetches"], host["successes"], host["client_errors"]) == (3, 2, 1)
    assert (host["first_fetch"].minute, host["last_fetch"].minute) == (0, 2)
    assert sum(row["bytes"] for row in found.values()) == sum(line.length for line in lines)


def test_pages_have_their_last_state_and_latest_body(tmp_path: Path):
    first = fetch(URL, PAGE, tag="news")
    second = fetch(URL, b"<title>New</title>", minute=1)
    gone = fetch(URL, b"gone", minute=2, status=b"404 Not Found")
    [warc] = archived(tmp_path, [first, note(first, ("hop", "S")), second, gone])
    [page] = rows(warc, "page_by_file")["page_by_file"]
    assert (page["status"], page["fetches"], page["title"]) == (404, 3, "New")
    assert page["record_id"] == second.identity.strip("<>")
    assert page["digest"] == digest(b"<title>New</title>").removeprefix("sha1:")
    assert page["last_change"].minute == 1
    assert (page["first_fetch"].minute, page["last_fetch"].minute) == (0, 2)
    assert (page["seed"], page["tag"]) == (URL, "news")


def test_changes_know_earlier_files(tmp_path: Path):
    one, two = f"<p>{prose(1)}".encode(), f"<p>{prose(1)} More.".encode()
    first, second = archived(
        tmp_path,
        [fetch(URL, one), fetch("https://b.test/", b"same")],
        [
            fetch(URL, one, minute=1),
            fetch(URL, two, minute=2),
            fetch("https://b.test/", b"same", minute=2),
            fetch(URL, b"", minute=3, status=b"410 Gone"),
        ],
    )
    assert rows(first, "change")["change"] == []
    changed, gone = rows(second, "change", earlier=[index_path(first)])["change"]
    assert changed["url"] == URL
    assert (changed["before_filename"], changed["fetched_between"]) == (first.name, 1)
    assert changed["similarity"] == pytest.approx(0.99, abs=0.01)
    assert changed["text_changed"]
    assert [changed[name].minute for name in ("before_time", "unchanged_until", "fetch_time")] == [
        0,
        1,
        2,
    ]
    assert (gone["fetch_status"], gone["similarity"]) == (410, None)


def test_a_change_whose_body_is_gone_is_kept(tmp_path: Path):
    first, second = archived(tmp_path, [fetch(URL, b"1")], [fetch(URL, b"2", minute=1)])
    first.unlink()
    [changed] = rows(second, "change", earlier=[index_path(first)])["change"]
    assert (changed["similarity"], changed["media_type"]) == (None, None)


def test_damage_is_named_and_the_rest_has_rows(tmp_path: Path):
    made = [fetch(f"https://a.test/{n}", f"body {n}".encode() * 50) for n in range(5)]
    [warc] = archived(tmp_path, made)
    places = sorted(line.offset for line in map(parse, index_path(warc).read_bytes().splitlines()))
    content = bytearray(warc.read_bytes())
    content[places[2] + 60 : places[2] + 70] = bytes(10)
    warc.write_bytes(content)
    faults: list[str] = []
    found = [row["url"] for _, row in rows_of(warc, frozenset({"fetch"}), NOWHERE, faults.append)]
    assert found == [f"https://a.test/{n}" for n in (0, 1, 3, 4)]
    assert len(faults) == 1
    assert faults[0].startswith("at byte ")


@pytest.mark.parametrize("text", ["org,example)/ 2026 {}\n", "", None])
def test_an_index_that_is_broken_is_not_used(text: str | None, tmp_path: Path):
    """Nor is one of another file, as after a file was renamed."""
    [warc] = archived(tmp_path, [fetch(URL, PAGE)])
    [expected] = rows(warc, "fetch")["fetch"]
    if text is None:
        new = warc.with_name("renamed.warc.gz")
        index_path(warc).rename(index_path(new))
        warc = warc.rename(new)
    else:
        index_path(warc).write_text(text)
    [row] = rows(warc, "fetch")["fetch"]
    assert row == expected | {"warc_filename": warc.name}


def test_a_broken_index_of_an_earlier_file_is_named(tmp_path: Path):
    first, second = archived(tmp_path, [fetch(URL)], [fetch(URL, b"2", minute=1)])
    index_path(first).write_text("org,example)/a?b=c 2026 {}\n")
    with pytest.raises(ArchiveError, match="scrapy warc index makes it anew"):
        rows(second, earlier=[index_path(first)])


def test_records_without_ids_have_rows(tmp_path: Path):
    records = [response(f"http://a.test/{n}", b"x", date=f"2026-01-0{n}T00:00:00Z") for n in (1, 2)]
    records = [re.sub(rb"WARC-Record-ID: [^\r]+\r\n", b"", each) for each in records]
    warc = write(tmp_path / "other.warc.gz", [*records, records[1]])
    found = rows(warc, "fetch")["fetch"]
    assert [row["url"][-1] for row in found] == ["1", "2", "2"]
    assert len({row["krowl_record_id"] for row in found}) == 3


def test_no_bytes_of_a_page_raise(tmp_path: Path):
    odd = (
        b'<script type="application/ld+json">{"@type": "\\ud800\\u0000"}</script>',
        b'<script type="application/ld+json">' + b"[" * 5000 + b"</script>",
        b"<title>\0\xff</title><meta name=description content='\0'>",
        b"<a href='http://[::'>x</a><a href>y</a>",
        b"",
    )
    made = [
        fetch(f"https://a.test/{number}", body, b"Location: \xff\x00", status=b"300 Many")
        for number, body in enumerate(odd)
    ]
    [warc] = archived(tmp_path, made)
    found = rows(warc)
    assert len(found["fetch"]) == len(odd)
    for table in ALL:
        for row in found[table]:
            texts = [value for value in row.values() if isinstance(value, str)]
            assert not any("\0" in text for text in texts)
            "".join(texts).encode()


def test_no_damage_of_a_record_raises(tmp_path: Path):
    """Bytes of the records are changed, removed and added before they are compressed."""
    page = fetch(URL, PAGE)
    robots = fetch("https://a.test/robots.txt", b"User-agent: *\nDisallow: /", mime=b"text/plain")
    sitemap = fetch("https://a.test/m.xml", b"<urlset><url><loc>https://a.test/1</loc>")
    [warc] = archived(tmp_path, [page, note(page, ("hop", "S")), robots, sitemap])
    with warc.open("rb") as stream:
        whole = [member.content for member in read_members(stream)]
    chance = random.Random(1)
    for _ in range(100):
        records = list(map(bytearray, whole))
        record = chance.choice(records)
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(record))
            record[at : at + chance.randint(0, 9)] = chance.randbytes(chance.randint(0, 9))
        write(warc, map(bytes, records))
        for table, row in rows_of(warc, ALL):
            assert all(row[name] is not None for name, _, needed in TABLES[table] if needed)

"""Reading of robots.txt, and its records on disk. The meaning of rules is in
test_robots_rules.py."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krowlspider.politeness.robots import (
    RULES_MAX,
    RobotsRecord,
    RobotsRules,
    Ruling,
    deciding_line,
    judge,
)
from krowlspider.urls.robots_groups import BODY_MAX
from tests.politeness.test_robots_google import FILES, PATHS
from tests.support.tables import table

AGENT = "krowlspider"


def rules(text: str | bytes) -> RobotsRules:
    return RobotsRules.parse(text if isinstance(text, bytes) else text.encode(), AGENT)


def allowed(text: str | bytes, path: str) -> bool:
    return rules(text).allowed(f"https://example.com{path}")


@table(
    ("status", "ruling"),
    [
        (200, Ruling.RULES),
        (206, Ruling.RULES),
        (301, Ruling.REDIRECT),
        (308, Ruling.REDIRECT),
        (401, Ruling.ALLOW_ALL),
        (403, Ruling.ALLOW_ALL),
        (404, Ruling.ALLOW_ALL),
        (410, Ruling.ALLOW_ALL),
        (499, Ruling.ALLOW_ALL),
        (429, Ruling.RETRY),
        (500, Ruling.RETRY),
        (503, Ruling.RETRY),
        (599, Ruling.RETRY),
        (0, Ruling.RETRY),
        (999, Ruling.RETRY),
    ],
)
def test_status_has_the_ruling_of_rfc_9309(status: int, ruling: Ruling) -> None:
    assert judge(status) is ruling


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
def test_lines_end_at_cr_or_lf(end: str) -> None:
    assert not allowed(end.join(["User-agent: *", "Disallow: /a"]), "/a")


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_lines_end_nowhere_else(character: str) -> None:
    text = f"User-agent: *\nDisallow: /b{character}Disallow: /a"
    assert allowed(text, "/a")


DENIED = "User-agent: krowlspider\n# é\nDisallow: /é\nDisallow: /a"


@pytest.mark.parametrize(
    "body",
    [
        DENIED.encode(),
        DENIED.encode("utf-8-sig"),
        b"\xef\xbb" + DENIED.encode(),
        DENIED.encode("latin-1"),
        DENIED.encode("utf-16"),
        b"\xff\n" + DENIED.encode(),
    ],
)
def test_odd_encodings_are_read(body: bytes) -> None:
    assert not allowed(body, "/a")
    assert not allowed(body, "/%C3%A9")
    assert allowed(body, "/b")


def test_robots_txt_itself_is_always_allowed() -> None:
    assert allowed("User-agent: *\nDisallow: /", "/robots.txt")


def test_without_robots_txt_all_is_allowed() -> None:
    assert RobotsRules.allow_all().allowed("https://example.com/a?b")


@table(
    ("value", "delay"),
    [
        ("5", 5.0),
        ("0.5", 0.5),
        ("0", 0.0),
        ("86400 # a day", 86_400.0),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("soon", None),
        ("5s", None),
        ("", None),
    ],
)
def test_a_crawl_delay_is_a_sensible_number_or_none(value: str, delay: float | None) -> None:
    assert rules(f"User-agent: *\nCrawl-delay: {value}").crawl_delay == delay


@table(
    ("text", "delay"),
    [
        ("User-agent: x\nCrawl-delay: 9\nDisallow:\nUser-agent: *\nCrawl-delay: 5", 5.0),
        ("User-agent: *\nCrawl-delay: 5\nDisallow: /a\nUser-agent: krowlspider\nAllow: /", None),
        # Only a rule ends the agents of a group, so the delay is for those below it too.
        ("User-agent: x\nCrawl-delay: 9\nUser-agent: *\nDisallow: /b", 9.0),
        ("User-agent: *\nCrawl-delay: 9\nUser-agent: x\nDisallow: /b", 9.0),
        # The longest holds.
        ("User-agent: x\nCrawl-delay: 9\nUser-agent: *\nCrawl-delay: 5", 9.0),
        ("User-agent: x\nCrawl-delay: 5\nUser-agent: *\nCrawl-delay: 9", 9.0),
        ("User-agent: x\nCrawl-delay: 5\nUser-agent: krowlspider\nCrawl-delay: 1", 5.0),
        ("User-agent: *\nCrawl-delay: 9\nCrawl-delay: soon\nCrawl-delay: 5", 9.0),
        ("User-agent: *\nCrawl-delay: 9\nDisallow: /b\nUser-agent: *\nCrawl-delay: 5", 9.0),
        ("User-agent: *\nDisallow: /b\nCrawl-delay: 9\nUser-agent: x\nCrawl-delay: 5", 9.0),
        # Like a rule before all groups, it is for nobody.
        ("Crawl-delay: 9\nUser-agent: *\nDisallow: /b", None),
        # crawler-commons, testCrawlDelay and testSelectCrawlDelayGroup. It gives a delay only to
        # the agents above it, and takes the shortest: None, 20, None.
        ("User-agent: foobot\rCrawl-delay: 20\rUser-agent: *\rDisallow:/baz\r", 20.0),
        (
            (
                "User-agent: krowlspider\rCrawl-delay: 10\rUser-agent: foobot\rCrawl-delay: 20\r"
                "User-agent: *\rDisallow:/baz\r"
            ),
            20.0,
        ),
        (
            (
                "User-Agent: bingbot\nCrawl-delay: 1\n\nUser-Agent: msnbot\nCrawl-delay: 2\n\n"
                "User-agent: *\nDisallow: /login\nSitemap: http://www.example.com/sitemap.xml"
            ),
            2.0,
        ),
    ],
)
def test_the_longest_crawl_delay_of_a_group_is_for_all(text: str, delay: float | None) -> None:
    assert rules(text).crawl_delay == delay


def test_sitemaps_belong_to_no_group() -> None:
    text = "Sitemap: https://a/1\nUser-agent: x\nDisallow: /\nsitemap:https://a/2 #\nSitemap:\n"
    assert rules(text).sitemaps == ["https://a/1", "https://a/2"]


def test_sitemaps_are_given_as_written() -> None:
    text = (
        b"\xef\xbb\xbfSitemap: http://a/1.xml\r\nUser-agent: *\rDisallow: /sitemap: no\n"
        b"  SITEMAP :\thttp://a/two words.xml  # why\n\n#Sitemap: http://a/no\nsite-map:/3.xml\n"
        b"Sitemap:\nSitemap: http://a/1.xml\nSitemaps: http://a/4.xml"
    )
    once = ["http://a/1.xml", "http://a/two words.xml", "/3.xml"]
    assert rules(text).sitemaps == [*once, "http://a/1.xml", "http://a/4.xml"]


@pytest.mark.parametrize("blank", [b"\xa0", "\N{NO-BREAK SPACE} \x85".encode(), b"\t\v #"])
def test_a_sitemap_line_of_blanks_names_none(blank: bytes) -> None:
    """As a relative reference it would name the home page."""
    assert rules(b"Sitemap: " + blank).sitemaps == []


def padded(size: int, last: bytes) -> bytes:
    """Return a robots.txt of ``size`` bytes, then ``last``."""
    head = b"User-agent: *\nDisallow: /a\n"
    return head + b"#" * (size - len(head) - 1) + b"\n" + last


def test_bytes_past_500_kib_are_not_read() -> None:
    late = b"Disallow: /b\n"
    assert not allowed(padded(BODY_MAX - len(late), late), "/b")
    assert allowed(padded(BODY_MAX, late), "/b")
    assert not allowed(padded(BODY_MAX, late), "/a")
    assert allowed(padded(10**7, late), "/b")
    assert not allowed(padded(10**7, late), "/a")


def test_a_rule_cut_at_500_kib_is_no_other_rule() -> None:
    body = padded(BODY_MAX - len(b"Disallow: /"), b"Disallow: /b")
    assert allowed(body, "/c")
    record = RobotsRecord("rules", 1.0, 2.0, 200, body)
    assert allowed(RobotsRecord.decode(record.encode()).body, "/c")


NAMES = ["User-agent", "Allow", "Disallow", "Crawl-delay", "Sitemap", "x", ""]
VALUES = ["*", "krowlspider", "/", "/a", "/*$", "", "%", "%4", "$", "#", "\x00", "\x85", "ä"]
LINES = st.builds("{}{}{}".format, st.sampled_from(NAMES), st.sampled_from([":", " ", ": "]),
                  st.sampled_from(VALUES) | st.text(max_size=4))  # fmt: skip


@given(
    st.binary() | st.lists(LINES).map(lambda lines: "\n".join(lines).encode("utf-8", "replace")),
    st.text("/ab%4*$?#ä\x00", max_size=8),
)
def test_no_bytes_raise(body: bytes, path: str) -> None:
    parsed = RobotsRules.parse(body, AGENT)
    assert parsed.allowed(f"https://example.com/{path}") in (True, False)
    assert parsed.crawl_delay is None or 0 <= parsed.crawl_delay < float("inf")
    assert all(place == place.strip() != "" for place in parsed.sitemaps)


RECORDS = st.builds(
    RobotsRecord,
    ruling=st.sampled_from([ruling.value for ruling in Ruling]),
    fetched=st.floats(0, 4e9),
    expires=st.floats(0, 4e9),
    status=st.integers(0, 999),
    body=st.binary(),
)


@given(RECORDS)
def test_a_record_is_decoded_as_it_was_encoded(record: RobotsRecord) -> None:
    assert asdict(RobotsRecord.decode(record.encode())) == asdict(record)


def test_a_record_keeps_no_more_of_the_body_than_is_read() -> None:
    kept = RobotsRecord.decode(RobotsRecord("rules", 1.0, 2.0, 200, b"x" * 10**6).encode())
    assert BODY_MAX <= len(kept.body) <= BODY_MAX + 1


@given(st.binary())
def test_other_bytes_are_no_record(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a robots record"):
        RobotsRecord.decode(data)


@given(RECORDS, st.data())
def test_a_cut_record_is_no_record(record: RobotsRecord, data: st.DataObject) -> None:
    encoded = record.encode()
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises(ValueError, match="not a robots record"):
        RobotsRecord.decode(cut)


@pytest.mark.parametrize(
    "head",
    [b'[2,"rules",1.0,2.0,200]', b'[1,"maybe",1.0,2.0,200]', b'[1,"rules",1.0,2.0]', b"{}", b"1"],
)
def test_a_record_of_another_version_or_shape_is_none(head: bytes) -> None:
    body = RobotsRecord("rules", 1.0, 2.0, 200, b"").encode().partition(b"\n")[2]
    with pytest.raises(ValueError, match="not a robots record"):
        RobotsRecord.decode(head + b"\n" + body)


# --- the line of a robots.txt that is shown as the one that decides ---


AGENT = "krowlspider"
FILE = b"""\
User-agent: badbot
Disallow: /a

User-agent: *\r
Disallow: /a  # all
Allow: /a/b
disalow /*.pdf$
Disallow: /same
Allow: /same
"""


@pytest.mark.parametrize(
    ("path", "number", "text"),
    [
        ("/a/c", 5, "Disallow: /a  # all"),
        ("/a/b/c", 6, "Allow: /a/b"),
        ("/x.pdf", 7, "disalow /*.pdf$"),
        ("/same", 9, "Allow: /same"),
    ],
)
def test_the_longest_rule_of_the_own_group_is_named(path: str, number: int, text: str) -> None:
    found = deciding_line(FILE, AGENT, f"https://example.com{path}")
    assert found == (number, text)


def test_no_line_is_named_where_none_decides() -> None:
    assert deciding_line(FILE, AGENT, "https://example.com/b") is None
    many = FILE + b"".join(b"Disallow: /%d\n" % at for at in range(RULES_MAX))
    assert deciding_line(many, AGENT, "https://example.com/a/c") is None


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings_are_no_error(encoding: str) -> None:
    body = "User-agent: *\nDisallow: /\u00e9\n".encode(encoding)
    url = "https://example.com/%C3%A9"
    assert RobotsRules.parse(body, AGENT).allowed(url) is False
    found = deciding_line(body, AGENT, url)
    assert (found is None) is (encoding == "utf-16")


@settings(max_examples=200, deadline=None)
@given(FILES, PATHS)
def test_the_line_agrees_with_the_decision(body: bytes, path: str) -> None:
    url = f"https://example.com/{path}"
    found = deciding_line(body, AGENT, url)
    if found is None:
        assert RobotsRules.parse(body, AGENT).allowed(url)
    elif path != "robots.txt":
        decided = RobotsRules.parse(b"User-agent: *\n" + found.text.encode(), AGENT)
        # A rule that allows decides nothing by itself.
        assert decided.allowed(url) is RobotsRules.parse(body, AGENT).allowed(url)

"""What a robots.txt allows: RFC 9309, and the mistakes of those who write them."""

from __future__ import annotations

import time
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.politeness.robots import BODY_MAX, RobotsRecord, RobotsRules, Ruling, judge

AGENT = "krowlspider"


def rules(text: str | bytes) -> RobotsRules:
    return RobotsRules.parse(text if isinstance(text, bytes) else text.encode(), AGENT)


def allowed(text: str | bytes, path: str) -> bool:
    return rules(text).allowed(f"https://example.com{path}")


@pytest.mark.parametrize(
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
def test_only_a_site_that_denies_having_rules_has_none(status: int, ruling: Ruling) -> None:
    assert judge(status) is ruling


# Text, path, and whether the path is allowed.
RULES: dict[str, tuple[str, str, bool]] = {
    "nothing": ("", "/a", True),
    "no group": ("Disallow: /", "/a", True),
    "our group": ("User-agent: krowlspider\nDisallow: /a", "/ab", False),
    "another's group": ("User-agent: other\nDisallow: /", "/a", True),
    "everyone's group": ("User-agent: *\nDisallow: /", "/a", False),
    "ours goes before everyone's": (
        "User-agent: *\nDisallow: /\nUser-agent: krowlspider\nDisallow: /b",
        "/a",
        True,
    ),
    "ours without rules goes before everyone's": (
        "User-agent: krowlspider\nDisallow:\n\nUser-agent: *\nDisallow: /",
        "/a",
        True,
    ),
    "groups of one agent are merged": (
        "User-agent: krowlspider\nDisallow: /b\nUser-agent: KROWLSPIDER\nDisallow: /a",
        "/a",
        False,
    ),
    "merging keeps the first": (
        "User-agent: krowlspider\nDisallow: /b\n\nUser-agent: krowlspider\nDisallow: /a",
        "/b",
        False,
    ),
    "a second group of everyone counts": (
        "User-agent: *\nDisallow: /b\nUser-agent: x\nDisallow: /c\nUser-agent: *\nDisallow: /a",
        "/a",
        False,
    ),
    "several agents share a group": (
        "User-agent: x\nUser-agent: krowlspider\n\nUser-agent: y\nDisallow: /",
        "/a",
        False,
    ),
    "an empty Disallow ends the agents of a group": (
        "User-agent:*\nDisallow:\n\nUser-agent:BadBot\nDisallow:/",
        "/a",
        True,
    ),
    "a crawl delay ends the agents of a group": (
        "User-agent: *\nCrawl-delay: 5\n\nUser-agent: BadBot\nDisallow: /",
        "/a",
        True,
    ),
    "an unknown line does not": (
        "User-agent: krowlspider\nContent-Signal: search=yes\nUser-agent: x\nDisallow: /",
        "/a",
        False,
    ),
    "an unknown line within the rules is nothing": (
        "User-agent: *\nDisallow: /b\nNoindex: /c\n<p>\nDisallow: /a",
        "/a",
        False,
    ),
    "a sitemap does not": (
        "User-agent: *\nSitemap: https://example.com/s\nUser-agent: x\nDisallow: /",
        "/a",
        False,
    ),
    "agents ignore case": ("USER-AGENT: KrowlSpider\nDISALLOW: /a", "/a", False),
    "an agent with a version": ("User-agent: krowlspider/1.0\nDisallow: /", "/a", False),
    "an agent with words after it": ("User-agent: krowlspider images\nDisallow: /", "/a", False),
    "everyone with words after it": ("User-agent: * all\nDisallow: /", "/a", False),
    "a shorter agent is another": ("User-agent: krowl\nDisallow: /", "/a", True),
    "a longer agent is another": ("User-agent: krowlspider-news\nDisallow: /", "/a", True),
    "an agent within ours is another": ("User-agent: spider\nDisallow: /", "/a", True),
    "a name we use inside is another": ("User-agent: us\nDisallow: /", "/a", True),
    "an agent that cannot be is another": (
        "User-agent: *\nDisallow: /b\nUser-agent: 5eme\nDisallow: /",
        "/a",
        True,
    ),
    "an empty agent is another": (
        "User-agent: *\nDisallow: /b\nUser-agent:\nDisallow: /",
        "/a",
        True,
    ),
    "the longest match wins": (
        "User-agent: *\nAllow: /a/public\nDisallow: /a",
        "/a/public/x",
        True,
    ),
    "whatever the order": ("User-agent: *\nDisallow: /a/b\nAllow: /a", "/a/b", False),
    "Allow wins a tie": ("User-agent: *\nDisallow: /a\nAllow: /a", "/a", True),
    "a rule is a prefix": ("User-agent: *\nDisallow: /a", "/abc?d", False),
    "a rule heeds case": ("User-agent: *\nDisallow: /A", "/a", True),
    "a rule reads the query": ("User-agent: *\nDisallow: /*?print", "/a?print=1", False),
    "* is anything": ("User-agent: *\nDisallow: /*.php", "/a/b.php5", False),
    "$ is the end": ("User-agent: *\nDisallow: /*.php$", "/a/b.php5", True),
    "$ is the end, reached": ("User-agent: *\nDisallow: /*.php$", "/a/b.php", False),
    "only / itself": ("User-agent: *\nAllow: /$\nDisallow: /", "/a", False),
    "text is as its escape": ("User-agent: *\nDisallow: /ä", "/%C3%A4", False),
    "text that begins as a byte order mark does": (
        "User-agent: *\nDisallow: /Ａ",
        "/%EF%BC%A1",
        False,
    ),
    "an escape is as its text": ("User-agent: *\nDisallow: /%62%61z", "/baz", False),
    "escapes ignore case": ("User-agent: *\nDisallow: /%c3%a4", "/%C3%A4", False),
    "an escaped slash is no slash": ("User-agent: *\nDisallow: /a%2Fb", "/a/b", True),
    "an escaped * is a *": ("User-agent: *\nDisallow: /a%2A", "/abc", True),
    "a space is as its escape": ("User-agent: *\nDisallow: /a b", "/a%20b", False),
    "a comment ends a line": ("User-agent: * # all\nDisallow: /a#b", "/a", False),
    "a comment is no rule": ("User-agent: *\n#Disallow: /", "/a", True),
    "spaces do not matter": (" User-agent : *\n\tDisallow :/a ", "/a", False),
    "a missing colon": ("User-agent krowlspider\nDisallow /a", "/a", False),
    "a common misspelling": ("Useragent: *\nDissalow: /a", "/a", False),
    "a rule without a slash": ("User-agent: *\nDisallow: a", "/a", True),
}


@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
    text, path, expected = RULES[name]
    assert allowed(text, path) is expected


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
    assert RobotsRules.disallow_all().allowed("https://example.com/robots.txt")


def test_all_may_be_allowed_and_disallowed() -> None:
    url = "https://example.com/a?b"
    assert RobotsRules.allow_all().allowed(url)
    assert not RobotsRules.disallow_all().allowed(url)
    assert RobotsRules.disallow_all().crawl_delay is None


@pytest.mark.parametrize(
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


def test_a_crawl_delay_is_that_of_our_group() -> None:
    text = "User-agent: x\nCrawl-delay: 9\nUser-agent: *\nCrawl-delay: 5\n"
    assert rules(text).crawl_delay == 5.0
    assert rules(text + "User-agent: krowlspider\nCrawl-delay: 1").crawl_delay == 1.0
    assert rules(text + "User-agent: krowlspider\nDisallow: /a").crawl_delay is None


def test_sitemaps_are_those_of_all_groups_and_of_none() -> None:
    text = "Sitemap: https://a/1\nUser-agent: x\nDisallow: /\nsitemap:https://a/2 #\nSitemap:\n"
    assert rules(text).sitemaps == ["https://a/1", "https://a/2"]


def padded(size: int, last: bytes) -> bytes:
    """A robots.txt of ``size`` bytes and ``last`` after them."""
    head = b"User-agent: *\nDisallow: /a\n"
    return head + b"#" * (size - len(head) - 1) + b"\n" + last


def test_what_is_past_500_kib_is_not_read() -> None:
    late = b"Disallow: /b\n"
    assert not allowed(padded(BODY_MAX - len(late), late), "/b")
    assert allowed(padded(BODY_MAX, late), "/b")
    assert not allowed(padded(BODY_MAX, late), "/a")


def test_a_rule_cut_at_500_kib_is_no_other_rule() -> None:
    body = padded(BODY_MAX - len(b"Disallow: /"), b"Disallow: /b")
    assert allowed(body, "/c")
    record = RobotsRecord("rules", 1.0, 2.0, 200, body)
    assert allowed(RobotsRecord.decode(record.encode()).body, "/c")


# Seconds of CPU: the event loop's limit under attack is 0.25, and test machines are slower.
LIMIT = 0.5

HOSTILE = {
    "rules": b"User-agent: *\n" + b"".join(b"allow:/%x\n" % i for i in range(45_000)),
    "wildcards": b"User-agent: *\n" + b"".join(b"allow:/*%x$\n" % i for i in range(45_000)),
    "as many wildcards as are read": b"User-agent: *\n"
    + b"".join(b"allow:/*%x\n" % i for i in range(9_900)),
    "stars": b"User-agent: *\nAllow: /" + b"*a" * 250_000,
    "dollars": b"User-agent: *\nAllow: /" + b"$" * 500_000,
    "agents": b"".join(b"User-agent: x%d\n" % i for i in range(40_000)),
    "escapes": b"User-agent: *\nAllow: /" + b"%41" * 170_000,
    "spaces": b"User-agent:" + b" " * 500_000 + b"x",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_robots_txt_is_read_and_asked_in_a_bounded_time(name: str) -> None:
    times = []
    for _ in range(3):
        start = time.process_time()
        rules(HOSTILE[name]).allowed("https://example.com/" + "a" * 2000)
        times.append(time.process_time() - start)
    assert min(times) < LIMIT


def test_too_many_wildcards_to_obey_disallow_all() -> None:
    assert not allowed(HOSTILE["wildcards"], "/x1")
    assert allowed(HOSTILE["as many wildcards as are read"], "/x")


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

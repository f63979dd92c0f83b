"""Reading a robots.txt takes time linear in its bytes, and a verdict takes bounded time, for any
content."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krowlspider.politeness.robots import RobotsRecord, RobotsRules, _compress
from krowlspider.urls.robots_groups import BODY_MAX
from tests.support.tables import table
from tests.support.work import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

AGENT = "krowlspider"
# Seconds of CPU for each byte read, and for a verdict of 500 KiB. Measured: 0.21 µs at most, and
# 2.6 ms. The limits are those of slow machines.
READING_MAX = 1e-6
VERDICT_MAX = 0.02


def reading(body: bytes, most: float) -> float:
    """Return the CPU seconds of a robots.txt: the first of three that are not above ``most``."""
    return seconds(lambda: RobotsRules.parse(body, AGENT), enough=most)


def verdict(rules: RobotsRules, path: str) -> float:
    url = f"https://example.com/{path}"[:2048]
    return seconds(lambda: rules.allowed(url), enough=VERDICT_MAX)


def repeated(unit: bytes, size: int) -> bytes:
    return (unit * (size // len(unit) + 1))[:size]


def numbered(unit: bytes, size: int, head: bytes = b"User-agent: *\n") -> bytes:
    """Return lines in which %d is a number, so that no two are equal."""
    line = len(unit % 99_999)
    return (head + b"".join(unit % number for number in range(size // line + 1)))[:size]


A = b"a"
# How bodies of any size are made.
BODIES: dict[str, Callable[[int], bytes]] = {
    "repeated agents": lambda size: (
        repeated(b"user-agent: *\n", size // 2) + numbered(b"allow:/%d\n", size // 2, b"")
    ),
    "repeated agents of ours": lambda size: (
        repeated(b"user-agent: *\nuser-agent: krowlspider\n", size // 2)
        + numbered(b"allow:/%d\n", size // 2, b"")
    ),
    "an agent for each rule": lambda size: numbered(b"user-agent: *\nallow:/%d\n", size),
    "agents": lambda size: repeated(b"user-agent: *\n", size),
    "different agents": lambda size: numbered(b"user-agent: x%d\n", size, b""),
    "rules": lambda size: numbered(b"allow:/%d\n", size),
    "the same rule": lambda size: b"user-agent: *\n" + repeated(b"allow:/\n", size),
    "wildcards": lambda size: numbered(b"allow:*%d*x\n", size),
    "wildcards in a row": lambda size: numbered(b"allow:*a**%d\n", size),
    "wildcards in one rule": lambda size: b"user-agent: *\nallow:/" + repeated(b"*a", size),
    "stars": lambda size: b"user-agent: *\nallow:/" + b"*" * size,
    "dollars": lambda size: b"user-agent: *\nallow:/" + b"$" * size,
    "ends": lambda size: numbered(b"allow:*%d$\n", size),
    "wildcards at the end": lambda size: numbered(b"allow:/%d*\n", size),
    "wildcards and ends": lambda size: numbered(b"allow:/*%d$\n", size),
    "wildcards that nearly match": lambda size: numbered(b"allow:/*a%da\n", size),
    "texts that nearly match": lambda size: numbered(b"allow:/*%bb%b%%d\n" % (A * 32, A), size),
    "long texts that nearly match": lambda size: numbered(
        b"allow:/*%bb%b%%d\n" % (A * 500, A * 500), size
    ),
    "many wildcards that nearly match": lambda size: numbered(
        b"allow:/%b%%d*b\n" % (b"*a" * 9), size
    ),
    "prefixes of all lengths": lambda size: (
        b"user-agent: *\n"
        + b"".join(b"allow:/%b\n" % (b"a" * n) for n in range(int((2 * size) ** 0.5)))
    ),
    "utf-8": lambda size: numbered("allow:*\u00e9%d*x\n".encode(), size),
    "latin-1": lambda size: numbered(b"allow:*\xe9%d*x\n", size),
    "escapes": lambda size: numbered(b"allow:*%%c3%d*x\n", size),
    "utf-16": lambda size: b"\xff\xfe" + repeated("allow:/\u00e9\n".encode("utf-16-le"), size),
    "broken utf-16": lambda size: b"\xff\xfe" + repeated(b"\x00\xd8", size),
    "one long rule": lambda size: b"user-agent: *\nallow:/" + repeated(b"\xc3\xa9", size),
    "one long escape": lambda size: b"user-agent: *\nallow:/" + repeated(b"%41", size),
    "one long agent": lambda size: b"user-agent: " + b"a" * size,
    "one long delay": lambda size: b"user-agent: *\ncrawl-delay: 0." + b"1" * size,
    "delays": lambda size: b"user-agent: *\n" + repeated(b"crawl-delay: 1.5\n", size),
    "sitemaps": lambda size: numbered(b"sitemap:/%d\n", size),
    "spaces after a colon": lambda size: b"user-agent:" + b" " * size + b"x",
    "short lines": lambda size: repeated(b"a\n", size),
    "spaces before a word": lambda size: b"disallow" + b" " * size + b"x y",
    "words without a colon": lambda size: repeated(b"disallow x y\n", size),
    "names without an end": lambda size: b"disallow" + b"x" * size,
    "indents": lambda size: repeated(b"\t" * 30 + b"x\n", size),
    **{
        f"only {char!r}": lambda size, char=char: char * size  # type: ignore[misc]
        for char in (b" ", b"\t", b"\v", b"\0", b"#", b":", b"\n", b"\r", b"\xff", b"\xef")
    },
}


@table("name", BODIES)
def test_reading_a_robots_txt_is_linear_in_its_bytes(name: str) -> None:
    size = BODY_MAX // 4
    small = reading(BODIES[name](size // 8), 0.0)
    # Eight times the bytes: 64 times the work, were it quadratic.
    most = min(READING_MAX * size, 20 * small + 0.005)
    assert reading(BODIES[name](size), most) <= most


PATHS = ["a" * 10, "a" * 2028, "%41" * 676, "%c3%a9" * 338]


@table("name", [name for name in BODIES if b"allow" in BODIES[name](300)])
def test_hostile_rules_are_judged_in_bounded_time(name: str) -> None:
    rules = RobotsRules.parse(BODIES[name](BODY_MAX), AGENT)
    assert max(verdict(rules, path) for path in PATHS) <= VERDICT_MAX


@pytest.mark.parametrize(
    "length",
    [3, 16, 128, 1024, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 8, 64, 256, 512))],
)
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_texts_that_nearly_match_take_bounded_time(length: int, place: float) -> None:
    """The search compares the text at every place of the path, nearly to its end."""
    at = int(place * (length - 1))
    near = b"a" * at + b"b" + b"a" * (length - at - 1)
    rules = RobotsRules.parse(numbered(b"allow:*%b*%%d\n" % near, BODY_MAX), AGENT)
    paths = ["a" * 2000, near.decode() * 700, f"{near.decode()}{'a' * 2000}", "ab" * 1000]
    assert max(verdict(rules, path) for path in paths) <= VERDICT_MAX


TEXTS = st.text("ab*", min_size=1, max_size=60)


@given(
    st.lists(TEXTS, min_size=1, max_size=6),
    st.integers(1, 8),
    st.lists(st.tuples(st.text("ab", max_size=20), st.integers(1, 200)), max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_any_verdict_takes_bounded_time(
    texts: list[str], times: int, path: list[tuple[str, int]]
) -> None:
    patterns = [text * times for text in texts]
    lines = (f"allow:/{patterns[n % len(patterns)]}*{n:b}" for n in range(BODY_MAX // 20))
    body = "\n".join(["user-agent:*", *lines]).replace("1", "a").replace("0", "b").encode()
    rules = RobotsRules.parse(body, AGENT)
    assert verdict(rules, "".join(text * count for text, count in path)) <= VERDICT_MAX


def test_record_is_encoded_and_decoded_in_linear_time() -> None:
    """On four random characters the usual compression level takes ten times as long."""
    body = bytes(random.Random(1).choices(b"abcd", k=BODY_MAX))

    def keep() -> None:
        encoded = RobotsRecord("rules", 1.0, 2.0, 200, body).encode()
        _compress.cache_clear()
        RobotsRecord.decode(encoded)

    assert seconds(keep, enough=0.025) <= 0.025

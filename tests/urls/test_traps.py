"""Which links lead into a trap, or to an unwanted file."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.canonical import normalise
from krowlspider.urls.scope import BODIES, HOSTS, DuplicateBodies, Scope, ScopeRules, Traps
from tests.support.tables import table

TODAY = date(2026, 11, 21)


def traps(
    depth: int = 20, repeats: int = 3, extensions: tuple[str, ...] = ("zip", ".PNG")
) -> Traps:
    return Traps(
        path_depth_max=depth, repeated_segments_max=repeats, skip_extensions=extensions, today=TODAY
    )


def refusal(path: str, **rules: int) -> str | None:
    return traps(**rules).refusal(f"https://h.test{path}")


@table(
    "path",
    [
        *("/", "/products/item-12345", "/1998/05/12/story.html", "/history/1914/06/28/sarajevo"),
        *("/events/1963-08-28/march", "/film?year=1942", "/blog/2026/11/21/"),
        *("/blog?month=2026-11", "/calendar/2027-11/", "/thread/2031/5", "/thread/2031"),
        *("/article/20450612", "/article?id=20450612", "/map?x=1900&y=2031", "/v/12031-05"),
        *("/en/shop/en/cart/en/", "/a.zip/b", "/azip", "/.hidden", "/?file=a.zip", "/report.pdf"),
        "/page.html",
    ],
)
def test_ordinary_urls_and_archives_stay_in(path: str) -> None:
    assert refusal(path) is None


def test_a_host_is_no_part_of_the_path() -> None:
    assert traps().refusal("https://2031-05.calendar.test.zip/") is None


@pytest.mark.parametrize("end", ["", "/", "?q=/a/b/c", "/?q=/a/b/c"])
def test_a_path_has_at_most_so_many_segments(end: str) -> None:
    assert refusal("/1/2/3" + end, depth=3) is None
    assert refusal("/1/2/3/4" + end, depth=3) == "path_depth"


@pytest.mark.parametrize(
    "segments", ["/a/a/a/a", "/x/a/y/a/z/a/w/a", "/a/b/a/b/a/b/a/b/", "/a/a/a/a?b", "/////"]
)
def test_repeated_segments_are_limited(segments: str) -> None:
    assert refusal(segments) == "repeated_segments"


def test_allowed_repeats_pass_and_a_query_does_not_count() -> None:
    assert refusal("/a/b/a/b/a/b") is None
    assert refusal("/a/a/a?/a/a/a/a") is None


@pytest.mark.parametrize(
    "path", ["/a.zip", "/a.ZIP", "/a.tar.zip?dl=1", "/a.png", "/a/File:x.PNG", "/.zip"]
)
def test_extension_is_the_end_of_the_path_in_any_case(path: str) -> None:
    assert refusal(path) == "extension"
    assert traps(extensions=()).refusal(f"https://h.test{path}") is None


@table(
    "path",
    [
        "/events/2027-12/",
        "/2027/12/01/x",
        "/events/2099_01",
        "/calendar/2031/5/1",
        "/calendar/20310501",
        "/calendar/month/203105",
        "/Kalender/05-2031/",
        "/x?month=2027-12",
        "/x?date=2031%2F05%2F01",
        "/x?date=20310501",
        "/x?date=05/01/2031",
        "/x?year=2031",
        "/x?cal_year=2027&cal_month=12",
        "/x?month=5&year=2030",
        # Long ago, where a query or the name of a calendar says that it is one.
        "/x?month=1969-12",
        "/x?year=1969&month=12",
        "/calendar/1969/12/",
    ],
)
def test_a_calendar_ends_a_year_ahead_and_with_1970(path: str) -> None:
    assert refusal(path) == "calendar"


@pytest.mark.parametrize(
    "form", ["/events/{}-{:02}/", "/cal/{}/{}", "/x?month={}-{:02}", "/x?year={}&month={}"]
)
def test_endless_calendar_is_bounded_both_ways(form: str) -> None:
    def entered(step: int) -> int:
        month, pages = 2026 * 12 + 10, 0
        while pages < 2000 and refusal(form.format(month // 12, month % 12 + 1)) is None:
            month, pages = month + step, pages + 1
        return pages - 1

    assert entered(1) == 12
    if "events" not in form:
        assert entered(-1) == (2026 - 1970) * 12 + 10 < 700


@given(st.text("/a1209.-?&=;%zip", max_size=60).map("https://h.test/".__add__))
def test_with_all_rules_off_only_calendars_are_refused(text: str) -> None:
    url = normalise(text)
    assert url is not None
    traps().refusal(url)
    assert traps(depth=100, repeats=100, extensions=()).refusal(url) in {None, "calendar"}


@given(st.lists(st.sampled_from(["a", "b", "c", "", "dd"]), max_size=12), st.integers(1, 5))
def test_repeats_are_exactly_those_of_the_most_frequent_segment(
    segments: list[str], most: int
) -> None:
    path = "/" + "/".join(segments)
    kept = path.removesuffix("/").split("/")[1:]
    worst = max((kept.count(segment) for segment in kept), default=0)
    assert (refusal(path, repeats=most) == "repeated_segments") == (worst > most)


def test_traps_are_for_links_and_not_for_seeds() -> None:
    scope = Scope(ScopeRules(deny=("no",)), max_url_length=100, traps=traps())
    url = "https://h.test/a.zip"
    assert scope.refusal(url, "h.test", 1, "h.test") == "extension"
    assert scope.refusal(url, "h.test", 0, None) is None
    assert scope.refusal("https://h.test/no.zip", "h.test", 1, "h.test") == "deny"


# --- how often a host has sent the same body ---


def test_equal_bodies_are_counted_by_host() -> None:
    seen = DuplicateBodies()
    assert [seen.count("a", b"x"), seen.count("a", b"x"), seen.count("a", b"y")] == [1, 2, 1]
    assert [seen.count("b", b"x"), seen.count("a", b"x")] == [1, 3]


def test_least_recently_counted_host_is_forgotten() -> None:
    seen = DuplicateBodies(hosts=2)
    for host in "abac":
        seen.count(host, b"x")
    assert [seen.count(host, b"x") for host in "acb"] == [3, 2, 1]


def test_oldest_body_of_a_host_is_forgotten() -> None:
    seen = DuplicateBodies(bodies=2)
    for body in (b"x", b"y", b"x", b"z"):
        seen.count("a", body)
    assert [seen.count("a", body) for body in (b"x", b"z", b"y")] == [3, 2, 1]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.binary(max_size=1)), max_size=80))
def test_counts_are_exact_while_there_is_room(pages: list[tuple[str, bytes]]) -> None:
    seen = DuplicateBodies(bodies=300)
    counts: Counter[tuple[str, bytes]] = Counter()
    for host, body in pages:
        counts[host, body] += 1
        assert seen.count(host, body) == counts[host, body]


def test_memory_has_a_bound() -> None:
    """HOSTS hosts with BODIES bodies each take 23 MB."""
    import tracemalloc  # noqa: PLC0415

    sample = 100
    tracemalloc.start()
    seen = DuplicateBodies(hosts=sample)
    for host in range(2 * sample):
        for body in range(BODIES + 10):
            seen.count(f"host-{host:06}.example.org", b"%d" % body)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used / sample * HOSTS < 23e6

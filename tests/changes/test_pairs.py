"""Which fetches of a URL differ from the fetch before, by the index alone."""

from __future__ import annotations

import json
from itertools import islice, product
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.cdxj import REVISIT, line
from krowlspider.archive.disk import ArchiveError
from krowlspider.archive.payload import digest
from krowlspider.archive.reading import Location
from krowlspider.changes.pairs import SORTED_AT_ONCE, URLS_MAX, VersionPair, in_time, pairs_of
from tests.support.tables import table

if TYPE_CHECKING:
    from pathlib import Path


URL = "http://a.test/page"
HTML = "text/html"


def fetch(
    minute: int,
    body: str,
    status: int = 200,
    *,
    url: str = URL,
    mime: str = HTML,
    file: str = "a.warc.gz",
    algorithm: str = "sha1",
) -> bytes:
    """Return the index line of a fetch."""
    text = line(
        Location(file, minute, 1),
        url=url,
        date=f"2026-01-01T00:{minute:02}:00Z",
        mime=mime,
        status=str(status),
        digest=digest(body.encode(), algorithm),
    )
    return text.encode()


def fetched(fetches: str) -> list[bytes]:
    """Return the lines of fetches, a letter each: the body of a 200; "4" is a 404, "0" a 410, "5" a
    503, "r" a redirect, "=" a 304 that was asked for, "~" one that was not, "-" an answer without
    payload."""
    found = []
    statuses = {"4": 404, "0": 410, "5": 503, "r": 301, "=": 304, "~": 304}
    for minute, letter in enumerate(fetches):
        mime = REVISIT if letter == "=" else HTML
        body = "" if letter == "-" else letter
        found.append(fetch(minute, body, statuses.get(letter, 200), mime=mime))
    return found


def told(pair: VersionPair) -> tuple[int, int, int, int]:
    """Return the minutes of both fetches, how many are between, and the last
    minute without change."""
    minutes = (pair.before.timestamp, pair.after.timestamp, pair.unchanged_until)
    before, after, until = (int(stamp[10:12]) for stamp in minutes)
    return before, after, pair.fetched_between, until


@table(
    ("fetches", "changes"),
    [
        ("", []),
        ("a", []),
        ("aaa", []),
        ("ab", [(0, 1, 0, 0)]),
        ("aabcc", [(0, 2, 1, 1), (2, 3, 0, 2)]),
        ("aba", [(0, 1, 0, 0), (1, 2, 0, 1)]),
        ("a==b", [(0, 3, 2, 2)]),
        ("=a", []),
        ("a44a", [(0, 1, 0, 0), (1, 3, 1, 2)]),
        ("a40b", [(0, 1, 0, 0), (1, 3, 1, 2)]),
        ("4a", [(0, 1, 0, 0)]),
        ("a4", [(0, 1, 0, 0)]),
        ("a5rb", [(0, 3, 0, 0)]),
        ("a5ra", []),
        ("a~-a", []),
        ("a~b", [(0, 2, 0, 0)]),
        ("a-b", [(0, 2, 0, 0)]),
    ],
)
def test_changes_of_a_url(fetches: str, changes: list[tuple[int, int, int, int]]):
    assert [told(pair) for pair in pairs_of(fetched(fetches))] == changes


def test_urls_of_one_key_are_apart():
    """http and https, and other case, have the same key; each of the URLs has its own history."""
    other = "https://www.a.test/Page"
    lines = [fetch(0, "a"), fetch(1, "b", url=other), fetch(2, "a"), fetch(3, "c", url=other)]
    [pair] = pairs_of(lines)
    assert (pair.before.url, pair.after.url) == (other, other)


def test_the_answer_to_a_post_is_no_version():
    post = fetch(1, "b").replace(b"}\n", b', "method": "POST"}\n')
    assert list(pairs_of([fetch(0, "a"), post, fetch(2, "a")])) == []


def test_fetches_of_one_second_are_in_the_order_of_the_files():
    lines = [fetch(0, "a", file="2.warc.gz"), fetch(0, "b", file="1.warc.gz")]
    [pair] = pairs_of(sorted(lines))
    assert (pair.before.filename, pair.after.filename) == ("1.warc.gz", "2.warc.gz")


def test_digests_of_two_algorithms_prove_nothing():
    """The bodies must be read to know."""
    assert len([*pairs_of([fetch(0, "a"), fetch(1, "a", algorithm="sha256")])]) == 1


def test_since_counts_the_time_of_the_later_fetch():
    lines = fetched("abc")
    assert [told(pair)[1] for pair in pairs_of(lines, "20260101000100")] == [1, 2]
    assert [told(pair)[1] for pair in pairs_of(lines, "20260101000101")] == [2]


def test_a_host_has_all_its_ports_and_no_names_below_it():
    urls = [
        f"http://{each}/" for each in ("a.test", "a.test:81", "b.a.test", "aa.test", "www.a.test")
    ]
    lines = sorted(fetch(n, str(n), url=url) for url in urls for n in range(2))
    found = {pair.after.url for pair in pairs_of(lines, host="a.test")}
    assert found == {"http://a.test/", "http://a.test:81/"}
    [pair] = pairs_of(lines, host="a.test:81")
    assert pair.after.url == "http://a.test:81/"


def test_urls_of_one_key_are_bounded():
    cases = product("aA", repeat=10)
    urls = [f"http://a.test/{''.join(case)}" for case in islice(cases, URLS_MAX + 1)]

    def changed(urls: list[str]) -> int:
        lines = [fetch(0, "a", url=url) for url in urls] + [fetch(1, "b", url=url) for url in urls]
        return len([*pairs_of(lines)])

    assert changed(urls[1:]) == URLS_MAX
    # Each pushes out the one that comes next.
    assert changed(urls) == 0


@pytest.mark.parametrize("bad", [b"no line\n", b'test,a)/ 2026 {"url": "http://a.test/\\ud800"}\n'])
def test_a_broken_line_is_an_error(bad: bytes):
    with pytest.raises(ArchiveError, match="broken"):
        list(pairs_of([bad]))


def test_half_a_surrogate_pair_is_a_broken_line():
    values = json.loads(fetch(0, "a").decode().split(" ", 2)[2])
    values["url"] += "\ud800"
    with pytest.raises(ArchiveError, match="broken"):
        list(pairs_of([f"test,a)/page 20260101000000 {json.dumps(values)}\n".encode()]))


def test_changes_come_in_the_order_of_time(tmp_path: Path):
    """More of them than are sorted at a time."""
    count = SORTED_AT_ONCE // 2 + 1
    lines = [
        fetch((7 * n + step) % 60, str(step), url=f"http://a.test/{n:05}")
        for n in range(count)
        for step in range(3)
    ]
    expected = sorted(pair.after.timestamp for pair in pairs_of(lines))
    found = [pair.after for pair in in_time(pairs_of(lines), tmp_path)]
    assert [each.timestamp for each in found] == expected
    assert len({(each.url, each.timestamp) for each in found}) == len(found) == 2 * count
    assert len([*tmp_path.iterdir()]) == 2


def test_changes_of_one_second_keep_their_order(tmp_path: Path):
    lines = [
        fetch(0, body, status, file=f"{n}.warc.gz")
        for n, (body, status) in enumerate([("z", 200), ("y", 404), ("x", 200), ("a", 404)])
    ]
    found = [pair.after.filename[0] for pair in in_time(pairs_of(sorted(lines)), tmp_path)]
    assert found == ["1", "2", "3"]

"""How often a host has sent the same body."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.traps import BODIES, HOSTS, DuplicateBodies


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

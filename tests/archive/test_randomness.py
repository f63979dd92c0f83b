"""Ids of records are random and never the same."""

from __future__ import annotations

from krowlspider.archive.write.randomness import RandomIds


def test_ids_of_several_pools_are_all_different_and_of_16_bytes() -> None:
    ids = RandomIds()
    taken = [ids.take() for _ in range(1000)]
    assert {len(each) for each in taken} == {16}
    assert len(set(taken)) == 1000


def test_two_sources_share_nothing() -> None:
    one, other = RandomIds(), RandomIds()
    assert {one.take() for _ in range(300)}.isdisjoint(other.take() for _ in range(300))

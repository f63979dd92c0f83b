"""What has arrived from each finder counts without gaps, and after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier import outbox
from krowlspider.frontier.outbox import Arrived, Finders
from krowlspider.frontier.store.schema import FINDER
from tests.frontier.memory import MemoryStore

if TYPE_CHECKING:
    import pytest


class Owner:
    """An owner with a disk."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.start()

    def start(self) -> None:
        self.finders = Finders(self.store)

    def take(self, stream: int, number: int, last: int, finder: str = "a") -> tuple[Arrived, bool]:
        batch = self.store.batch(sync=True)
        found = self.finders.take(finder, stream, number, last, batch)
        batch.write()
        return found


def test_batches_count_up_to_the_first_gap() -> None:
    owner = Owner()
    assert owner.take(7, 0, 10) == (Arrived(7, 0, 10), False)
    assert owner.take(7, 1, 20) == (Arrived(7, 1, 20), False)
    assert owner.take(7, 3, 40) == (Arrived(7, 1, 20), True)
    assert owner.take(7, 4, 50) == (Arrived(7, 1, 20), True)
    assert owner.take(7, 2, 30) == (Arrived(7, 2, 30), False)


def test_a_batch_that_comes_twice_changes_nothing() -> None:
    """Its push may have had no answer; the second one may have more."""
    owner = Owner()
    owner.take(7, 0, 10)
    owner.take(7, 1, 20)
    assert owner.take(7, 0, 10) == (Arrived(7, 1, 20), False)
    assert owner.take(7, 1, 25) == (Arrived(7, 1, 25), False)


def test_a_new_stream_counts_from_its_first_batch() -> None:
    owner = Owner()
    owner.take(7, 0, 10)
    assert owner.take(8, 1, 30) == (Arrived(8), True)
    assert owner.take(8, 0, 20) == (Arrived(8, 0, 20), False)
    # What is left of the former one comes late.
    assert owner.take(7, 1, 15) == (Arrived(7), True)
    assert owner.take(8, 1, 30) == (Arrived(8, 1, 30), False)


def test_what_has_arrived_survives_a_restart() -> None:
    owner = Owner()
    owner.take(7, 0, 10)
    owner.take(3, 0, 99, finder="c")
    owner.start()
    assert owner.take(7, 1, 20) == (Arrived(7, 1, 20), False)
    assert owner.take(3, 2, 120, finder="c") == (Arrived(3, 0, 99), True)
    # With a new disk, nothing of a stream counts that has begun before.
    owner = Owner()
    assert owner.take(7, 2, 30) == (Arrived(7), True)


def test_finders_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "FINDERS_MAX", 3)
    owner = Owner()
    for name in ("a", "b", "a", "c", "d"):
        owner.take(7, 0, 10, finder=name)
    assert [key[1:] for key in owner.store.keys(FINDER)] == [b"a", b"c", b"d"]
    assert owner.take(7, 1, 20, finder="b") == (Arrived(7), True)

"""A message leaves the outbox when its owner has it on disk, and is sent again if it was lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from krowlspider.cluster.transport.forwarder import Streams
from krowlspider.cluster.transport.message import Acknowledgement, Mark, decode_mark, encode_mark
from tests.cluster.forwarding import MemoryOutbox

if TYPE_CHECKING:
    import pytest


class Finder:
    """Node ``a``, which sends to ``b``. ``now`` is its clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.outbox = MemoryOutbox()
        self.streams = Streams(self.outbox, "a", "s", clock=lambda: self.now)

    def put(self, *messages: bytes) -> None:
        self.outbox.put("b", messages)

    def push(self, most: int = 10) -> tuple[list[bytes], Mark | None]:
        """Push a batch; return its messages and mark."""
        sequences, messages = self.streams.next("b", most)
        data = self.streams.mark("b", sequences)
        if data is None:
            assert not messages
            return [], None
        self.streams.pushed("b", sequences)
        return messages, decode_mark(data)

    def hear(self, stream: int, last: int, *, has_gap: bool = False) -> None:
        self.hear_data(encode_mark(Acknowledgement(stream, last, has_gap)))

    def hear_data(self, data: bytes | None) -> None:
        asyncio.run(self.streams.hear("b", data))

    @property
    def waiting(self) -> list[bytes]:
        return [message for _, message in self.outbox.after("b", -1, 100)]


def pushed(finder: Finder, most: int = 10) -> Mark:
    _, mark = finder.push(most)
    assert mark is not None
    return mark


def test_messages_stay_until_they_are_acknowledged() -> None:
    finder = Finder()
    finder.put(b"0", b"1", b"2")
    first, second = pushed(finder, 2), pushed(finder)
    assert (first.number, first.last, second.number, second.last) == (0, 1, 1, 2)
    assert (first.finder, first.owner, first.stream) == ("a", "b", second.stream)
    assert finder.push() == ([], None)
    assert finder.waiting == [b"0", b"1", b"2"]
    finder.hear_data(None)
    assert finder.waiting == [b"0", b"1", b"2"]
    finder.hear(first.stream, 1)
    assert finder.waiting == [b"2"]
    finder.hear(first.stream, 2)
    assert finder.waiting == []
    assert not finder.streams.again


def test_acknowledgement_of_another_stream_counts_nothing() -> None:
    """It is of a former process, whose outbox may have had other URLs at the same places."""
    finder = Finder()
    finder.put(b"0")
    mark = pushed(finder)
    finder.hear(mark.stream ^ 1, 0)
    for junk in (b"", b"{", b"[]", b"[1]", b'["a", "b"]', b"[-1, 0]", b"[" * 10_000):
        finder.hear_data(junk)
    assert finder.waiting == [b"0"]


def test_no_more_is_acknowledged_than_was_sent() -> None:
    finder = Finder()
    finder.put(b"0")
    mark = pushed(finder)
    finder.put(b"1")
    finder.hear(mark.stream, 1)
    assert finder.waiting == [b"1"]
    assert finder.push()[0] == [b"1"]


def test_what_is_not_acknowledged_is_sent_again_after_a_gap(
    caplog: pytest.LogCaptureFixture,
) -> None:
    finder = Finder()
    finder.put(b"0", b"1", b"2")
    old = [pushed(finder, 1) for _ in range(3)]
    finder.hear(old[0].stream, 0, has_gap=True)
    assert "Sending URLs to node b again" in caplog.text
    messages, new = finder.push()
    assert messages == [b"1", b"2"]
    assert new is not None
    assert (new.number, new.last, new.stream == old[0].stream) == (0, 2, False)
    assert finder.streams.again == 2
    # Later batches of the old stream have a gap before them too.
    finder.hear(old[0].stream, 0, has_gap=True)
    assert finder.push() == ([], None)
    finder.hear(new.stream, 2)
    assert finder.waiting == []


def test_messages_lost_again_and_again_are_sent_ever_later() -> None:
    finder = Finder()
    finder.put(b"0")
    began, sent = finder.now, []
    while finder.now < began + 200:
        messages, mark = finder.push()
        if messages:
            assert mark is not None
            sent.append(finder.now - began)
            finder.hear(mark.stream, -1, has_gap=True)
        finder.now += 1
    assert sent == [0, 1, 4, 10, 22, 46, 94, 154]


def test_silent_owner_is_asked_by_a_mark_without_messages() -> None:
    finder = Finder()
    finder.put(b"0")
    first = pushed(finder)
    began, asked = finder.now, []
    while finder.now < began + 120:
        finder.now += 1
        messages, mark = finder.push()
        assert messages == []
        if mark is not None:
            asked.append(finder.now - began)
            assert (mark.stream, mark.last) == (first.stream, 0)
            assert mark.number == len(asked)
    assert asked == [3, 9, 21, 45, 93]
    finder.hear(first.stream, 0)
    assert finder.waiting == []
    finder.now += 1000
    assert finder.push() == ([], None)


def test_next_process_sends_in_a_stream_of_its_own() -> None:
    finder = Finder()
    finder.put(b"0", b"1")
    before = pushed(finder, 1)
    finder.streams = Streams(finder.outbox, "a", "s", clock=lambda: finder.now)
    messages, mark = finder.push()
    assert messages == [b"0", b"1"]
    assert mark is not None
    assert (mark.number, mark.stream == before.stream) == (0, False)

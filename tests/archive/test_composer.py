"""Which records captures become: whole once, then revisits of what is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.archive.composer import Composer
from krowlspider.archive.digests import digest
from krowlspider.archive.lookup import parse_record
from krowlspider.archive.payloadindex import Original
from krowlspider.archive.records import RecordMaker, record_id, warc_date

from .captures import CHUNKED, Odd, capture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.archive.capture import Capture

MAKER = RecordMaker(record_id(bytes(16)), "sha1")


@dataclass
class Known:
    """Payloads that are remembered, beside the index on disk; ``most`` at a time."""

    most: int = 1000
    originals: dict[bytes, Original] = field(default_factory=dict)
    synced: int = 0

    def find(self, payload: bytes) -> Original | None:
        return self.originals.get(payload)

    def add(self, payload: bytes, original: Original) -> None:
        self.originals[payload] = original
        while len(self.originals) > self.most:
            del self.originals[next(iter(self.originals))]

    def sync(self) -> None:
        self.synced += 1


def composer(known: Known | None, algorithm: str = "sha1") -> Composer:
    return Composer(algorithm, bytes, known)  # type: ignore[arg-type]


def kind_of(record: bytes) -> str:
    return parse_record(record, 0).headers["WARC-Type"]


def kinds(made: Composer, captures: Sequence[Capture], *, written: bool = True) -> list[str]:
    """The kinds of the first records of captures, each written or not."""
    found = []
    for each in captures:
        composed = made.compose(each, MAKER)
        assert kind_of(composed.request) == "request"
        assert composed.revisit == (kind_of(composed.first) == "revisit")
        if written:
            made.written(each, composed)
        found.append(kind_of(composed.first))
    return found


def page(number: int, body: bytes, truncated: str = "") -> Capture:
    return capture(number, Odd(b"HTTP/1.1 200 OK\r\n\r\n" + body, body, truncated))


def test_the_second_capture_of_a_payload_is_a_revisit_of_the_first() -> None:
    made = composer(Known())
    assert kinds(made, [page(1, b"a"), page(2, b"b"), page(3, b"a")]) == [
        "response",
        "response",
        "revisit",
    ]
    again = made.compose(page(4, b"b"), MAKER)
    fields = parse_record(again.first, 0).headers
    assert fields["WARC-Refers-To-Target-URI"] == page(2, b"b").url
    assert fields["WARC-Refers-To-Date"] == warc_date(page(2, b"b").started)
    assert again.payload == fields["WARC-Payload-Digest"] == digest(b"b")
    assert again.new is None


def test_the_payload_is_the_entity_whatever_its_framing() -> None:
    assert kinds(composer(Known()), [capture(1, CHUNKED), page(2, CHUNKED.payload)]) == [
        "response",
        "revisit",
    ]


def test_what_was_composed_and_not_written_is_referred_to_by_nothing() -> None:
    made = composer(Known())
    assert kinds(made, [page(1, b"a"), page(2, b"a")], written=False) == ["response", "response"]


@pytest.mark.parametrize("reason", ["length", "time", "disconnect"])
def test_what_was_cut_off_neither_is_a_revisit_nor_has_one(reason: str) -> None:
    captures = [page(1, b"a", reason), page(2, b"a"), page(3, b"a", reason), page(4, b"a")]
    assert kinds(composer(Known()), captures) == ["response", "response", "response", "revisit"]


def test_nothing_is_never_a_revisit() -> None:
    assert kinds(composer(Known()), [page(1, b""), page(2, b"")]) == ["response", "response"]


@pytest.mark.parametrize("known", [Known(), None])
def test_an_answer_304_is_a_revisit_that_no_other_refers_to(known: Known | None) -> None:
    same = capture(1, Odd(b"HTTP/1.1 304 Not Modified\r\n\r\n", b""))
    assert kinds(composer(known), [same, same]) == ["revisit", "revisit"]
    assert known is None or known.originals == {}


def test_without_an_index_all_is_kept_whole() -> None:
    made = composer(None)
    assert kinds(made, [page(1, b"a"), page(2, b"a")]) == ["response", "response"]
    made.synced()


def test_the_index_is_told_when_its_records_are_durable() -> None:
    known = Known()
    composer(known).synced()
    assert known.synced == 1


BODIES = st.sampled_from([b"", b"a", b"b", b"\r\n\r\n", b"WARC/1.1\r\n"])
CAPTURES = st.lists(st.tuples(BODIES, st.sampled_from(["", "", "time"])), max_size=12)


@given(CAPTURES, st.sampled_from(["sha1", "sha256"]), st.integers(1, 3))
def test_every_revisit_stands_for_a_whole_response_before_it_with_the_same_payload(
    described: list[tuple[bytes, str]], algorithm: str, most: int
) -> None:
    """Also when not all payloads are remembered; and head and payload of the two are the answer again."""
    made = composer(Known(most), algorithm)
    maker = RecordMaker(record_id(bytes(16)), algorithm)
    whole: dict[tuple[str, str], bytes] = {}
    for number, (body, truncated) in enumerate(described):
        each = page(number, body, truncated)
        composed = made.compose(each, maker)
        made.written(each, composed)
        record = parse_record(composed.first, 0)
        block = record.reader.read()
        assert record.headers["WARC-Block-Digest"] == digest(block, algorithm)
        assert composed.payload == digest(body, algorithm)
        if not composed.revisit:
            assert block == each.response_bytes
            if not truncated:
                whole[each.url, record.headers["WARC-Date"]] = body
            continue
        place = (
            record.headers["WARC-Refers-To-Target-URI"],
            record.headers["WARC-Refers-To-Date"],
        )
        assert block + whole[place] == each.response_bytes
        assert body
        assert not truncated


@given(url=st.text(max_size=20), date=st.text(max_size=20))
def test_what_an_index_says_is_refused_or_is_the_value_of_its_field(url: str, date: str) -> None:
    """No more than the network can an index that was tampered with begin a field."""
    known = Known()
    made = composer(known)
    first = made.compose(page(1, b"a"), MAKER)
    assert first.new is not None
    known.add(first.new, Original(url, date))
    try:
        record = made.compose(page(2, b"a"), MAKER).first
    except ValueError:
        return
    fields = parse_record(record, 0).headers
    assert len(fields) == 15
    assert fields["WARC-Refers-To-Target-URI"] == url
    assert record.count(b"\r\nWARC-Type: ") == 1

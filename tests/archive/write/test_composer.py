"""Captures become a whole record once, then revisits of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from krowlspider.archive.payload import Original, digest, raw_digest
from krowlspider.archive.write.composer import Composer
from krowlspider.archive.write.records import Capture, Receipt, RecordMaker, record_id, warc_date
from tests.archive.captures import CHUNKED, REQUEST, Odd, capture, parsed

if TYPE_CHECKING:
    from collections.abc import Sequence


SHATTERED = bytes.fromhex(
    "255044462d312e330a25e2e3cfd30a0a0a312030206f626a0a3c3c2f57696474682032203020522f"
    "4865696768742033203020522f547970652034203020522f537562747970652035203020522f4669"
    "6c7465722036203020522f436f6c6f7253706163652037203020522f4c656e677468203820302052"
    "2f42697473506572436f6d706f6e656e7420383e3e0a73747265616d0affd8fffe00245348412d31"
    "20697320646561642121212121852fec092339759c39b1a1c63c4c97e1fffe01"
)
SHATTERED_ENDS = (
    (
        "7f46dc93a6b67e013b029aaa1db2560b45ca67d688c7f84b8c4c791fe02b3df614f86db1690901c5"
        "6b45c1530afedfb76038e972722fe7ad728f0e4904e046c230570fe9d41398abe12ef5bc942be335"
        "42a4802d98b5d70f2a332ec37fac3514e74ddc0f2cc1a874cd0c78305a21566461309789606bd0bf"
        "3f98cda8044629a1"
    ),
    (
        "7346dc9166b67e118f029ab621b2560ff9ca67cca8c7f85ba84c79030c2b3de218f86db3a90901d5"
        "df45c14f26fedfb3dc38e96ac22fe7bd728f0e45bce046d23c570feb141398bb552ef5a0a82be331"
        "fea48037b8b5d71f0e332edf93ac3500eb4ddc0decc1a864790c782c76215660dd309791d06bd0af"
        "3f98cda4bc4629b1"
    ),
)
MAKER = RecordMaker(record_id(bytes(16)), "sha1")


@dataclass
class Known:
    """Remembered payloads instead of the index on disk, at most ``most``."""

    most: int = 1000
    originals: dict[bytes, Original] = field(default_factory=dict)
    others: None = None
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
    return Composer(algorithm, bytes, known, 7)  # type: ignore[arg-type]


def kind_of(record: bytes) -> str:
    return parsed(record).headers["WARC-Type"]


def kinds(made: Composer, captures: Sequence[Capture], *, written: bool = True) -> list[str]:
    """Return the kinds of the first records of captures, each written or not."""
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


def test_second_capture_of_a_payload_is_a_revisit() -> None:
    made = composer(Known())
    assert kinds(made, [page(1, b"a"), page(2, b"b"), page(3, b"a")]) == [
        "response",
        "response",
        "revisit",
    ]
    again = made.compose(page(4, b"b"), MAKER)
    fields = parsed(again.first).headers
    assert fields["WARC-Refers-To-Target-URI"] == page(2, b"b").url
    assert fields["WARC-Refers-To-Date"] == warc_date(page(2, b"b").started)
    assert again.payload == fields["WARC-Payload-Digest"] == digest(b"b")
    assert again.new is None


def test_chunked_and_plain_are_two_payloads() -> None:
    """A reader puts the head of a revisit before the original's body, with its chunk sizes."""
    whole = page(2, CHUNKED.payload)
    captures = [capture(1, CHUNKED), whole, capture(3, CHUNKED), whole]
    assert kinds(composer(Known()), captures) == ["response", "response", "revisit", "revisit"]


def test_two_bodies_with_equal_sha1_are_two_payloads() -> None:
    """Anybody can make them from these two prefixes: https://shattered.io."""
    first, second = (SHATTERED + bytes.fromhex(end) for end in SHATTERED_ENDS)
    assert (first != second, digest(first)) == (True, digest(second))
    captures = [page(1, first), page(2, second), page(3, first), page(4, second)]
    assert kinds(composer(Known()), captures) == ["response", "response", "revisit", "revisit"]


def test_payload_with_sha256_in_base32_is_stored_again() -> None:
    """Such entries are in the index of an older version; pywb matches digests by their text."""
    known = Known()
    old = raw_digest(b"a", "sha256") + xxhash.xxh3_64_digest(b"a", 7)
    known.add(old, Original("http://old.test/", warc_date(0)))
    assert kinds(composer(known, "sha256"), [page(1, b"a"), page(2, b"a")]) == [
        "response",
        "revisit",
    ]


def test_capture_that_was_not_written_has_no_revisit() -> None:
    made = composer(Known())
    assert kinds(made, [page(1, b"a"), page(2, b"a")], written=False) == ["response", "response"]


@pytest.mark.parametrize("reason", ["length", "time", "disconnect"])
def test_truncated_capture_is_no_revisit_and_has_none(reason: str) -> None:
    captures = [page(1, b"a", reason), page(2, b"a"), page(3, b"a", reason), page(4, b"a")]
    assert kinds(composer(Known()), captures) == ["response", "response", "response", "revisit"]


def test_empty_payload_is_never_a_revisit() -> None:
    assert kinds(composer(Known()), [page(1, b""), page(2, b"")]) == ["response", "response"]


@pytest.mark.parametrize(("known", "kind"), [(Known(), "revisit"), (None, "response")])
def test_304_is_a_revisit_only_with_an_index(known: Known | None, kind: str) -> None:
    same = capture(1, Odd(b"HTTP/1.1 304 Not Modified\r\n\r\n", b""))
    assert kinds(composer(known), [same, same]) == [kind, kind]
    assert known is None or known.originals == {}


@pytest.mark.parametrize(
    "changed", [{"request_bytes": REQUEST}, {"says_nothing": True}], ids=["unasked", "of no use"]
)
def test_a_304_that_confirms_nothing_is_a_response(changed: dict[str, Any]) -> None:
    same = capture(1, Odd(b"HTTP/1.1 304 Not Modified\r\n\r\n", b""))
    assert kinds(composer(Known()), [structs.replace(same, **changed)]) == ["response"]


def test_a_304_names_the_record_that_it_confirms() -> None:
    same = capture(1, Odd(b"HTTP/1.1 304 Not Modified\r\n\r\n", b""))
    same.original = Original("http://a.test/", warc_date(5.0), digest=digest(b"a"))
    composed = composer(Known()).compose(same, MAKER)
    fields = parsed(composed.first).headers
    assert fields["WARC-Profile"].endswith("/server-not-modified")
    assert fields["WARC-Refers-To-Target-URI"] == "http://a.test/"
    assert fields["WARC-Refers-To-Date"] == warc_date(5.0)
    assert fields["WARC-Payload-Digest"] == composed.payload == digest(b"a")


def test_a_receipt_names_the_record_that_has_the_payload() -> None:
    made, captures = composer(Known()), [page(1, b"a"), page(2, b"a")]
    captures[1].started += 0.000001
    for each in captures:
        each.receipt = Receipt()
    kinds(made, captures)
    for each in captures:
        assert each.receipt is not None
        assert each.receipt.payload == raw_digest(b"a", "sha1")
        place = (each.receipt.url, warc_date(each.receipt.date))
        assert place == (captures[0].url, warc_date(captures[0].started))


def test_without_an_index_every_capture_is_whole() -> None:
    made = composer(None)
    assert kinds(made, [page(1, b"a"), page(2, b"a")]) == ["response", "response"]
    made.synced()


def test_synced_writes_the_index() -> None:
    known = Known()
    composer(known).synced()
    assert known.synced == 1


BODIES = st.sampled_from([b"", b"a", b"b", b"\r\n\r\n", b"WARC/1.1\r\n"])
CAPTURES = st.lists(st.tuples(BODIES, st.sampled_from(["", "", "time"])), max_size=12)


@given(CAPTURES, st.sampled_from(["sha1", "sha256"]), st.integers(1, 3))
def test_every_revisit_refers_to_a_whole_response_before_it(
    described: list[tuple[bytes, str]], algorithm: str, most: int
) -> None:
    """Also if some payloads are forgotten. The head of the revisit and the payload of the original
    are the answer."""
    made = composer(Known(most), algorithm)
    maker = RecordMaker(record_id(bytes(16)), algorithm)
    whole: dict[tuple[str, str], bytes] = {}
    for number, (body, truncated) in enumerate(described):
        each = page(number, body, truncated)
        composed = made.compose(each, maker)
        made.written(each, composed)
        record = parsed(composed.first)
        block = record.reader.read()
        assert record.headers["WARC-Block-Digest"] == digest(block, algorithm)
        assert composed.payload == digest(body, algorithm)
        if not composed.revisit:
            assert block == each.response_bytes
            if not truncated:
                whole[each.url, record.headers["WARC-Date"]] = body
            continue
        place = (record.headers["WARC-Refers-To-Target-URI"], record.headers["WARC-Refers-To-Date"])
        assert block + whole[place] == each.response_bytes
        assert body
        assert not truncated


@given(url=st.text(max_size=20), date=st.text(max_size=20))
def test_any_value_of_an_index_is_refused_or_stays_in_its_field(url: str, date: str) -> None:
    """A manipulated index cannot begin a field either."""
    known = Known()
    made = composer(known)
    first = made.compose(page(1, b"a"), MAKER)
    assert first.new is not None
    known.add(first.new, Original(url, date))
    try:
        record = made.compose(page(2, b"a"), MAKER).first
    except ValueError:
        return
    fields = parsed(record).headers
    assert len(fields) == 15
    assert fields["WARC-Refers-To-Target-URI"] == url
    assert record.count(b"\r\nWARC-Type: ") == 1

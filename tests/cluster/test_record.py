"""Records and counters of members as JSON: read back unchanged, and never taken on trust."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.cluster.ring.ring import BadRecordError, Member, MemberRecord, Ring, load_counters
from tests.support.tables import table

A = Member("a", 1, "redis://:secret@127.0.0.1:1/0", "a.example:1")
B = Member("b", 2, "redis://127.0.0.1:2/0", "b.example:2")
RING_A, RING_AB = Ring([A]), Ring([A, B])


@given(st.binary() | st.text().map(str.encode))
def test_records_and_counters_of_any_bytes_are_handled(junk: bytes):
    for read in (lambda: MemberRecord.loads("a", junk), lambda: load_counters(junk)):
        with suppress(BadRecordError):
            read()


@table(
    "change",
    [
        {"weight": 0},
        {"weight": 0.0001},
        {"weight": True},
        {"weight": "1"},
        {"redis": None},
        {"redis": "http://h:secret/"},
        {"redis": "redis://h/0?socket_timeout=0"},
        {"redis": " "},
        {"redis": "redis://h/0\n"},
        {"claims": None},
        {"claims": [[["a", 1], ["a", 1]]]},
        {"claims": [[["a/b", 1]]]},
        {"claims": [["a"]]},
        {"leaving": 1},
        {"leaving": None},
    ],
)
def test_record_with_a_wrong_part_is_refused(change: dict[str, object]):
    said = {**json.loads(MemberRecord(A, (RING_AB,)).dumps()), **change}
    with pytest.raises(BadRecordError, match="the record of a cannot be read") as caught:
        MemberRecord.loads("a", json.dumps(said).encode())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("leaving", [False, True])
def test_record_round_trip(leaving: bool):
    record = MemberRecord(B, (RING_A, RING_AB), leaving=leaving)
    assert MemberRecord.loads("b", record.dumps()) == record


@pytest.mark.parametrize("version", [0, 2, "1", None, "x" * 10_000])
def test_record_of_another_version_is_refused(version: object):
    said = json.loads(MemberRecord(A).dumps())
    with pytest.raises(BadRecordError, match=r"record of a .* of version .*, not 1") as caught:
        MemberRecord.loads("a", json.dumps({**said, "version": version}).encode())
    assert len(str(caught.value)) < 200
    del said["version"]
    with pytest.raises(BadRecordError, match=r"the record of a cannot be read: .*`version`"):
        MemberRecord.loads("a", json.dumps(said).encode())


def test_counters_are_names_and_numbers():
    assert load_counters(b'{"a": 1, "b": 1.5}') == {"a": 1, "b": 1.5}
    endless = b'{"a": ' + b"9" * 400 + b"}"
    for wrong in (
        b'{"a": "1"}',
        b'{"a": true}',
        b"[1]",
        b"[" * 100_000,
        b'{"a": 1e999}',
        b'{"a": NaN}',
        endless,
        b'{"a": -' + b"9" * 5000 + b"}",
    ):
        with pytest.raises(BadRecordError):
            load_counters(wrong)

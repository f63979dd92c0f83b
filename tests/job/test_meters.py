"""What is measured for the metrics: histograms, classes of content, versions, LevelDB's table."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from krowlspider.cluster.transport.redis_connection import _KINDS, _WORDS
from krowlspider.fetch.errors import Dialled, Exchange, Peer, Times
from krowlspider.job.meters import _TOGETHER, REDIS_ERRORS, Histogram, Meters, content_class
from krowlspider.job.metrics import _of_leveldb
from tests.support.tables import table

LEVELDB = """                               Compactions
Level  Files Size(MB) Time(sec) Read(MB) Write(MB)
--------------------------------------------------
  0        3        1         2        0         3
  1        2        4         1        4         5
"""


def exchange(peer: Peer, dialled: Dialled | None, *headers: tuple[bytes, bytes]) -> Exchange:
    times = Times(0.0, 0.2, 3.0, dialled)
    return Exchange("u", b"", b"x" * 2000, 0, 200, "1.1", [*headers], b"", "", peer, times)


def test_a_bucket_has_the_values_up_to_its_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.sum == 7.5


def test_an_exchange_is_measured_with_its_connection_once() -> None:
    meters = Meters()
    secure = Peer("1.2.3.4", ("TLSv1.3", "x"))
    meters.fetched(exchange(secure, Dialled(0.1, 0.04, 0.07), (b"Content-type", b"text/html")))
    meters.fetched(exchange(secure, None))
    meters.fetched(exchange(Peer("1.2.3.4"), Dialled(0.1, 0.04)))
    meters.count()
    meters.count()
    seconds = {name: sum(getattr(meters, name).counts) for name in ("connect", "tls", "fetch")}
    assert seconds == {"connect": 2, "tls": 1, "fetch": 3}
    assert (meters.tls.sum, meters.connect.sum, meters.size.sum) == (0.07, 0.08, 6000)
    assert (meters.first_byte.sum, meters.fetch.sum) == (pytest.approx(0.6), 9.0)
    assert meters.http_versions == {"1.0": 0, "1.1": 3}
    assert (meters.tls_versions["TLSv1.3"], meters.tls_versions["none"]) == (2, 1)
    assert (meters.content_types["html"], meters.content_types["none"]) == (1, 2)


def test_an_answer_of_another_protocol_has_no_version_of_http() -> None:
    meters = Meters()
    made = exchange(Peer("1.2.3.4", ("TLSv1.3", "x")), None)
    made.version = ""
    meters.fetched(made)
    meters.count()
    assert sum(meters.http_versions.values()) == 0
    assert meters.tls_versions["TLSv1.3"] == sum(meters.size.counts) == 1


def test_exchanges_that_wait_to_be_counted_have_a_bound() -> None:
    meters, made = Meters(), exchange(Peer("1.2.3.4"), None)
    for _ in range(_TOGETHER + 1):
        meters.fetched(made)
    assert meters.http_versions["1.1"] == _TOGETHER
    assert len(meters._waiting) == 1


def test_an_exchange_costs_one_call() -> None:
    """So does a value of a histogram, of which a page has a few more."""
    meters, made, calls = Meters(), exchange(Peer("1.2.3.4"), None, (b"Content-Type", b"x")), []
    sys.setprofile(lambda frame, event, _: event == "call" and calls.append(frame.f_code.co_name))
    try:
        meters.fetched(made)
        meters.batch.observe(0.1)
    finally:
        sys.setprofile(None)
    assert sorted(calls) == ["fetched", "observe"]


@table(
    ("content_type", "found"),
    [
        (b"text/html; charset=utf-8", "html"),
        (b"application/xhtml+xml", "html"),
        (b"Image/SVG+xml", "image"),
        (b"application/ld+json", "json"),
        (b"application/rss+xml", "xml"),
        (b"text/css", "style"),
        (b"text/plain", "text"),
        (b"application/zip", "other"),
        (b"\xff", "other"),
        (b" ;", "none"),
    ],
)
def test_content_type_has_one_of_few_classes(content_type: bytes, found: str) -> None:
    assert content_class(content_type) == found


def test_the_table_of_leveldb_is_read() -> None:
    texts = {"stats": LEVELDB, "approximate-memory-usage": "4104"}
    job: Any = SimpleNamespace(store=SimpleNamespace(property=texts.__getitem__))
    mb = 1024 * 1024
    assert _of_leveldb(job) == {
        "krowl_leveldb_files": {"0": 3, "1": 2},
        "krowl_leveldb_size_bytes": {"0": mb, "1": 4 * mb},
        "krowl_leveldb_memory_bytes": 4104,
        "krowl_leveldb_compaction_seconds": {"0": 2, "1": 1},
        "krowl_leveldb_compaction_read_bytes": {"0": 0, "1": 4 * mb},
        "krowl_leveldb_compaction_written_bytes": {"0": 3 * mb, "1": 5 * mb},
    }


def test_kinds_of_failures_of_redis_are_labels() -> None:
    assert {*REDIS_ERRORS} == {*(kind for _, kind in _KINDS), *_WORDS.values(), "other"}

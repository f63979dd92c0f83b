"""Messages about robots.txt: what they carry, what is refused, and how many wait."""

from __future__ import annotations

import json
import os

import pytest

from krowlspider.cluster.transport import posts
from krowlspider.cluster.transport.message import BadMessage
from krowlspider.cluster.transport.posts import (
    MAX_ROBOTS_MESSAGE,
    RobotsAnswer,
    RobotsAsk,
    RobotsPost,
    decode_robots,
    encode_answer,
    encode_ask,
)
from krowlspider.politeness.robots import RobotsRecord
from krowlspider.urls.robots_groups import BODY_MAX
from tests.support.tables import table

URL = "http://b.test/robots.txt"
WALL = 1_700_000_000.0


def record(body: bytes = b"x", ruling: str = "rules", left: float = 100.0) -> RobotsRecord:
    return RobotsRecord(ruling, WALL - 50, WALL + left, 200, body)


def test_messages_are_read_as_written() -> None:
    """The reader's clock may differ, and no robots.txt is too long."""
    assert decode_robots(encode_ask("a", 7, URL)) == RobotsAsk(1, "a", 7, URL)
    assert decode_robots(encode_answer(7, None, URL, WALL)) == RobotsAnswer(1, 7, location=URL)
    assert decode_robots(encode_answer(7, None, None, WALL)) == RobotsAnswer(1, 7)
    body = os.urandom(BODY_MAX + 1)
    answer = decode_robots(encode_answer(7, record(body), None, WALL))
    assert isinstance(answer, RobotsAnswer)
    assert answer.record_at(5000.0) == RobotsRecord("rules", 4950.0, 5100.0, 200, body)


def changed(data: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(data), **fields}).encode()


ASK = encode_ask("a", 7, URL)
ANSWER = encode_answer(7, record(), None, WALL)


@table("data", [
    b"",
    b"[]",
    b"{}",
    b"\x80\x04.",
    changed(ASK, type="order"),
    changed(ASK, version=2),
    changed(ASK, more=1),
    changed(ASK, node=""),
    changed(ASK, number=-1),
    changed(ASK, url="ftp://b.test/robots.txt"),
    changed(ASK, url="http://B.test/robots.txt"),
    changed(ASK, url="http://b.test/" + "x" * 2048),
    changed(ANSWER, location="no URL", record=None),
    changed(ANSWER, record="x"),
    changed(ANSWER, record="eHh4"),
    encode_answer(7, record(left=-1), None, WALL),
    encode_answer(7, record(left=float("nan")), None, WALL),
    encode_answer(7, record(left=1e12), None, WALL),
    encode_answer(7, record(ruling="redirect"), None, WALL),
    ASK + b" " * MAX_ROBOTS_MESSAGE,
])  # fmt: skip
def test_bad_messages_are_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        decode_robots(data)


def test_waiting_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those for a node that has left are forgotten."""
    there = {"b", "c"}
    post = RobotsPost("a", lambda _: None, there.__contains__, wall=lambda: WALL)
    post.ask("b", 1, URL)
    post.ask("b", 1, URL)
    assert len(post.next("b", 10)[1]) == 1
    monkeypatch.setattr(posts, "BYTES_MAX", 3 * BODY_MAX)
    for number in range(10):
        post.answer("c", number, record=record(os.urandom(BODY_MAX)))
    assert len(post.next("c", 100)[1]) == 2
    monkeypatch.setattr(posts, "BYTES_MAX", 1 << 30)
    monkeypatch.setattr(posts, "MESSAGES_MAX", 10)
    for number in range(20):
        post.ask("b", number, URL)
    assert post.count == 10
    there.remove("b")
    post.ask("b", 1, URL)
    post.pushed("c", post.next("c", 100)[0])
    assert (post.owners(), post.count, post.size) == ([], 0, 0)

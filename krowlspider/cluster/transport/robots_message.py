"""The JSON of an ask for the robots.txt of another node's host, and of its answer.

A record's times go as seconds from the sending, as the clocks of the nodes may differ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from krowlspider.cluster.transport.meta import BadMessage, check_url
from krowlspider.politeness.robots import RobotsRecord, Ruling

# Version of these messages. Those of other versions are refused.
VERSION = 1
# Bytes of a message: a robots.txt of 500 KiB that cannot be compressed fits in.
MAX_ROBOTS_MESSAGE = 1 << 20
# Characters of a URL, as of a redirect of robots.txt that is followed.
_URL_MAX = 2048
# Seconds for which a record may have held, or may hold.
_SECONDS_MAX = 366 * 86_400.0

_Number = Annotated[int, Meta(ge=0, lt=2**52)]
_Url = Annotated[str, Meta(max_length=_URL_MAX)]
_DECIDING = {Ruling.RULES.value, Ruling.ALLOW_ALL.value, Ruling.RETRY.value}


class RobotsAsk(Struct, tag="ask", forbid_unknown_fields=True):
    """``node`` asks for the robots.txt at ``url``, and calls this ask ``number``."""

    version: int
    node: Annotated[str, Meta(min_length=1, max_length=255)]
    number: _Number
    url: _Url


class RobotsAnswer(Struct, tag="answer", forbid_unknown_fields=True, omit_defaults=True):
    """The answer to the ask ``number``: a record, or a redirect to ``location``.

    Without either, the robots.txt is to be fetched.
    """

    version: int
    number: _Number
    location: _Url | None = None
    record: bytes | None = None

    def record_at(self, wall: float) -> RobotsRecord | None:
        """Return the record, if any; ``wall`` is this node's clock in epoch seconds."""
        return None if self.record is None else _shifted(RobotsRecord.decode(self.record), wall)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RobotsAsk | RobotsAnswer).decode


def encode_ask(node: str, number: int, url: str) -> bytes:
    return _encode(RobotsAsk(VERSION, node, number, url))


def encode_answer(
    number: int, record: RobotsRecord | None, location: str | None, wall: float
) -> bytes:
    """Return the message; ``wall`` is this node's clock in epoch seconds."""
    coded = None if record is None else _shifted(record, -wall).encode()
    return _encode(RobotsAnswer(VERSION, number, location, coded))


def decode_robots(data: bytes) -> RobotsAsk | RobotsAnswer:
    """Return the message.

    :raises BadMessage: it is none, of another version, or exceeds a bound
    """
    if len(data) > MAX_ROBOTS_MESSAGE:
        raise BadMessage(f"longer than {MAX_ROBOTS_MESSAGE} bytes")
    try:
        message: RobotsAsk | RobotsAnswer = _decode(data)
        if isinstance(message, RobotsAnswer) and (record := message.record_at(0.0)) is not None:
            _check(record)
    except (ValueError, RecursionError) as error:
        raise BadMessage(str(error)[:200]) from error
    if message.version != VERSION:
        raise BadMessage(f"of version {message.version}, not {VERSION}")
    url = message.url if isinstance(message, RobotsAsk) else message.location
    if url is not None and check_url(url) != url:
        raise BadMessage("a URL that is not in its normal form")
    return message


def _check(record: RobotsRecord) -> None:
    """:raises ValueError: the record decides nothing, or its times are out of bounds"""
    if record.ruling not in _DECIDING:
        raise ValueError(f"a record that means {record.ruling}")
    if not (-_SECONDS_MAX <= record.fetched <= 0.0 < record.expires <= _SECONDS_MAX):
        raise ValueError("a record whose times are out of bounds")


def _shifted(record: RobotsRecord, seconds: float) -> RobotsRecord:
    return replace(record, fetched=record.fetched + seconds, expires=record.expires + seconds)

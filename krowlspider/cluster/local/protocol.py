"""The calls of a register at a Unix socket: each is one connection, one question and one answer."""

from __future__ import annotations

from typing import Any

import msgspec

from krowlspider.cluster.ring.live_members import RegisterEntry  # noqa: TC001 - msgspec reads it


class Question(msgspec.Struct, array_like=True):
    """A call of a method of `Register`, with its arguments."""

    method: str
    arguments: list[Any]


class Answer(msgspec.Struct, array_like=True):
    """What a call has returned. ``entries`` are None for a transaction that is refused. ``gone``:
    the session has ended."""

    text: str = ""
    entries: list[RegisterEntry] | None = None
    index: int = 0
    gone: bool = False

"""Inputs out of others: pieces in, pieces out, and above all one small piece many times."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

# Bytes of the longest piece that is repeated.
_PIECE = 48


def mutated(data: bytes, pieces: Sequence[bytes], chance: Random, longest: int) -> bytes:
    """Another input of at most ``longest`` bytes."""
    for _ in range(chance.randint(1, 4)):
        data = chance.choice(_WAYS)(data, pieces, chance, longest)[:longest]
    return data


def _put_in(data: bytes, pieces: Sequence[bytes], chance: Random, longest: int) -> bytes:
    at = chance.randint(0, len(data))
    return data[:at] + chance.choice(pieces) + data[at:]


def _leave_out(data: bytes, pieces: Sequence[bytes], chance: Random, longest: int) -> bytes:
    start, end = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
    return data[:start] + data[end:]


def _change(data: bytes, pieces: Sequence[bytes], chance: Random, longest: int) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def _repeat(data: bytes, pieces: Sequence[bytes], chance: Random, longest: int) -> bytes:
    """A part of it, or some pieces, many times in its place."""
    at = chance.randint(0, len(data))
    if chance.random() < 0.5:
        part = data[at : at + chance.randint(1, _PIECE)]
    else:
        part = b"".join(chance.choices(pieces, k=chance.randint(1, 3)))
    count = chance.choice((10, 1000, longest)) // max(1, len(part))
    return data[:at] + part * count + data[at + len(part) :]


def _double(data: bytes, pieces: Sequence[bytes], chance: Random, longest: int) -> bytes:
    start, end = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
    return data[:end] + data[start:end] + data[end:]


def _begin(data: bytes, pieces: Sequence[bytes], chance: Random, longest: int) -> bytes:
    return chance.choice(pieces) + data


_WAYS = (_put_in, _leave_out, _change, _repeat, _repeat, _repeat, _double, _begin)

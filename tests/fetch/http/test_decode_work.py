"""The cost of decoding a body: work in proportion to its input and output, in any coding."""

from __future__ import annotations

import itertools
import random
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

import brotli
import pytest

from krowlspider.fetch.errors import DecodeFailed, TooLarge
from krowlspider.fetch.http.decode import CPU_BASE, CPU_PER_BYTE, IDLE_INPUT, Decoding, decode_body
from tests.fetch.emptiness import NOTHING, costly
from tests.fetch.http.coders import CODERS, PAGE
from tests.support.work import seconds

if TYPE_CHECKING:
    from tests.fetch.emptiness import Emptiness

CAP = 10 * 1024 * 1024
# CPU seconds for a byte of input: the costliest coding takes 0.5 µs here, and other machines are
# slower.
PER_BYTE = 5e-6
# Those of the longest step on the loop, of 16 KiB.
STEP = 16 * 1024 * PER_BYTE
NOISE = random.Random(1).randbytes(2_000_000)

coding = pytest.mark.parametrize("coding", CODERS)
emptiness = pytest.mark.parametrize("kind", NOTHING.values(), ids=NOTHING)


def cost(body: bytes, encodings: bytes, enough: float) -> float:
    """Return the CPU seconds of decoding, whether it succeeds or not; see `seconds`."""

    def decode() -> None:
        with suppress(DecodeFailed, TooLarge):
            decode_body(body, encodings, CAP)

    return seconds(decode, enough=enough)


def cost_of_refusal(body: bytes, encodings: bytes, enough: float) -> float:
    def refused() -> None:
        with pytest.raises(DecodeFailed):
            decode_body(body, encodings, CAP)

    return seconds(refused, enough=enough)


@emptiness
def test_work_on_empty_blocks_is_linear(kind: Emptiness) -> None:
    most = PER_BYTE * 200_000
    assert cost(kind.of(200_000), kind.coding, most) < most


@emptiness
def test_body_that_decodes_to_nothing_is_refused_early(kind: Emptiness) -> None:
    most = PER_BYTE * 2 * IDLE_INPUT
    assert cost_of_refusal(kind.of(8_000_000), kind.coding, most) < most


@emptiness
def test_packed_empty_blocks_are_refused_as_early(kind: Emptiness) -> None:
    body = brotli.compress(kind.of(8_000_000), quality=9)
    assert len(body) < 600
    # The outer coding expands ordinarily.
    most = PER_BYTE * 2 * IDLE_INPUT + 0.5
    assert cost_of_refusal(body, kind.coding + b", br", most) < most


def test_costly_blocks_end_at_the_cpu_bound() -> None:
    body = brotli.compress(costly(10_000_000), quality=9)
    assert len(body) < 1000
    most = CPU_BASE + CPU_PER_BYTE * CAP + 1.0
    assert cost_of_refusal(body, b"deflate, br", most) < most


def test_cpu_is_counted_over_all_codings_and_steps() -> None:
    """The clock advances by 10 ms at each reading: one reading a step, and one a run."""
    body = brotli.compress(zlib.compress(NOISE), quality=1)

    def undo(left_off: float) -> int:
        clock = itertools.count(step=0.01)
        decoding = Decoding(body, b"deflate, br", CAP, lambda: next(clock))
        decoding.sizes = 16_384, 16_384
        runs = 1
        while not decoding.run(left_off):
            decoding.sizes = 16_384, 16_384
            runs += 1
        return runs

    with pytest.raises(DecodeFailed, match="CPU"):
        undo(1000.0)
    with pytest.raises(DecodeFailed, match="CPU"):
        undo(0.1)


@emptiness
def test_each_step_is_short(kind: Emptiness) -> None:
    body = kind.of(200_000)

    def step() -> None:
        with suppress(DecodeFailed):
            Decoding(body, kind.coding, CAP).run(0.0)

    assert seconds(step, enough=STEP) < STEP


@coding
@pytest.mark.parametrize("sizes", [(1, 1), (1, 1000), (3, 7), (1000, 1), (100, 65_536)])
def test_steps_of_any_size_yield_the_same(coding: bytes, sizes: tuple[int, int]) -> None:
    data = PAGE[:3000] + bytes(5000) + NOISE[:3000]
    decoding = Decoding(CODERS[coding](data), coding, 11_000)
    decoding.sizes = sizes
    assert decoding.run()
    assert decoding.body == data


@coding
def test_interrupted_decoding_yields_the_same_body(coding: bytes) -> None:
    data = PAGE + NOISE
    decoding = Decoding(CODERS[coding](data), coding, CAP)
    while not decoding.run(0.0):
        pass
    assert decoding.body == data


@coding
def test_incompressible_body_is_decoded(coding: bytes) -> None:
    assert decode_body(CODERS[coding](NOISE), coding, CAP) == NOISE


def test_stream_flushed_at_every_word_is_decoded() -> None:
    words = [NOISE[at : at + 4] for at in range(0, 400_000, 4)]
    packer = zlib.compressobj(1)
    body = b"".join(packer.compress(word) + packer.flush(zlib.Z_SYNC_FLUSH) for word in words)
    assert decode_body(body + packer.flush(), b"deflate", CAP) == b"".join(words)
    brotlier = brotli.Compressor(quality=1)
    body = b"".join(brotlier.process(word) + brotlier.flush() for word in words)
    assert decode_body(body + brotlier.finish(), b"br", CAP) == b"".join(words)


def test_more_than_two_codings_are_refused() -> None:
    body = zlib.compress(PAGE)
    assert decode_body(zlib.compress(body), b"deflate, identity, deflate", CAP) == PAGE
    with pytest.raises(DecodeFailed, match="3 content codings"):
        decode_body(zlib.compress(zlib.compress(body)), b"deflate, deflate, deflate", CAP)

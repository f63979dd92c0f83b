from __future__ import annotations

import contextlib
import gzip
import tracemalloc
import zlib

import brotli
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.fetch.errors import DecodeFailed, TooLarge
from krowlspider.fetch.http.decode import MEMBERS_CAP, Decoding, decode_body
from tests.fetch.http.coders import CODERS, PAGE

BIG = 10_000_000


coding = pytest.mark.parametrize("coding", CODERS)


@coding
def test_every_coding_is_undone_whatever_its_case(coding: bytes) -> None:
    body = CODERS[coding](PAGE)
    assert decode_body(body, coding, BIG) == PAGE
    assert decode_body(body, coding.upper() + b" ", BIG) == PAGE


@coding
@given(st.binary(max_size=300))
def test_any_bytes_come_back(coding: bytes, data: bytes) -> None:
    assert decode_body(CODERS[coding](data), coding, 300) == data


@coding
def test_a_body_at_the_cap_passes_and_one_byte_more_does_not(coding: bytes) -> None:
    body = CODERS[coding](PAGE)
    assert decode_body(body, coding, len(PAGE)) == PAGE
    with pytest.raises(TooLarge):
        decode_body(body, coding, len(PAGE) - 1)


@coding
def test_a_body_is_cut_at_the_cap_if_asked(coding: bytes) -> None:
    decoding = Decoding(CODERS[coding](PAGE), coding, 10_000, cuts=True)
    assert decoding.run()
    assert decoding.body == PAGE[:10_000]


@coding
def test_bomb_takes_little_memory(coding: bytes) -> None:
    bomb = CODERS[coding](bytes(40_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decode_body(bomb, coding, 1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000


@coding
def test_a_body_cut_short_yields_what_could_be_decoded(coding: bytes) -> None:
    noise = b"".join(
        zlib.crc32(bytes([i % 256, i // 256])).to_bytes(4, "big") for i in range(50_000)
    )
    body = CODERS[coding](noise)
    part = decode_body(body[: len(body) * 9 // 10], coding, BIG)
    assert noise.startswith(part)
    assert len(part) > len(noise) // 4


@coding
def test_noise_is_refused(coding: bytes) -> None:
    with pytest.raises(DecodeFailed):
        decode_body(b"\x07<html>this is no such coding</html>", coding, BIG)


@coding
@given(st.binary(max_size=200))
def test_hostile_bytes_decode_within_the_cap_or_are_refused(coding: bytes, noise: bytes) -> None:
    with contextlib.suppress(DecodeFailed, TooLarge):
        assert len(decode_body(noise, coding, 1000)) <= 1000


def test_a_corrupt_middle_is_refused() -> None:
    body = bytearray(gzip.compress(PAGE))
    body[-6] ^= 0xFF
    with pytest.raises(DecodeFailed):
        decode_body(bytes(body), b"gzip", BIG)


def test_gzip_members_are_joined_without_garbage_after_them() -> None:
    body = gzip.compress(b"one ") + gzip.compress(PAGE) + gzip.compress(b"")
    assert decode_body(body, b"gzip", BIG) == b"one " + PAGE
    assert decode_body(body + bytes(100), b"gzip", BIG) == b"one " + PAGE
    assert decode_body(body + b"<!-- -->", b"gzip", BIG) == b"one " + PAGE


def test_members_share_one_cap() -> None:
    with pytest.raises(TooLarge):
        decode_body(gzip.compress(bytes(60)) * 2, b"gzip", 100)


def test_too_many_members_are_refused() -> None:
    member = gzip.compress(b"")
    assert decode_body(member * MEMBERS_CAP, b"gzip", 10) == b""
    with pytest.raises(DecodeFailed):
        decode_body(member * (MEMBERS_CAP + 1), b"gzip", 10)


def test_zstd_frames_are_joined() -> None:
    pack = zstd.compress
    assert decode_body(pack(b"one ") + pack(b"two"), b"zstd", 100) == b"one two"


def test_a_zstd_window_beyond_what_http_allows_is_refused() -> None:
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 25})
    body = packer.compress(bytes(100)) + packer.flush()
    with pytest.raises(DecodeFailed):
        decode_body(body, b"zstd", BIG)


def test_chains_are_undone_from_the_last_to_the_first() -> None:
    body = brotli.compress(gzip.compress(PAGE))
    assert decode_body(body, b"gzip, identity,br", BIG) == PAGE


@pytest.mark.parametrize("encodings", [b"", b" , ", b"identity", b"utf-8", b"none"])
def test_body_without_a_known_coding_is_unchanged(encodings: bytes) -> None:
    assert decode_body(PAGE, encodings, BIG) == PAGE

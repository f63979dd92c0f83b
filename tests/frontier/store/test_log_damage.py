"""A repair removes damaged records from a LevelDB log, and nothing else."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import plyvel
import pytest

from krowlspider.frontier.store.leveldb import BLOCK, crc32c, without_damage

if TYPE_CHECKING:
    from pathlib import Path

COMMITS = 1500


def commits() -> list[tuple[bytes, bytes]]:
    chance = random.Random(3)
    return [(b"k%06d" % at, chance.randbytes(chance.randrange(20, 300))) for at in range(COMMITS)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a store of many commits."""
    store = plyvel.DB(str(tmp_path / "db"), create_if_missing=True)
    for key, value in commits():
        store.put(key, value)
    store.close()
    [log] = (tmp_path / "db").glob("*.log")
    return log


def recovered(log: Path, data: bytes) -> dict[bytes, bytes]:
    """Repair a log with LevelDB, which reads no checksum; return the content."""
    log.write_bytes(data)
    plyvel.repair_db(str(log.parent))
    store = plyvel.DB(str(log.parent))
    try:
        return dict(store.iterator())
    finally:
        store.close()


def test_the_checksum_is_that_of_the_rfc() -> None:
    """RFC 3720, appendix B.4."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(b"123456789") == 0xE3069283


def test_an_undamaged_log_is_unchanged(log: Path) -> None:
    data = log.read_bytes()
    assert len(data) > 4 * BLOCK
    assert without_damage(data) == (data, 0)


def test_a_log_cut_at_any_length_keeps_the_rest(log: Path) -> None:
    data = log.read_bytes()
    for length in (0, 3, 7, 100, BLOCK - 3, BLOCK, BLOCK + 5, len(data) - 1):
        cleaned, damaged = without_damage(data[:length])
        assert len(cleaned) == length
        assert damaged < 400


@pytest.mark.parametrize("at", [0, 4, 6, 12, 40, BLOCK - 1, BLOCK + 4, 2 * BLOCK + 5, 100_201])
def test_a_flipped_byte_loses_only_its_own_commits(log: Path, at: int) -> None:
    data = bytearray(log.read_bytes())
    data[at] ^= 0x55
    cleaned, damaged = without_damage(bytes(data))
    assert damaged > 0
    found = recovered(log, cleaned)
    assert found.items() <= dict(commits()).items()
    # A wrong length loses the rest of its block; a commit takes 180 bytes.
    lost = COMMITS - len(found)
    assert 1 <= lost <= (BLOCK // 100 if at % BLOCK in (4, 5) else 2)


def test_noise_in_a_block_loses_only_that_block(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[BLOCK : 2 * BLOCK] = random.Random(1).randbytes(BLOCK)
    data[3 * BLOCK : 4 * BLOCK] = bytes(BLOCK)
    found = recovered(log, without_damage(bytes(data))[0])
    assert found.items() <= dict(commits()).items()
    assert len(found) > COMMITS // 2

"""The tables by a manifest are those of LevelDB itself."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.store.leveldb import Manifest
from krowlspider.frontier.store.store import LevelStore, put

if TYPE_CHECKING:
    from pathlib import Path


def filled(folder: Path) -> tuple[bytes, list[set[int]]]:
    """Return the manifest of a store, and its tables after each merge. The edits have keys of some
    kB, so that they lie across the blocks of the manifest."""
    found = []
    with closing(LevelStore(folder, create=True)) as store:
        for number in range(60):
            put(store, b"%02d" % (number * 37 % 60) * 1500, b"x")
            store.compact(b"\0", b"\xff")
            lines = store.property("sstables")
            found.append({int(each) for each in re.findall(r"^ (\d+):\d+\[", lines, re.MULTILINE)})
        name = (folder / "CURRENT").read_text().strip()
        return (folder / name).read_bytes(), found


def test_tables_are_those_of_leveldb_wherever_the_manifest_is_cut(tmp_path: Path) -> None:
    data, found = filled(tmp_path / "store")
    assert len(data) > 5 * 32_768
    path = tmp_path / "manifest"
    path.touch()
    met = [set[int]()]
    with path.open("rb") as file, path.open("ab") as growing:
        manifest = Manifest(file)
        for at in range(0, len(data), 997):
            growing.write(data[at : at + 997])
            growing.flush()
            manifest.read()
            met.append(set(manifest.tables))
        assert manifest.size == len(data)
    assert met[-1] == found[-1]
    whole = set(map(frozenset, met))
    assert sum(frozenset(tables) in whole for tables in found) > len(found) // 2


def test_another_format_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    path.write_bytes(b"\0\0\0\0\x01\0\x09x")
    with path.open("rb") as file, pytest.raises(ValueError, match="type 9"):
        Manifest(file).read()
    path.write_bytes(b"\0\0\0\0\x01\0\x01\x08")
    with path.open("rb") as file, pytest.raises(ValueError, match="field 8"):
        Manifest(file).read()

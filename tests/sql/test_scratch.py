"""The temporary folders of queries: a killed process leaves one, and a later one removes it."""

from __future__ import annotations

import os
import tempfile
import time
from typing import TYPE_CHECKING

from krowlspider.sql.execution import remove_left, scratch_folder

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def later() -> float:
    return time.time() + 100


def test_only_what_a_dead_process_has_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "krowlspider-sql-left"
    shared, foreign = tmp_path / "krowlspider-sql-shared", tmp_path / "krowlspider-sql-link"
    for path in (left / "spill", shared, tmp_path / "other"):
        path.mkdir(parents=True)
    left.chmod(0o700)
    foreign.symlink_to(tmp_path / "other")
    with scratch_folder() as scratch:
        # What has just been made may not be locked yet.
        assert left.exists()
        remove_left(later)
        assert scratch.exists()
        assert not left.exists()
    remove_left(later)
    assert sorted(os.listdir(tmp_path)) == [foreign.name, shared.name, "other"]  # noqa: PTH208

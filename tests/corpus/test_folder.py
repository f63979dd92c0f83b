"""A corpus goes on only with the options with which it was begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.corpus.folder import Folder
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from pathlib import Path

BEGUN = {"fingerprints": 2, "host": "", "limit": None}


def test_a_folder_goes_on_with_the_same_options(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.begin(BEGUN)
    folder.begin(dict(reversed(BEGUN.items())))
    with pytest.raises(KrowlError, match=r"other options: give the same host, limit, or a new"):
        folder.begin(BEGUN | {"host": "example.org", "limit": 3})
    folder.close()


def test_fingerprints_of_two_versions_are_not_mixed(tmp_path: Path) -> None:
    """Near duplicates of older pages would not be found."""
    folder = Folder(tmp_path)
    # The first version did not note which fingerprints it makes.
    folder.begin({"host": "", "limit": None})
    with pytest.raises(KrowlError, match=r"made other fingerprints of texts: give a new folder"):
        folder.begin(BEGUN)
    folder.close()


def test_records_of_two_forms_are_not_mixed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.begin(BEGUN)
    with pytest.raises(KrowlError, match=r"records have other fields: give a new folder"):
        folder.begin(BEGUN | {"form": 2})
    folder.close()

"""Redirects from a URL to one with the same key, which lead a wayback back to themselves."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from krowlspider.archive.cdxj import key_of
from krowlspider.archive.disk import OPEN, RecordError
from krowlspider.archive.payload import header
from krowlspider.archive.reading import read_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.cdx.capture import CaptureLine

# Bytes of a record in which its Location is looked for.
_HEAD_MAX = 64 * 1024


def is_self_redirect(folders: Sequence[Path], capture: CaptureLine) -> bool:
    """Return whether a capture is a redirect to its own key. Raises OSError.

    Index lines do not have the target, so the record is read. One that cannot be read is none.
    """
    status = capture.text("status")
    if not (len(status) == 3 and status.startswith("3")) or status == "304":
        return False
    target = capture.text("redirect").removeprefix("-") or _location(folders, capture)
    with suppress(ValueError):
        return bool(target) and key_of(urljoin(capture.text("url"), target)) == capture.text(
            "urlkey"
        )
    return False


def _location(folders: Sequence[Path], capture: CaptureLine) -> str:
    # Only the name of the file: an index must not lead out of the folder.
    name, offset = Path(capture.text("filename")).name, capture.text("offset")
    if not name or not offset.isdecimal():
        return ""
    for folder in folders:
        for path in (folder / name, folder / name.removesuffix(OPEN)):
            with suppress(FileNotFoundError, RecordError):
                return header(read_record(path, int(offset), _HEAD_MAX)[1], "Location")
    return ""

"""What can go wrong in the archive, told apart by what the caller may still do."""

from __future__ import annotations


class ArchiveError(Exception):
    """The archive can vouch for nothing more: no page may be acknowledged after this."""


class CaptureRefused(ValueError):
    """One capture cannot be a WARC record; nothing of it was written, the others are unharmed."""


class RecordError(ValueError):
    """Bytes in an archive file are not what they should be.

    ``offset`` is where the gzip member begins that is not whole or holds no valid record.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason

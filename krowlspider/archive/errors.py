"""The archive's errors; each one defines what the caller may still do."""

from __future__ import annotations


class ArchiveError(Exception):
    """The archive has failed for good: no page may be acknowledged after this."""


class CaptureRefused(ValueError):
    """One capture cannot be a WARC record. Nothing of it was written; others are not affected."""


class RecordError(ValueError):
    """An archive file is damaged: the gzip member at ``offset`` is cut off, or no valid record."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class CutOffError(RecordError):
    """The gzip member at ``offset`` is whole as far as it goes, but the file ends within it."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset, "the gzip member is cut off")

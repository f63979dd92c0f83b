"""Lines of a file that comes piece by piece, plain or gzip."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from krowlspider.engine.importing import LINE_MAX
from krowlspider.errors import KrowlError
from krowlspider.frontier.admin.words import data_size

if TYPE_CHECKING:
    from collections.abc import Iterator

# Bytes of all lines, unpacked: some five million domains.
FILE_MAX = 100_000_000
# Bytes that are unpacked at a time.
_PIECE = 65_536
_GZIP = b"\x1f\x8b"
# Of zlib: the format is gzip.
_OF_GZIP = 31


class TooLongError(KrowlError):
    """A file has more bytes than are taken."""

    def __init__(self) -> None:
        super().__init__(
            f"the file has more than {data_size(FILE_MAX)} when unpacked: give it in parts; the"
            " lines before that were taken"
        )


class LineReader:
    """Cuts what it is fed into lines; the last one comes with `end`.

    ``most`` is the number of bytes that it takes, unpacked.
    """

    def __init__(self, most: int = FILE_MAX) -> None:
        self._left = most
        self._rest = b""
        self._start: bytes | None = b""
        self._unpacker: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[list[bytes]]:
        """Yield the lines that are whole, some at a time.

        :raises TooLongError: the file is too long
        :raises KrowlError: it is no text, or broken gzip
        """
        if self._start is not None:
            data = self._start + data
            if len(data) < len(_GZIP):
                self._start = data
                return
            self._start = None
            if data.startswith(_GZIP):
                self._unpacker = zlib.decompressobj(_OF_GZIP)
        for piece in self._unpacked(data):
            yield self._lines(piece)

    def end(self) -> list[bytes]:
        """Return the last line, if the file ends without a line end.

        :raises KrowlError: the file is cut short
        """
        if self._unpacker is not None and not self._unpacker.eof:
            raise KrowlError("the gzip file is cut short: the lines before that were taken")
        return list(filter(None, ((self._start or b"") + self._rest).split(b"\n")))

    def _unpacked(self, data: bytes) -> Iterator[bytes]:
        if self._unpacker is None:
            yield data
            return
        try:
            while data:
                if self._unpacker.eof:
                    # The next member, or padding behind the last one.
                    data = data.lstrip(b"\0")
                    if not data:
                        return
                    self._unpacker = zlib.decompressobj(_OF_GZIP)
                yield self._unpacker.decompress(data, _PIECE)
                data = self._unpacker.unconsumed_tail or self._unpacker.unused_data
        except zlib.error as error:
            raise KrowlError(
                f"the gzip file is broken ({error}): the lines before that were taken"
            ) from error

    def _lines(self, piece: bytes) -> list[bytes]:
        self._left -= len(piece)
        if self._left < 0:
            raise TooLongError
        if b"\0" in piece:
            raise KrowlError(
                "the file is binary: give text in UTF-8, a domain, a URL or a JSON object a line,"
                " or a gzip of it"
            )
        *lines, self._rest = (self._rest + piece).split(b"\n")
        # The reader of the line says that it is too long.
        self._rest = self._rest[: LINE_MAX + 1]
        return lines

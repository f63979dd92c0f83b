"""Where a page of a corpus is."""

from __future__ import annotations

from typing import NamedTuple

_NUMBER = 8


class PagePlace(NamedTuple):
    """Where a page is: WARC file, offset, and number among the records of its slice."""

    file: str
    offset: int
    number: int

    def dump(self) -> bytes:
        return f"{self.offset}\t{self.number}\t{self.file}".encode()

    @classmethod
    def load(cls, data: bytes) -> PagePlace:
        offset, number, file = data.decode().split("\t", 2)
        return cls(file, int(offset), int(number))

    def sortable(self) -> bytes:
        """Return the place as bytes that sort as places do."""
        numbers = (self.offset, self.number)
        return self.file.encode() + b"\0" + b"".join(n.to_bytes(_NUMBER, "big") for n in numbers)

    @classmethod
    def of_sortable(cls, data: bytes) -> PagePlace:
        numbers = data[-2 * _NUMBER :]
        offset, number = numbers[:_NUMBER], numbers[_NUMBER:]
        file = data[: -2 * _NUMBER - 1].decode()
        return cls(file, int.from_bytes(offset, "big"), int.from_bytes(number, "big"))

    def is_behind(self, other: PagePlace) -> bool:
        """Return whether the page at ``other`` was read before this one.

        Pages behind this one in its file were remembered before a kill.
        """
        return other.file != self.file or other[1:] < self[1:]

"""What people send: lines of files, and the fields of orders and questions with their check."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from krowlspider.cluster.transport.posts import OwnerError
from krowlspider.engine.control import HOSTS_MAX, PAGES_MAX, SORTED_BY, STATES
from krowlspider.engine.importing import LINE_MAX
from krowlspider.engine.steering import ForeignHostError
from krowlspider.errors import KrowlError, data_size
from krowlspider.frontier.admin.edit import UnknownHostError
from krowlspider.frontier.schedule.orders import OrderError
from krowlspider.job.parts import LIVE

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


_NUMBER_MAX = 10**15
_SURROGATE = re.compile("[\ud800-\udfff]")

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
    "boolean": (bool,),
}


class BadRequestError(KrowlError):
    """Something in a request is missing or out of bounds."""


class Field(NamedTuple):
    """A field of an order: its types by the names of JSON Schema."""

    types: tuple[str, ...]
    about: str
    is_required: bool = True


# The order by which standing orders go to other nodes.
TAKE = "take_orders"
_PORTS = "at all ports, or at the one given"
_HOST = Field(("string",), f"name or URL, {_PORTS}; without it, the crawl", False)
_NAME = Field(("string",), "a host, a domain, or a SURT prefix such as org,example,")
# The fields of each order, by the name of the method of `Ordering`.
ORDERS: dict[str, dict[str, Field]] = {
    "pause": {"host": _HOST},
    "resume": {"host": _HOST},
    "block": {"name": _NAME},
    "unblock": {"name": _NAME},
    "delay": {
        "host": Field(("string",), f"name or URL, {_PORTS}"),
        "seconds": Field(("number", "null"), "least delay; null: that of the settings"),
    },
    "add": {
        "url": Field(("string",), "a URL, queued as a seed"),
        "priority": Field(("integer",), "higher ones first, after the seeds; 0 usually", False),
    },
    "forget": {
        "name": Field(("string",), f"a host that is not being fetched, {_PORTS}; or a URL"),
    },
    "reload": {},
    "snapshot": {
        "folder": Field(("string",), "absolute path of a new folder on the crawl's machine"),
    },
    "set": {
        "name": Field(("string",), f"one of {', '.join(LIVE)}"),
        "value": Field(("string", "number", "boolean"), "its value until the process ends"),
    },
}
# The fields of each question at the console, and as a tool.
QUESTIONS: dict[str, dict[str, Field]] = {
    "status": {},
    "nodes": {},
    "hosts": {
        "sort": Field(("string",), f"one of {', '.join(SORTED_BY)}", False),
        "limit": Field(("integer",), f"number of hosts, 1 to {HOSTS_MAX}", False),
        "state": Field(("string",), f"one of {', '.join(STATES)}", False),
    },
    "host": {"name": Field(("string",), "name or URL of a host")},
    "pages": {"limit": Field(("integer",), f"number of pages, 1 to {PAGES_MAX}", False)},
    "explain": {"url": Field(("string",), "a URL")},
}
# Orders to the whole crawl, if they name no host.
_OF_ALL = frozenset({"pause", "resume"})
_KNOWN = {**ORDERS, **QUESTIONS}
# What a node is asked by another node.
_FOR_OWNERS = {
    "forget": ORDERS["forget"],
    TAKE: {"orders": Field(("string",), "standing orders as JSON")},
    "explain": {"url": Field(("string",), "a URL")},
}


def check_fields(name: str, found: dict[str, Any]) -> None:
    """:raises BadRequestError: these are not the fields of an order of ORDERS, or of a question"""
    _check(name, _KNOWN[name], found)


def check_fields_for_owner(name: str, found: dict[str, Any]) -> None:
    """:raises BadRequestError: no owner is asked this, or not with these fields"""
    if name not in _FOR_OWNERS:
        raise BadRequestError(f"there is no order {name[:40]!r} for other nodes")
    _check(name, _FOR_OWNERS[name], found)


def _check(name: str, known: dict[str, Field], found: dict[str, Any]) -> None:
    if name in _OF_ALL and found.get("host") == "":
        raise BadRequestError(f"host is empty: leave it out to {name} the crawl")
    if strange := sorted(found.keys() - known.keys()):
        takes = ", ".join(known) or "nothing"
        raise BadRequestError(f"{name} takes {takes}, not {strange[0][:40]!r}")
    for field, about in known.items():
        if field in found:
            _check_type(field, about, found[field])
        elif about.is_required:
            raise BadRequestError(f"{name} needs {field}: {about.about}")


def _check_type(field: str, about: Field, value: object) -> None:
    kinds = [kind for each in about.types for kind in _TYPES[each]]
    # In Python a bool is an int, and an int has any size.
    is_huge = isinstance(value, int | float) and abs(value) > _NUMBER_MAX
    if type(value) not in kinds or is_huge:
        raise BadRequestError(f"{field} is not {' or '.join(about.types)}: {about.about}")
    # JSON can name a half of a surrogate pair, which no UTF-8 can hold.
    if isinstance(value, str) and not value.isascii() and _SURROGATE.search(value):
        raise BadRequestError(f"{field} is no text, it has half of a character: {value[:40]!a}")


# The first class that an error is of decides.
_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (UnknownHostError, 404),
    (ForeignHostError, 409),
    (OrderError, 409),
    (TooLongError, 413),
    (KrowlError, 400),
    (ValueError, 400),
    (OSError, 500),
)
ERRORS = tuple(kind for kind, _ in _STATUSES)


def status_of(error: Exception) -> int:
    """Return the status of an error of ERRORS."""
    if isinstance(error, OwnerError):
        return error.status
    return next(status for kind, status in _STATUSES if isinstance(error, kind))

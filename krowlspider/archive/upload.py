"""Decides which finished file goes to the bucket next, where it goes, when a failed one is tried again, and how long
a store is waited for."""

from __future__ import annotations

import hashlib
import re
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WARC = ".warc.gz"
INDEX = ".cdxj"
# What finished files are called; nothing else in the folder is uploaded.
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(\.warc\.gz|\.cdxj)")
# S3's rules for bucket names, and the underscores and capitals of old ones.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
# Of the characters that S3 calls safe in keys, those that no client writes in another way.
_SEGMENT = re.compile(r"[A-Za-z0-9._=+-]+")
# Bytes of a part, in which a larger file is sent: 120 of them in a WARC file of 1 GB. S3 takes 5 MiB or more ...
PART = 8 * 1024 * 1024
# ... at most so many, and R2 only equal ones.
_PARTS_MAX = 10_000
# Files under way at once, and parts of each.
FILES_AT_ONCE = 2
PARTS_AT_ONCE = 2
# Bytes a second that an uplink must carry, all that is under way together: 1 Mbit/s.
SLOWEST = 125_000
# Seconds of one request: all parts that share the slowest uplink arrive in 268 s.
REQUEST = FILES_AT_ONCE * PARTS_AT_ONCE * PART / SLOWEST + 30.0
# Seconds until a failed upload is tried again, doubled with each failure: a store that comes back after hours is
# used again within five minutes.
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 300.0


@dataclass(frozen=True, slots=True)
class Destination:
    """A place in a bucket: file ``X`` becomes the object ``prefix/X``. ``endpoint`` is the URL of the store, None
    that of AWS."""

    bucket: str
    prefix: str
    endpoint: str | None = None

    @classmethod
    def parse(cls, url: str, endpoint: str | None = None) -> Destination:
        """The place that ``s3://bucket/prefix`` names.

        :raises ValueError: it names none; the message is to be read after the URL
        """
        scheme, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme != "s3" or not _BUCKET.fullmatch(bucket):
            raise ValueError("is not s3://bucket or s3://bucket/prefix")
        segments = prefix.split("/")
        if segments[-1] == "":
            segments.pop()
        if not all(map(_is_segment, segments)):
            raise ValueError("has a prefix that is not of letters, digits and '._=+-' between '/'")
        return cls(bucket, "/".join(segments), endpoint)

    def url(self, name: str = "") -> str:
        """The URL of the object of file ``name``; of the place itself without one."""
        return "/".join(part for part in (f"s3://{self.bucket}", self.prefix, name) if part)


def _is_segment(part: str) -> bool:
    return _SEGMENT.fullmatch(part) is not None and part not in {".", ".."}


def is_endpoint(url: str) -> bool:
    """Whether it is the URL of a server, and no more: user and password would come into the log."""
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        return False
    bare = parts.username is None and not parts.query and not parts.fragment
    fits = url.isascii() and url.isprintable() and " " not in url
    return (
        parts.scheme in {"http", "https"} and bool(parts.hostname) and port_fits and bare and fits
    )


def is_finished(name: str) -> bool:
    """Whether a file of this name is finished, and one to upload: a WARC file or its index."""
    return _FILE_NAME.fullmatch(name) is not None


def part_size(size: int) -> int:
    """Bytes of each part of a file of ``size`` bytes, but of the last. It depends on nothing else, so that the ETag
    of an earlier upload can be told."""
    return max(PART, -(-size // _PARTS_MAX))


def etag_of(digests: list[bytes], *, whole: bool) -> str:
    """The ETag that S3 gives: the MD5 of an object that came ``whole``, else that of the parts' MD5s, and their
    number."""
    if whole:
        return digests[0].hex()
    return f"{md5(b''.join(digests)).hex()}-{len(digests)}"


def md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A finished file as it was seen: a later version of it differs in size (bytes) or time (epoch ns)."""

    name: str
    size: int
    mtime_ns: int

    @property
    def is_warc(self) -> bool:
        """A WARC file never changes; its index may be written again."""
        return self.name.endswith(WARC)

    @property
    def warc(self) -> str:
        """The name of the WARC file, of which this is the index if it is one."""
        return self.name if self.is_warc else self.name.removesuffix(INDEX) + WARC


class Blame(Enum):
    """Whose fault a failure is: the store's holds up all files, a file's that one alone."""

    STORE = auto()
    FILE = auto()


class UploadPlan:
    """Which files wait, which are in hand, and when the next may be taken. Times are seconds of one monotonic
    clock.

    Files go in the order of their names, oldest first; an index goes before its WARC file.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, LocalFile] = {}
        self._in_hand: set[str] = set()
        # How often a file has failed in a row, and when it may be tried again; the store has the name "".
        self._failures: dict[str, tuple[int, float]] = {}

    @property
    def waiting(self) -> int:
        """Files that are not uploaded, those in hand too."""
        return len(self._waiting)

    @property
    def down(self) -> bool:
        """Whether the store has failed, and nothing succeeded since."""
        return _STORE in self._failures

    def see(self, found: Iterable[LocalFile]) -> None:
        """These are all the files that wait."""
        self._waiting = {file.name: file for file in sorted(found, key=lambda each: each.name)}
        gone = self._failures.keys() - self._waiting.keys() - {_STORE}
        for name in gone:
            del self._failures[name]

    def take(self, now: float) -> LocalFile | None:
        """The file to upload now; None when none may be. It is in hand until `done` or `failed`."""
        if now < self._due(_STORE):
            return None
        for name, file in self._waiting.items():
            if name not in self._in_hand and now >= self._due(name):
                self._in_hand.add(name)
                return file
        return None

    def wait(self, now: float) -> float | None:
        """Seconds until `take` may give a file; None when nothing waits for time to pass."""
        idle = self._waiting.keys() - self._in_hand
        if not idle:
            return None
        return max(0.0, self._due(_STORE) - now, min(map(self._due, idle)) - now)

    def done(self, file: LocalFile) -> None:
        """It is uploaded, or gone; so the store works."""
        self._in_hand.discard(file.name)
        self._waiting.pop(file.name, None)
        self._failures.pop(file.name, None)
        self._failures.pop(_STORE, None)

    def failed(self, file: LocalFile, blame: Blame, now: float) -> float:
        """It stays waiting. Returns the seconds until it, or any, is tried again."""
        self._in_hand.discard(file.name)
        name = _STORE if blame is Blame.STORE else file.name
        times, due = self._failures.get(name, (0, now))
        if now < due:
            # Sent at the same time as another that has failed.
            return due - now
        wait = min(_FIRST_WAIT * 2.0**times, _LONGEST_WAIT)
        # The power stays a number of ordinary size in a store that is down for weeks.
        self._failures[name] = (min(times + 1, 30), now + wait)
        return wait

    def forgive(self) -> None:
        """All may be tried at once, and fail anew."""
        self._failures.clear()

    def _due(self, name: str) -> float:
        return self._failures.get(name, (0, float("-inf")))[1]


# No file has this name.
_STORE = ""


class Progress:
    """When the store last took something, and what is under way to it. Times are seconds of one monotonic clock.

    A part says nothing until it has arrived. Between two of them pass, on the slowest uplink, as many seconds as all
    that is under way takes.
    """

    def __init__(self) -> None:
        self._moved_at = -inf
        self._under_way: dict[str, int] = {}

    @contextmanager
    def of(self, file: LocalFile) -> Iterator[None]:
        """While a file is sent, or read back: `PARTS_AT_ONCE` parts of it at once."""
        self._under_way[file.name] = min(file.size, PARTS_AT_ONCE * part_size(file.size))
        try:
            yield
        finally:
            del self._under_way[file.name]

    def moved(self, now: float) -> None:
        """The store has taken, or given back, a part or a file. From any thread."""
        self._moved_at = now

    def until(self, patience: float) -> float:
        """When a store that takes nothing more is given up: ``patience`` seconds after all that is under way must have
        arrived."""
        return self._moved_at + sum(self._under_way.values()) / SLOWEST + patience

"""A process that keeps a payload index, to be killed or to run out of room.

``python -m tests.archive.payloads.keeper DIR 0`` adds payload 0, 1, 2 ... ten at a time, and prints
the number of synced payloads after each sync. With another number than 0 the kernel lets no file
grow beyond that many bytes. When the index fails, the process prints the warning, makes three more
syncs and prints the number of payloads. Then it waits for a line, after which there is room, adds
ten more and prints how often the index failed."""

from __future__ import annotations

import hashlib
import resource
import sys
from pathlib import Path

from krowlspider.archive.payload import Original
from krowlspider.archive.write.composer import PayloadIndex

MOST = 200
BATCH = 10


def digest_of(number: int) -> bytes:
    return hashlib.sha1(b"%d" % number).digest()


def original_of(number: int) -> Original:
    return Original(f"http://example.org/page/{number}", f"2026-01-01T00:00:00.{number:06}Z")


def add(index: PayloadIndex, start: int) -> int:
    for number in range(start, start + BATCH):
        index.add(digest_of(number), original_of(number))
    return start + BATCH


def grow(directory: Path) -> None:
    index = PayloadIndex(directory, most=MOST, warn=print)
    number = 0
    while True:
        number = add(index, number)
        index.sync()
        print(number, flush=True)


def limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def starve(directory: Path, size: int) -> None:
    def warn(text: str) -> None:
        # Nor is there room to write the log as a table, without which the index is not opened
        # again.
        limit(size // 100)
        print(text, flush=True)

    limit(size)
    index = PayloadIndex(directory, most=1_000_000, warn=warn)
    number = 0
    while not index.failed_count:
        number = add(index, number)
        index.sync()
    for _ in range(3):
        assert [index.find(digest_of(known)) for known in range(number)] == [None] * number
        number = add(index, number)
        assert index.find(digest_of(number - 1)) == original_of(number - 1)
        index.sync()
    print(number, flush=True)
    sys.stdin.readline()
    add(index, number)
    index.sync()
    index.close()
    print(index.failed_count, flush=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if sys.argv[2] == "0":
        grow(folder)
    else:
        starve(folder, int(sys.argv[2]))

"""A process that archives, to be killed or to run out of room.

``python -m tests.archive.crawling DIR COUNT SIZE`` archives captures of page 0, 1, 2 ... After each
sync it prints how many are durable. COUNT 0 means without end. With a SIZE other than 0 the kernel
lets no file grow beyond that many bytes, until the limit is lifted. Then it prints ``stalled`` when
there is no room, and syncs after each capture, so that the one cut off is the last before a sync.
Without SIZE it syncs after ten captures."""

from __future__ import annotations

import asyncio
import random
import resource
import sys
from pathlib import Path

from krowlspider.archive.write.writer import WarcWriter

from .captures import Odd, capture, options

NOISE = random.Random(3).randbytes(3000)
PAGE = Odd(b"HTTP/1.1 200 OK\r\n\r\n" + NOISE, NOISE)


async def crawl(directory: Path, count: int, burst: int) -> None:
    files = WarcWriter(directory, options(prefix="k", max_size=60_000), queue_bytes=10**6)
    files.open(asyncio.get_running_loop())
    watching = asyncio.create_task(watch(files))
    number = 0
    while not count or number < count:
        for _ in range(burst):
            files.write(capture(number, PAGE))
            number += 1
        await files.sync()
        print(number, flush=True)
    watching.cancel()
    await files.close()


async def watch(files: WarcWriter) -> None:
    while not files.stalled:  # noqa: ASYNC110 - the thread tells no loop
        await asyncio.sleep(0.001)
    print("stalled", flush=True)


if __name__ == "__main__":
    size = int(sys.argv[3])
    if size:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    asyncio.run(crawl(Path(sys.argv[1]), int(sys.argv[2]), 1 if size else 10))

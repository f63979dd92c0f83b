"""Measure the index of duplicates of a corpus as it grows: time, memory and disk.

The fingerprints are numbers of chance, so nothing is read but the index. One page in ten has the
fingerprints of an earlier page, and one in ten a MinHash that differs from an earlier one in a
tenth of its places.
"""

from __future__ import annotations

import random
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_128_digest

from krowlspider.corpus.copies.duplicates import DuplicateIndex
from krowlspider.corpus.copies.fingerprints import PLACES, Fingerprints
from krowlspider.corpus.copies.place import PagePlace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Pages before each row, in which its time is taken.
_TIMED = 200_000


def measure(sizes: Sequence[int], scratch: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of pages, in ascending order."""
    with tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as name:
        index = DuplicateIndex(Path(name), 0.7)
        chance, pages, found = random.Random(1), 0, 0
        for size in sorted(sizes):
            timed_from = max(size - _TIMED, pages)
            while pages < size:
                if pages == timed_from:
                    begun, cpu = time.monotonic(), time.process_time()
                place = PagePlace(
                    f"broad-20260101-{pages // 10_000:05}.warc.gz", pages * 9000, pages
                )
                found += index.take(place, _fingerprints(pages, chance)) is not None
                pages += 1
                if pages % 5000 == 0:
                    index.sync()
            timed = size - timed_from
            yield {
                "pages": size,
                "duplicates": found,
                "us_per_page": round((time.monotonic() - begun) / timed * 1e6),
                "cpu_us_per_page": round((time.process_time() - cpu) / timed * 1e6),
                "process_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
                "anonymous_mb": _anonymous_mb(),
                "disk_mb": round(sum(path.stat().st_size for path in Path(name).iterdir()) / 1e6),
            }
        index.close()


def _fingerprints(number: int, chance: random.Random) -> Fingerprints:
    kind = chance.random()
    of = chance.randrange(number) if number and kind < 0.2 else number
    exact, minhash = xxh3_128_digest(b"%d" % of), random.Random(of).randbytes(PLACES)
    if of != number and kind < 0.1:
        exact, changed = xxh3_128_digest(b"n%d" % number), bytearray(minhash)
        for place in chance.sample(range(PLACES), PLACES // 10):
            changed[place] = chance.randrange(256)
        minhash = bytes(changed)
    return Fingerprints(exact, minhash)


def _anonymous_mb() -> int:
    """Return the memory of this process that is not the cache of files, in MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("RssAnon"))

"""Measure ``scrapy corpus``: pages per CPU second, and the memory of a worker.

The pages are real ones, in WARC files of gzip members. The command runs as users run it, with one
worker and all rules; its CPU is that of all its processes, without that of a run over one page: the
start, and the import of what the first page needs.
"""

from __future__ import annotations

import gzip
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.pages import SIZES
from tests.support.crawling import ROOT
from tests.support.realdocs import documentation

FILES = 4


def measure(rounds: int, pages: int, scratch: Path | None = None) -> dict[str, Any]:
    """Return the median, least and most pages per CPU second, and the largest process in MB."""
    found = bodies(pages)
    with tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as name:
        folder = Path(name)
        write(folder / "one", found[:1])
        write(folder / "pages", found)
        runs = [_run(folder, str(number), len(found)) for number in range(rounds)]
    return {
        "pages": len(found),
        "page_bytes": round(statistics.mean(map(len, found))),
        "pages_per_cpu_second": round(statistics.median(runs)),
        "least": round(min(runs)),
        "most": round(max(runs)),
        "process_mb": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
        "load": round(os.getloadavg()[0], 1),
    }


def bodies(most: int) -> list[bytes]:
    """Return pages of all kinds, ``most`` at most."""
    found = [path for path in sorted(documentation().rglob("*.html")) if _fits(path)]
    return [path.read_bytes() for path in found[:: -(-len(found) // most)]]


def _fits(path: Path) -> bool:
    return SIZES[0] < path.stat().st_size < SIZES[1]


def write(folder: Path, bodies: list[bytes]) -> None:
    """Write the pages to FILES WARC files in a new folder."""
    folder.mkdir()
    for number in range(FILES):
        records = [_record(number, n, body) for n, body in enumerate(bodies[number::FILES])]
        content = b"".join(gzip.compress(record, 6) for record in records)
        (folder / f"{number}.warc.gz").write_bytes(content)


def _record(file: int, number: int, body: bytes) -> bytes:
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    head = (
        "WARC/1.1\r\nWARC-Type: response\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
        "WARC-Identified-Payload-Type: text/html\r\n"
        f"WARC-Target-URI: http://{file}.example/{number}\r\n"
        f"WARC-Record-ID: <urn:bench:{file}-{number}>\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def _run(folder: Path, name: str, pages: int) -> float:
    spent = [
        cpu(command(folder / source, folder / f"{source}-{name}")) for source in ("one", "pages")
    ]
    return (pages - 1) / (spent[1] - spent[0])


def command(source: Path, out: Path) -> list[str]:
    """Return the command that makes a corpus with one worker."""
    words = ["corpus", str(source), "-o", str(out), "--processes", "1"]
    return [sys.executable, "-m", "scrapy", *words]


def cpu(words: list[str]) -> float:
    """Run a command; return the CPU seconds of all its processes."""
    before = _children()
    subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(figures: dict[str, Any]) -> str:
    """Return the figures as text."""
    return "\n".join(f"{name.replace('_', ' '):>22}  {value:,}" for name, value in figures.items())

"""Compare the archive writer with those of warcio and fastwarc: CPU of a pair of response and
request.

Pages are real ones of about 39 kB. Each differs in some bytes, so that no payload comes twice. The
writers take the same batches in turn, on one core. Each writes a file of its own and makes it
durable after each batch. Our writer is measured as a whole, with payload index and CDXJ index: once
by itself, once in the writer's thread.

CPU is that of the process: all threads, user and system. A busy machine slows all writers, so
compare the ratios of two writers in the same run.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.contenders import CONTENDERS, OPTIONS, Web, payloads_in
from krowlspider.archive import cdxj
from krowlspider.archive.payload import Original, digest, label, raw_digest
from krowlspider.archive.reading import Location
from krowlspider.archive.write.records import Capture, RecordMaker, record_id, warc_date
from krowlspider.archive.write.series import compressor

if TYPE_CHECKING:
    from collections.abc import Iterator


PAIRS = 3000
# Limits of our writer: its share of warcio's CPU, and its CPU in microseconds.
MAX_RATIO, MAX_US = 0.25, 200


def measure(runs: int, pairs: int = PAIRS, scratch: Path | None = None) -> dict[str, Any]:
    """Return median, least and most of ``runs`` runs of ``pairs`` pairs each. Ratios are to warcio
    in the same run."""
    web = Web.read()
    with _one_core():
        found = [_run(web, pairs, scratch) for _ in range(runs)]
        stages = [_stages(web, pairs, scratch) for _ in range(runs)]
    figures: dict[str, Any] = {
        "pages": len(web.pages),
        "page_bytes": round(statistics.mean(map(len, web.pages))),
        "pairs": pairs,
        "runs": runs,
        "load": round(os.getloadavg()[0], 1),
    }
    writers = {}
    for name in found[0]:
        spent = [run[name]["us"] for run in found]
        ratios = [run[name]["us"] / run["Warcio"]["us"] for run in found]
        writers[name] = {
            "us_a_pair": _spread(spent, 1),
            "of_warcio": _spread(ratios, 3),
            "bytes_a_pair": round(found[0][name]["bytes"]),
        }
    figures["writers"] = writers
    figures["stages_us"] = {name: _spread([run[name] for run in stages], 1) for name in stages[0]}
    return figures


@contextmanager
def _one_core() -> Iterator[None]:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _run(web: Web, pairs: int, scratch: Path | None) -> dict[str, dict[str, float]]:
    """Return CPU microseconds and bytes written of a pair, by contender."""
    with tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as folder:
        places = {make.__name__: Path(folder) / make.__name__ for make in CONTENDERS}
        for place in places.values():
            place.mkdir()
        turns = [(make.__name__, make(places[make.__name__])) for make in CONTENDERS]
        spent: Counter[str] = Counter()
        for batch in web.batches(pairs):
            for name, contender in turns:
                begun = time.process_time_ns()
                contender.write(batch)
                spent[name] += time.process_time_ns() - begun
            # The first writer finds the batch in no cache, so another is first next time.
            turns = turns[1:] + turns[:1]
        for name, contender in turns:
            begun = time.process_time_ns()
            contender.close()
            spent[name] += time.process_time_ns() - begun
        return {
            name: {
                "us": spent[name] / 1000 / pairs,
                "bytes": sum(file.stat().st_size for file in place.glob("*.warc.gz")) / pairs,
            }
            for name, place in places.items()
        }


def _stages(web: Web, pairs: int, scratch: Path | None) -> dict[str, float]:
    """Return CPU microseconds of a pair by stage. Each stage runs for a whole batch."""
    with tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as folder:
        stages = _Stages(Path(folder))
        for batch in web.batches(pairs):
            stages.write(batch)
        stages.close()
    return {name: spent / 1000 / pairs for name, spent in stages.spent.items()}


class _Stages:
    """Does the work of a `WarcSeries` for a batch stage by stage, with the same parts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._maker = RecordMaker(record_id(os.urandom(16)), OPTIONS.digest)
        self._compress = compressor(OPTIONS.compression)
        self._payloads = payloads_in(folder)
        self._file = (folder / "stages.warc.gz").open("wb", buffering=0)
        self._lines: list[str] = []
        self.spent: Counter[str] = Counter()

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        begun = time.process_time_ns()
        yield
        self.spent[name] += time.process_time_ns() - begun

    def write(self, batch: list[Capture]) -> None:
        kind, payloads = OPTIONS.digest, self._payloads
        with self._stage("payload digest"):
            raws = [raw_digest(capture.payload, kind) for capture in batch]
            digests = [label(raw, kind) for raw in raws]
        with self._stage("payload index, find"):
            for raw in raws:
                payloads.find(raw)
        records = self._records(batch, digests)
        members = self._members(records)
        with self._stage("write"):
            for member in members:
                self._file.write(member)
        with self._stage("fsync"):
            os.fsync(self._file.fileno())
        with self._stage("payload index, add and sync"):
            for capture, raw in zip(batch, raws, strict=True):
                payloads.add(raw, Original(capture.url, warc_date(capture.started)))
            payloads.sync()
        with self._stage("index line"):
            self._lines += map(_line, batch, digests)

    def _records(self, batch: list[Capture], digests: list[str]) -> list[tuple[bytes, bytes]]:
        with self._stage("block digests"):
            for capture in batch:
                digest(capture.response_bytes, OPTIONS.digest)
                digest(capture.request_bytes, OPTIONS.digest)
        with self._stage("records"):
            return [
                (
                    self._maker.response(capture, payload),
                    self._maker.request(capture, record_id(os.urandom(16))),
                )
                for capture, payload in zip(batch, digests, strict=True)
            ]

    def _members(self, records: list[tuple[bytes, bytes]]) -> list[bytes]:
        with self._stage("compress response"):
            responses = [self._compress(response) for response, _ in records]
        with self._stage("compress request"):
            requests = [self._compress(request) for _, request in records]
        return [*map(bytes.__add__, responses, requests)]

    def close(self) -> None:
        with self._stage("index file"):
            cdxj.write_index(self._folder / "stages.warc.gz", sorted(self._lines))
        # The records make the block digests again.
        self.spent["records"] -= self.spent["block digests"]
        self._payloads.close()
        self._file.close()


def _line(capture: Capture, payload: str) -> str:
    place = Location("bench-20260101000000-00000-here-12345.warc.gz", 10**8, 12_000)
    return cdxj.line(
        place,
        url=capture.url,
        date=warc_date(capture.started),
        mime=capture.media_type,
        status=str(capture.status),
        digest=payload,
    )


def _spread(values: list[float], digits: int) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), digits),
        "least": round(min(values), digits),
        "most": round(max(values), digits),
    }


def table(figures: dict[str, Any]) -> str:
    head = (
        f"{figures['pairs']:,} pairs of {figures['pages']} pages of {figures['page_bytes']:,}"
        f" bytes, median of {figures['runs']} runs (least to most), load {figures['load']}"
    )
    lines = [head]
    for name, found in figures["writers"].items():
        lines.append(
            f"{name:<14} {_shown(found['us_a_pair'])} µs of CPU a pair,"
            f" {_shown(found['of_warcio'])} of warcio's; {found['bytes_a_pair']:,} bytes"
        )
    lines += [f"{name:<28} {_shown(spent)} µs" for name, spent in figures["stages_us"].items()]
    lines.append(verdict(figures))
    return "\n".join(lines)


def _shown(spread: dict[str, float]) -> str:
    return f"{spread['median']:,} ({spread['least']:,} to {spread['most']:,})"


def verdict(figures: dict[str, Any]) -> str:
    """Say whether our writer, with its thread, keeps within its limits."""
    ours = figures["writers"]["OursInThread"]
    ratio, spent = ours["of_warcio"]["median"], ours["us_a_pair"]["median"]
    return (
        f"of warcio's: {ratio}, at most {MAX_RATIO}: {'kept' if ratio <= MAX_RATIO else 'MISSED'};"
        f" µs a pair: {spent}, at most {MAX_US}: {'kept' if spent <= MAX_US else 'MISSED'}"
    )

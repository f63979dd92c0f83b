"""Measure ``scrapy corpus`` beside datatrove and trafilatura's own command, over the same pages.

trafilatura reads no WARC files: it gets the pages as files. All have one process at work.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import corpus
from bench.venvs import python_of

if TYPE_CHECKING:
    from collections.abc import Callable

_DATATROVE = Path(__file__).parent / "peers" / "datatrove_corpus.py"


def measure(rounds: int, pages: int, scratch: Path | None = None) -> dict[str, Any]:
    """Return the median, least and most pages per CPU second of each."""
    bodies = corpus.bodies(pages)
    with tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as name:
        folder = Path(name)
        # Libraries are loaded for the first page.
        for source, some in (("few", bodies[: corpus.FILES]), ("all", bodies)):
            corpus.write(folder / source, some)
            (folder / f"{source}-html").mkdir()
            for number, body in enumerate(some):
                (folder / f"{source}-html" / f"{number}.html").write_bytes(body)
        rates: dict[str, list[float]] = {peer: [] for peer in COMMANDS}
        for number in range(rounds):
            for peer, command in COMMANDS.items():
                spent = [
                    corpus.cpu(command(folder, source, folder / f"{peer}-{source}-{number}"))
                    for source in ("few", "all")
                ]
                rates[peer].append((len(bodies) - corpus.FILES) / (spent[1] - spent[0]))
    return {
        "pages": len(bodies),
        "page_bytes": round(statistics.mean(map(len, bodies))),
        "load": round(os.getloadavg()[0], 1),
        "pages_per_cpu_second": {
            peer: [round(f(found), 1) for f in (statistics.median, min, max)]
            for peer, found in rates.items()
        },
    }


def _krowlspider(folder: Path, source: str, out: Path) -> list[str]:
    return corpus.command(folder / source, out)


def _datatrove(folder: Path, source: str, out: Path) -> list[str]:
    return [str(python_of("datatrove")), str(_DATATROVE), str(folder / source), str(out)]


def _trafilatura(folder: Path, source: str, out: Path) -> list[str]:
    run = "from trafilatura.cli import main; main()"
    options = ["--parallel", "1", "--no-comments"]
    paths = ["--input-dir", str(folder / f"{source}-html"), "--output-dir", str(out)]
    return [str(python_of("trafilatura")), "-c", run, *options, *paths]


COMMANDS: dict[str, Callable[[Path, str, Path], list[str]]] = {
    "krowlspider": _krowlspider,
    "datatrove": _datatrove,
    "trafilatura": _trafilatura,
}


def table(figures: dict[str, Any]) -> str:
    """Return the figures as text."""
    lines = [
        f"{figures['pages']} pages of {figures['page_bytes']:,} bytes, load {figures['load']}",
        f"{'pages per CPU second':>22}  {'median':>7} {'least':>7} {'most':>7}",
    ]
    for peer, numbers in figures["pages_per_cpu_second"].items():
        lines.append(f"{peer:>22}  " + " ".join(f"{number:>7}" for number in numbers))
    return "\n".join(lines)

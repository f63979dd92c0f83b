"""Measure ``scrapy index``: documents a second, memory, and the rate from WARC files.

``made`` puts made documents into an index by the later half of the builder, from text on: the
search for copies, the anchors of five links to each, ledger and segments. The making of documents
is taken off the CPU. ``warc`` runs the command over pages of documentation as users run it.
"""

from __future__ import annotations

import random
import resource
import statistics
import sys
import tempfile
import time
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import corpus
from krowlspider.search.builder import PART, Builder
from krowlspider.search.documents import Content, IndexedLink
from krowlspider.search.ledger import File
from krowlspider.search.link_store import StoredPage
from krowlspider.search.schema import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORDS, _SENTENCES, _OF_DOCUMENT = 100_000, 50_000, 30
_LINKS, _HOSTS = 5, 20_000
_TOLD = 100_000
_LANGUAGES = ("en", "en", "en", "de", "fr", "es", "ru", "")
_FILE = File(0, "warc/made.warc.gz")


def made(documents: int, scratch: Path | None = None, keep: Path | None = None) -> dict[str, Any]:
    """Return what it costs to index so many made documents, and the size of the index. It is made
    in the folder ``keep``, if that is given, and stays there."""
    with tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as name:
        folder = keep or Path(name) / "index"
        builder = Builder(folder, [])
        number = builder.ledger.number_of(_FILE)
        cpu = time.process_time()
        _link(builder, documents)
        linking = time.process_time() - cpu
        cpu = time.process_time()
        for _ in _documents(documents):
            pass
        making = time.process_time() - cpu
        begun, cpu, highest = time.monotonic(), time.process_time(), 0.0
        for at, content in enumerate(_documents(documents)):
            url = _url(at)
            page = StoredPage(
                url, file=number, offset=at * 9000, length=4000, at=(number, at * 9000)
            )
            page.first = page.fetched = 1_750_000_000 + at
            builder.put(key_of(url), page, content)
            if at % PART == PART - 1:
                builder.commit([])
                highest = max(highest, _anonymous_mb())
                if at % _TOLD == _TOLD - 1:
                    print(f"{at + 1} documents, {time.monotonic() - begun:.0f} s", flush=True)
        builder.commit([])
        highest = max(highest, _anonymous_mb())
        builder.close()
        seconds, spent = time.monotonic() - begun, time.process_time() - cpu - making
        sizes = {
            part: round(sum(each.stat().st_size for each in (folder / part).iterdir()) / 1e6)
            for part in ("tantivy", "links")
        }
        return {
            "documents": documents,
            "text_bytes": round(statistics.mean(len(each.text) for each in _documents(1000))),
            "minutes": round(seconds / 60, 1),
            "cpu_minutes": round(spent / 60, 1),
            "cpu_us_per_document": round(spent / documents * 1e6),
            "documents_per_cpu_second": round(documents / spent),
            "cpu_us_of_links_per_document": round(linking / documents * 1e6),
            "anonymous_mb": round(highest),
            "process_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "segments_mb": sizes["tantivy"],
            "ledger_mb": sizes["links"],
        }


def warc(pages: int, rounds: int = 3, scratch: Path | None = None) -> dict[str, Any]:
    """Return the pages of documentation per second of CPU, by the command as users run it."""
    found = corpus.bodies(pages)
    with tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as name:
        folder = Path(name)
        corpus.write(folder / "one", found[:1])
        corpus.write(folder / "pages", found)
        runs = []
        for number in range(rounds):
            spent = [
                corpus.cpu(_command(folder / source, folder / f"{source}-{number}"))
                for source in ("one", "pages")
            ]
            runs.append(len(found) / (spent[1] - spent[0]))
        return {
            "pages": len(found),
            "page_bytes": round(statistics.mean(map(len, found))),
            "pages_per_cpu_second": round(statistics.median(runs)),
            "least": round(min(runs)),
            "most": round(max(runs)),
        }


def _command(source: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "scrapy", "index", str(source), "-o", str(out)]


def _url(number: int) -> str:
    return f"https://host{number % _HOSTS}.example/pages/{number}"


def _link(builder: Builder, documents: int) -> None:
    """Put links from each page to five others."""
    chance = random.Random(2)
    for number in range(documents):
        targets = {chance.randrange(documents): None for _ in range(_LINKS)}
        links = [IndexedLink(_url(each), f"about page {each % 977}") for each in targets]
        with builder.ledger.db.write_batch() as batch:
            builder.ledger.links.replace(batch, _url(number), links)


def _documents(count: int) -> Iterator[Content]:
    """Yield made documents, the same ones in each call."""
    chance = random.Random(1)
    words = ["".join(chance.choices("aeioulnrstdm", k=4 + number % 7)) for number in range(_WORDS)]
    weights = list(accumulate(1 / (rank + 3) for rank in range(_WORDS)))
    sentences = [
        " ".join(chance.choices(words, cum_weights=weights, k=14)) for _ in range(_SENTENCES)
    ]
    for number in range(count):
        chosen = chance.choices(sentences, k=_OF_DOCUMENT)
        text = f"{'. '.join(chosen)} number{number}"
        title = f"{chosen[0][:50]} {number}"
        language = _LANGUAGES[number % len(_LANGUAGES)]
        yield Content("text/html", text, language, title, 9000, [chosen[1][:40], chosen[2][:40]])


def _anonymous_mb() -> float:
    """Return the memory of this process that no file backs."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0

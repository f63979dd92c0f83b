"""An index of made documents for queries alone, which is made in a tenth of the time.

The documents are written straight into the segments, with the texts, titles, hosts, anchors and
numbers of linking hosts of ``search-index``; each host has a rank. Then the segments are there so
many times, by links to their files, and tantivy merges them. So each document is repeated: the
lists of words are as long as those of as many different documents, but the words of the dictionary
are fewer. There are no WARC files and no ledger.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import msgspec

from bench.search import _LINKS, _documents, _url
from krowlspider.archive.disk import write_durably
from krowlspider.corpus.copies.fingerprints import hashes_of
from krowlspider.graph.ranks import write as write_ranks
from krowlspider.search.builder import HEAP, Segments, Setup
from krowlspider.search.forms import Forms, cleaned
from krowlspider.search.ledger import File
from krowlspider.search.link_store import Anchors, StoredPage
from krowlspider.search.schema import FORM, FORMS, RANKS, SEGMENTS, STATE, key_of, open_index
from krowlspider.urls.canonical import host_of

if TYPE_CHECKING:
    from pathlib import Path

TIMES = 10
# Documents of a commit, as in search-index, and how often an anchor is indexed.
_PART, _REPEATED = 10_000, 3
_FILE = File(0, "warc/made.warc.gz")
_META, _MANAGED = "meta.json", ".managed.json"


def fill(folder: Path, documents: int, times: int = TIMES) -> None:
    """Make an index of so many documents in a new folder, each of them so many times."""
    folder.mkdir(parents=True)
    with write_durably(folder / STATE) as file:
        file.write(msgspec.json.encode(Setup(FORM, [str(folder)])))
    hosts = _write(folder, documents // times)
    write_ranks(folder / RANKS, ((host, float(count), 1e-6) for host, count in hosts.items()))
    if times > 1:
        _repeat(folder / SEGMENTS, times)


def _write(folder: Path, documents: int) -> Counter[str]:
    """Write documents; return the number of links to each host."""
    chance = random.Random(2)
    linking = Counter(chance.randrange(documents) for _ in range(documents * _LINKS))
    hosts: Counter[str] = Counter()
    segments, forms = Segments(folder / SEGMENTS), Forms(folder / FORMS)
    for number, content in enumerate(_documents(documents)):
        url, count = _url(number), linking[number]
        page = StoredPage(url, offset=number * 9000, length=4000, exact=key_of(url))
        page.first = page.fetched = page.changed = 1_750_000_000 + number
        hosts[host_of(url)] += count
        anchors = Anchors([f"about page {number % 977}"] * min(count, _REPEATED), count)
        words = cleaned(content.text).split()
        forms.meet(words, hashes_of(words), content.language)
        segments.add(page.exact, page, _FILE, content, anchors)
        if number % _PART == _PART - 1:
            segments.commit()
            print(f"{number + 1} documents", flush=True)
    for each in (forms, segments):
        each.commit()
        each.close()
    return hosts


def _repeat(folder: Path, times: int) -> None:
    """Have each segment so many times, and tantivy merge them."""
    meta: dict[str, Any] = json.loads((folder / _META).read_text())
    managed: list[str] = json.loads((folder / _MANAGED).read_text())
    for segment in [*meta["segments"]]:
        files = [*folder.glob(f"{UUID(segment['segment_id']).hex}.*")]
        for _ in range(times - 1):
            name = uuid4()
            meta["segments"].append({**segment, "segment_id": str(name)})
            for path in files:
                managed.append(f"{name.hex}{path.suffix}")
                os.link(path, folder / managed[-1])
    (folder / _MANAGED).write_text(json.dumps(managed))
    (folder / _META).write_text(json.dumps(meta))
    writer = open_index(folder).writer(HEAP, 1)
    writer.commit()
    writer.wait_merging_threads()

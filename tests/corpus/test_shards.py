"""Shards: Parquet gives fields back as they were, and other tools read WET as it is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet
from fastwarc.warc import ArchiveIterator as FastIterator
from pycld2 import DETECTED_LANGUAGES as DETECTED
from pycld2 import LANGUAGES as LISTED
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from krowlspider.corpus.optouts import OptOutSignal
from krowlspider.corpus.record import CorpusRecord, write_shard
from krowlspider.corpus.text.document import LANGUAGES
from krowlspider.corpus.text.extractors import CorpusLink, NameValue
from tests.corpus.warcs import html, made_of, response, write

if TYPE_CHECKING:
    from pathlib import Path

PAGES = ["http://a.example/1", "http://a.example/\N{LATIN SMALL LETTER E WITH ACUTE} 2"]


def test_parquet_keeps_lists_of_pairs_and_links(tmp_path: Path) -> None:
    record = CorpusRecord("u", "d", "f", 7, "i", "s", "text", "en", 300, "text/html", "utf-8", [])
    record.signals = [OptOutSignal("noai", "urn:x")]
    record.open_graph = [NameValue("type", "article")]
    record.links = [CorpusLink("http://a.example/", "A")]
    path = tmp_path / "a.parquet"
    write_shard(path, "parquet", iter([msgspec.json.encode(record)]))
    assert pyarrow.parquet.read_table(path).to_pylist() == [msgspec.to_builtins(record)]


def test_wet_is_read_by_other_tools(tmp_path: Path) -> None:
    pages = [response(url, html(n)) for n, url in enumerate(PAGES)]
    source = write(tmp_path / "a.warc.gz", pages)
    with source.open("rb") as file:
        ids = [record.rec_headers["WARC-Record-ID"] for record in ArchiveIterator(file)]
    expected = [record for _, record in made_of(source)]
    path = tmp_path / "a.warc.gz-000000000000.warc.wet.gz"
    write_shard(path, "wet", map(msgspec.json.encode, expected))

    checker = Checker(type("", (), {"inputs": [str(path)], "verbose": False}))
    checker.process_all()  # type: ignore[no-untyped-call]
    assert checker.exit_value == 0
    with path.open("rb") as file:
        read = [
            (each.rec_headers, each.content_stream().read().decode())
            for each in ArchiveIterator(file)
        ]
    assert read[0][0]["WARC-Filename"] == path.name
    assert [head["WARC-Refers-To"] for head, _ in read[1:]] == ids
    assert [text for _, text in read[1:]] == [f"{each.title}\n{each.text}\n" for each in expected]
    names = [name for name, _ in read[1][0].headers]
    assert names == [
        *("WARC-Type", "WARC-Target-URI", "WARC-Date", "WARC-Record-ID", "WARC-Refers-To"),
        *("WARC-Identified-Content-Language", "WARC-Block-Digest", "Content-Type"),
        "Content-Length",
    ]
    head = read[2][0]
    assert head["WARC-Target-URI"] == "http://a.example/%C3%A9%202"
    assert head["WARC-Date"] == "2026-01-02T03:04:05Z"
    assert head["WARC-Identified-Content-Language"] == "eng"
    assert head["Content-Type"] == "text/plain; charset=utf-8"
    with path.open("rb") as file:
        digests = [each.verify_block_digest() for each in FastIterator(file)]
    # Each record is a gzip member, at which reading can begin.
    assert path.read_bytes().count(b"\x1f\x8b\x08") == len(digests) == 3
    assert all(digests)


def test_a_page_of_a_poor_warc_is_written_too(tmp_path: Path) -> None:
    """Its URL is too long, its date and its record id are no field's values."""
    url = f"http://a/{chr(233) * 9999}"
    record = CorpusRecord(url, "?\r\n", "a", 0, "a b", "", "A text", "xx", 0, "", "", [])
    write_shard(tmp_path / "a", "wet", iter([msgspec.json.encode(record)]))
    with (tmp_path / "a").open("rb") as file:
        info, head = (each.headers for each in FastIterator(file))
    assert len(head["WARC-Target-URI"]) == 16384
    assert head["WARC-Date"] == info["WARC-Date"]
    assert not {"WARC-Refers-To", "WARC-Identified-Content-Language"} & {*head.to_dict()}


def test_each_language_has_a_code_of_three_letters() -> None:
    detected = {code for name, code in LISTED if name in DETECTED}
    # Those that were withdrawn, scripts, and what is no language.
    others = {code for code in detected if code in {"iw", "jw", "tlh", "zzp"} or "-" in code}
    assert set(LANGUAGES) == detected - others | {"he", "jv"}

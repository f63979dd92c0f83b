"""WARC files of given pages, as another tool may write them, and what a worker makes of them."""

from __future__ import annotations

import gzip
import os
import random
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from krowlspider.corpus.folder import Folder, read_lines
from krowlspider.corpus.quality.rules import read_rules
from krowlspider.corpus.record import CorpusRecord, Line
from krowlspider.corpus.sites.index import SiteFile
from krowlspider.corpus.worker import PageChoice, SliceReader, Task, WorkerTask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider.corpus.quality.rules import Rules

_WORDS = """
the of and to a in is that it was for on are with as be at by this have from or had not but what
all were when we there can an your which their said if do will each about how up out river stone
paper garden winter letter market bridge harbour music window forest engine history teacher question
village morning ocean mountain library answer science
"""


def prose(seed: int, words: int = 200) -> str:
    """Return sentences of chance that pass every rule; each seed has its own."""
    chance = random.Random(seed)
    known, parts = _WORDS.split(), []
    while words > 0:
        length = chance.randint(8, 16)
        parts.append(" ".join(chance.choices(known, k=length)).capitalize() + ".")
        words -= length
    return " ".join(parts)


def html(seed: int, head: str = "", words: int = 200) -> bytes:
    """Return a page whose main text is `prose`."""
    return (
        f"<!doctype html><html lang=en><head><title>Page {seed}</title>{head}</head><body>"
        f"<nav><a href=/>Home</a></nav><main><h1>Page {seed}</h1><p>{prose(seed, words)}</p></main>"
        "</body></html>"
    ).encode()


def pdf(text: str) -> bytes:
    """Return a PDF of one page with the lines of the text, a title and a date."""
    shown = "".join(f"({line}) Tj T* " for line in text.split("\n"))
    content = f"BT /F 12 Tf 14 TL 50 700 Td {shown}ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1/MediaBox[0 0 600 800]>>",
        b"<</Type/Page/Parent 2 0 R/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        b"<</Title(A paper)/CreationDate(D:20260304050607Z)>>",
    ]
    body = b"".join(b"%d 0 obj%s endobj\n" % (n, each) for n, each in enumerate(objects, 1))
    return b"%PDF-1.4\n" + body + b"trailer<</Root 1 0 R/Info 6 0 R/Size 7>>\n%%EOF"


def response(
    url: str,
    body: bytes,
    headers: str = "Content-Type: text/html",
    status: str = "200 OK",
    date: str = "2026-01-02T03:04:05Z",
    *,
    kind: str = "response",
    digest: str = "",
) -> bytes:
    """Return a response record, or one of another ``kind``, with the digest of its payload."""
    more = f"WARC-Payload-Digest: {digest}\r\n" if digest else ""
    block = f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n".encode() + body
    identity = f"<urn:test:{abs(hash((url, date, kind)))}>"
    fields = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {identity}\r\n"
        f"WARC-Target-URI: {url}\r\nWARC-Date: {date}\r\n{more}"
        "Content-Type: application/http; msgtype=response\r\n"
        f"Content-Length: {len(block)}\r\n\r\n"
    )
    return fields.encode() + block + b"\r\n\r\n"


def write(path: Path, records: Iterable[bytes]) -> Path:
    """Write records as gzip members."""
    path.write_bytes(b"".join(gzip.compress(each, 1, mtime=0) for each in records))
    return path


def made_of(
    source: Path, rules: Rules | None = None, sites: Path | None = None
) -> list[tuple[Line, Any]]:
    """Return what a worker makes of a WARC file: the line of each page, and its record.

    The record of a refused page is None.
    """
    with TemporaryDirectory() as out, closing(Folder(Path(out))) as folder:
        job = WorkerTask(
            folder.work, rules or read_rules(), PageChoice(), lambda body, _: body, 60, sites=sites
        )
        answers = None if sites is None else SiteFile(sites)
        SliceReader(job, Task(source, 0, {}), [0, 0], os.getppid(), answers).run()
        [work] = folder.work.iterdir()
        lines = [msgspec.json.decode(line, type=Line) for line in read_lines(work)]
    return [(line, msgspec.json.decode(line.record, type=CorpusRecord | None)) for line in lines]

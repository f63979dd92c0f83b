"""pywb replays what was crawled: a real browser shows the pages as they were, with their links."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType

from tests.mockweb import MockWeb
from tests.replay.venv import tool
from tests.support.crawling import ROOT, Crawl, write_seeds
from tests.support.debian import program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

HERE = Path(__file__).parent
# Seconds to start pywb or to look at three pages; both take a few.
TIMEOUT = 120

RED, BLUE, CREAM = [200, 30, 60], [20, 90, 200], [250, 240, 215]
STYLE = """
body { background: rgb(250, 240, 215); margin: 0; font: 20px sans-serif }
#head { background: rgb(200, 30, 60); height: 80px }
#foot { position: absolute; top: 400px; height: 100px; width: 100px }
p, img { margin: 20px }
"""


def page(title: str, text: str) -> str:
    """A page with the stylesheet and the image of the site, that knows where it is read."""
    return (
        f'<!DOCTYPE html><html><head><meta charset="utf-8"><title>{title}</title>'
        '<link rel="stylesheet" href="/style.css"></head><body><div id="head"></div>'
        f'<img id="picture" src="/picture.png"><p>{text}</p><p id="where"></p><div id="foot"></div>'
        "<script>document.getElementById('where').textContent = 'Read at ' + location.host</script>"
        "</body></html>"
    )


def picture() -> str:
    """A PNG of 120 times 60 blue pixels, in base64."""
    rows = zlib.compress((b"\0" + bytes(BLUE) * 120) * 60)
    size = struct.pack(">IIBBBBB", 120, 60, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", size), (b"IDAT", rows), (b"IEND", b"")]
    return b64encode(
        b"\x89PNG\r\n\x1a\n"
        + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        )
    ).decode()


FRONT = page("Vorderseite", 'Grüße, κόσμε, мир. <a href="/packed">To the packed page</a>')
PACKED = page(
    "Packed", 'Sent in gzip. <a href="http://other.test:{port}/pieces">To the other site</a>'
)
PIECES = page("Pieces", "Sent in chunks, " + "each of them rather small, " * 12 + "naïvely.")
SHARED = [
    {"path": "/style.css", "body": STYLE, "headers": {"Content-Type": "text/css"}},
    {"path": "/picture.png", "body_base64": picture(), "headers": {"Content-Type": "image/png"}},
]
SITE: list[dict[str, Any]] = [
    {"host": "front.test", "path": "/", "body": FRONT},
    {"host": "front.test", "path": "/packed", "body": PACKED, "gzip": True},
    {"host": "other.test", "path": "/pieces", "body": PIECES, "chunked": True},
    *({"host": host, **rule} for host in ("front.test", "other.test") for rule in SHARED),
]


@dataclass(frozen=True)
class Crawled:
    """A job whose web is gone, so that what is seen of it comes from the archive, and its front
    page."""

    jobdir: Path
    front: str
    authorities: tuple[str, str]


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Crawled:
    folder = tmp_path_factory.mktemp("crawled")
    with MockWeb(spec=SITE) as web:
        seeds = write_seeds(folder / "seeds.txt", [web.url("front.test")])
        crawl = Crawl(
            folder / "job", arguments={"seeds": seeds}, settings={"KROWL_REQUISITES": "site"}
        ).run()
        found = sorted(each.url for each in web.log() if each.status == 200)
        assert found == sorted(web.url(rule["host"], rule["path"]) for rule in SITE)
        assert {"/picture.png", "/style.css"} <= revisited(crawl.jobdir)
        return Crawled(
            crawl.jobdir,
            web.url("front.test"),
            (f"front.test:{web.port}", f"other.test:{web.port}"),
        )


def revisited(jobdir: Path) -> set[str]:
    """The paths whose second fetch, from the other host, is but a pointer to the first."""
    return {
        urlsplit(record.headers["WARC-Target-URI"]).path
        for path in (jobdir / "warc").glob("*.warc.gz")
        for record in ArchiveIterator(path, record_types=WarcRecordType.revisit, parse_http=False)
    }


def by_wacz(crawled: Crawled, folder: Path) -> None:
    """A collection into which pywb's manager has taken a WACZ, with the index that is in it."""
    packed = folder / "crawl.wacz"
    scrapy_warc("wacz", crawled.jobdir, "-o", packed)
    manage(folder, "--unpack-wacz", packed)


def by_files(crawled: Crawled, folder: Path) -> None:
    """A collection into which pywb's manager has taken the files, with an index that it made
    itself."""
    manage(folder, *sorted((crawled.jobdir / "warc").glob("*.warc.gz")))


def scrapy_warc(*words: str | Path) -> None:
    command = [sys.executable, "-m", "scrapy", "warc", *words]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def manage(folder: Path, *added: str | Path) -> None:
    configure(folder, {"framed_replay": True})
    for command in (("init", "crawl"), ("add", "crawl", *added)):
        subprocess.run([tool("wb-manager"), *command], cwd=folder, check=True, capture_output=True)


def configure(folder: Path, configuration: dict[str, Any]) -> None:
    # JSON is YAML. pywb looks for the file whatever is in it.
    (folder / "config.yaml").write_text(json.dumps(configuration))


@contextmanager
def wayback(folder: Path) -> Iterator[str]:
    """pywb's wayback of the collections in ``folder``, and its address."""
    with (folder / "wayback.log").open("wb") as log:
        process = subprocess.Popen(
            [tool("python"), HERE / "serve.py", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        assert process.stdout is not None
        try:
            port = process.stdout.readline().decode().strip()
            assert port, (folder / "wayback.log").read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.communicate()


def looked_at(url: str, folder: Path, *links: str) -> list[dict[str, Any]]:
    """What a browser shows of a page, then of those that the links of these texts lead to, as
    browse.py prints it."""
    done = subprocess.run(
        [tool("python"), HERE / "browse.py", program("chromium"), folder, url, *links],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    pages: list[dict[str, Any]] = json.loads(done.stdout)
    return pages


@pytest.mark.parametrize("collect", [by_wacz, by_files])
def test_browser_sees_the_pages_and_follows_their_links(
    tmp_path: Path, crawled: Crawled, collect: Callable[[Crawled, Path], None]
) -> None:
    """Plain, gzip and chunked, on two hosts: text in any script, the site's script run as if it
    were there, and its stylesheet and image, of which one host has but revisits.
    """
    collect(crawled, tmp_path)
    with wayback(tmp_path) as address:
        pages = looked_at(
            f"{address}/crawl/{crawled.front}", tmp_path, "To the packed page", "To the other site"
        )
    front, other = crawled.authorities
    assert [each["title"] for each in pages] == ["Vorderseite", "Packed", "Pieces"]
    assert [each["text"].split("\n\n") for each in pages] == [
        ["Grüße, κόσμε, мир. To the packed page", f"Read at {front}"],
        ["Sent in gzip. To the other site", f"Read at {front}"],
        [PIECES[PIECES.index("Sent in") : PIECES.index("</p>")], f"Read at {other}"],
    ]
    for each in pages:
        spots = each["spots"]
        assert (spots["head"], spots["picture"], spots["foot"]) == (RED, BLUE, CREAM)
        # Letters have shades; a page of rectangles would have few.
        assert each["colours"] > 20
        assert each["elsewhere"] == []

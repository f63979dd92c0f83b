"""Many URLs at once for a running crawl: a file by the API, the command and the page."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from krowlspider.engine.importing import BAD_NAMED, LINE_MAX
from krowlspider.errors import KrowlError
from krowlspider.job.crawls import _crawls
from krowlspider.job.monitoring.access import CONTROL_TOKEN
from krowlspider.programs.running import CrawlSource
from krowlspider.views.order_fields import FILE_MAX, LineReader, TooLongError
from krowlspider.views.ordering import ImportOutcome, Ordering
from tests.extensions.test_live_page import api, ask, awaited, check_schema, crawling, post
from tests.mockweb import MockWeb
from tests.support.crawling import Crawl, frontier_view, scrapy, write_seeds
from tests.support.crawls import ROBOTS, crawl_of, page
from tests.support.simulated_web import SimulatedWeb
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path
    from types import SimpleNamespace

    from tests.support.simulated_loop import Script

TEXT = b"a.test\n\n# no\r\nb.test\r\nlast.test"
LINES = [b"a.test", b"", b"# no\r", b"b.test\r", b"last.test"]


# --- lines ---


def read(*pieces: bytes, most: int = FILE_MAX) -> list[bytes]:
    reader = LineReader(most)
    found = [line for piece in pieces for some in reader.feed(piece) for line in some]
    return found + reader.end()


@table("size", [1, 2, 3, 7, 1000])
@table(
    "data",
    [
        TEXT,
        gzip.compress(TEXT),
        gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]),
        gzip.compress(TEXT) + bytes(20),
        gzip.compress(b"") + gzip.compress(TEXT),
    ],
)
def test_pieces_of_any_size_are_cut_into_lines(data: bytes, size: int) -> None:
    assert read(*(data[at : at + size] for at in range(0, len(data), size))) == LINES


def test_a_large_gzip_file_is_unpacked_in_small_pieces() -> None:
    lines = [b"%d.test" % number for number in range(200_000)]
    reader = LineReader()
    found = list(reader.feed(gzip.compress(b"\n".join(lines))))
    assert [line for some in found for line in some] + reader.end() == lines
    assert max(map(len, found)) < 20_000


@pytest.mark.parametrize("data", [b"", b"a", b"\n", gzip.compress(b"", mtime=0)])
def test_short_files_have_their_lines(data: bytes) -> None:
    assert [line for line in read(data) if line] == ([b"a"] if data == b"a" else [])


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (gzip.compress(TEXT)[:-9], "cut short"),
        (gzip.compress(TEXT)[:15] + b"\xff" * 90, "broken|cut short"),
        (gzip.compress(TEXT) + b"more", "broken"),
        (b"a.test\nb\0.test\n", "binary"),
        ("a.test\n".encode("utf-16"), "binary"),
        (b"PK\x03\x04\0\0", "binary"),
    ],
    ids=["cut", "broken", "more behind", "NUL", "UTF-16", "zip"],
)
def test_a_file_that_is_no_text_is_refused(data: bytes, fault: str) -> None:
    with pytest.raises(KrowlError, match=fault):
        read(data)


def test_a_file_has_a_bounded_length_unpacked() -> None:
    assert read(b"a\n" * 50, most=100) == [b"a"] * 50
    for data in (b"a\n" * 51, gzip.compress(b"a\n" * 51)):
        with pytest.raises(TooLongError):
            read(data, most=100)


def test_an_endless_line_is_not_kept() -> None:
    reader = LineReader()
    for _ in range(LINE_MAX // 50_000 + 10):
        assert [line for some in reader.feed(b"x" * 50_000) for line in some] == []
    assert len(reader._rest) == LINE_MAX + 1


# --- a crawl in the process of the test ---

SPEC = [ROBOTS, page("^/.*$", "x")]


async def pieces(*some: bytes) -> AsyncIterator[list[bytes]]:
    for each in some:
        yield each.splitlines()


def ordering() -> Ordering:
    crawler = [each for each, crawl in _crawls.items() if crawl.job.is_open][-1]
    return Ordering(crawler, "a test")


def taken(tmp_path: Path, *files: str, **more: Any) -> Any:
    """Crawl from one seed, and hand these files over meanwhile; return the outcomes, the crawl and
    the paths that were asked, by host."""
    found: list[ImportOutcome] = []
    with SimulatedWeb(spec=SPEC) as web:

        def steer() -> Script:
            yield lambda: len(web.log()) >= 1
            for file in files:
                data = file.replace("PORT", str(web.port)).encode(errors="surrogateescape")
                task = asyncio.ensure_future(ordering().take(pieces(data)))
                yield task.done
                found.append(task.result())

        crawl = crawl_of(web, tmp_path, [web.url("z.test")], script=steer(), **more).run()
        asked = {(entry.host.partition(":")[0], entry.path) for entry in web.log()}
    return found, crawl, {each for each in asked if each[1] != "/robots.txt"}


def test_a_file_of_seeds_is_crawled(tmp_path: Path) -> None:
    """URLs, bare domains, ranked ones, comments; each bad line is named with its number."""
    file = (
        "http://a.test:PORT/\n# a comment\n\n7,b.test:PORT\nc.test:PORT/x # why\r\n"
        "two words\nhttp://a.test:PORT/\nftp://d.test/\nhttp://z.test:PORT/\n\udcff\n"
    )
    (found, again), crawl, asked = taken(tmp_path, file, file)
    assert asked == {("z.test", "/"), ("a.test", "/"), ("b.test", "/"), ("c.test", "/x")}
    assert (found.new, found.known, found.sent, found.refused, found.bad) == (3, 2, 0, {}, 3)
    assert found.done
    assert found.message == "3 new, 2 known already, 3 bad lines"
    assert [(each["line"], each["reason"]) for each in found.bad_lines] == [
        (6, "whitespace inside"),
        (8, "scheme ftp, neither http nor https"),
        (10, "not UTF-8"),
    ]
    assert (again.done, again.new, again.known, again.bad) == (False, 0, 5, 3)
    assert crawl.stats["krowl/control/change_count/import"] == 1
    assert "Import by a test: 3 new, 0 for other nodes, 2 known" in crawl.log
    # The seed of the start has one, and each good line of the two files.
    rows = (crawl.jobdir / "reports" / "seeds.tsv").read_text().splitlines()[1:]
    names = "zabcazabcaz"
    assert all(f"{name}.test" in row for name, row in zip(names, rows, strict=True))


def test_lines_of_an_export_keep_what_they_say(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"url": "http://a.test:PORT/1", "depth": 2, "priority": 3},
        {"url": "http://a.test:PORT/2", "bare": True, "state": "queued"},
        {"url": "http://a.test:PORT/deep", "depth": 9},
        {"url": "http://a.test:PORT/1"},
        {"url": "http://a.test:PORT/3", "misspelt": 1},
        {"url": "mailto:a@b.test"},
        {"url": "http://a.test:PORT/4", "request": "AAAA"},
    ]
    file = "\n".join(["\ufeff" + json.dumps(lines[0]), *map(json.dumps, lines[1:]), "{", "[1]"])
    (found,), crawl, asked = taken(tmp_path, file, arguments={"max_depth": 5})
    assert asked == {("z.test", "/"), ("a.test", "/1"), ("a.test", "/2")}
    assert (found.new, found.known, found.refused, found.bad) == (2, 1, {"depth": 1}, 5)
    assert [each["line"] for each in found.bad_lines] == [5, 6, 7, 8, 9]
    assert "2 new, 1 known already, 1 refused (depth: 1), 5 bad lines" == found.message
    depths = {urlsplit(item["url"]).path: item["depth"] for item in crawl.items}
    assert depths == {"/": 0, "/1": 2, "/2": 0}


def test_words_of_seeds_are_taken(tmp_path: Path) -> None:
    """Of lines of seeds and of exports; bad ones are named, and the rest is crawled."""
    file = (
        'http://a.test:PORT/\t{"tag": "late"}\nhttp://b.test:PORT/\t{"depht": 1}\n'
        '{"url": "http://c.test:PORT/", "words": {"tag": "json"}}\n'
        '{"url": "http://d.test:PORT/", "words": {"max_pages": 0}}\n'
        '{"url": "http://e.test:PORT/1", "depth": 2, "seed": "http://e.test:PORT/",'
        ' "words": {"depth": 1}}\n'
    )
    (found,), crawl, asked = taken(tmp_path, file)
    assert asked == {("z.test", "/"), ("a.test", "/"), ("c.test", "/")}
    assert (found.new, found.bad) == (3, 2)
    assert [(each["line"], str(each["reason"])[:20]) for each in found.bad_lines] == [
        (2, "unknown word 'depht'"),
        (4, "max_pages is 0: give"),
    ]
    tags = {urlsplit(item["url"]).hostname: item.get("tag") for item in crawl.items}
    assert tags == {"z.test": None, "a.test": "late", "c.test": "json"}
    # It is deeper than its seed allows, which only the pop knows.
    assert crawl.stats["krowl/frontier/dropped_count/seed_depth"] == 1
    (refused,), _, _ = taken(tmp_path / "off", file, settings={"KROWL_PAGES": False})
    assert (refused.new, refused.bad) == (0, 5)
    assert "set KROWL_PAGES=True" in str(refused.bad_lines[0]["reason"])


def test_seeds_are_those_of_a_start(tmp_path: Path) -> None:
    """The scope says which links are followed; exclusions hold for all."""
    file = "http://a.test:PORT/no/1\nhttp://a.test:PORT/x.zip\nhttp://a.test:PORT/excluded\n"
    exclude = tmp_path / "exclude"
    exclude.write_text("/excluded$\n")
    settings = {"KROWL_EXCLUDE": exclude}
    (found,), _, asked = taken(tmp_path, file, arguments={"deny": "/no/"}, settings=settings)
    assert asked == {("z.test", "/"), ("a.test", "/no/1"), ("a.test", "/x.zip")}
    assert found.refused == {"exclude": 1}


def test_many_bad_lines_are_counted_and_some_are_named(tmp_path: Path) -> None:
    (found,), _, _ = taken(tmp_path, "x\n" * 500 + "y" * (LINE_MAX + 1))
    assert (found.done, found.bad, len(found.bad_lines)) == (False, 501, BAD_NAMED)


def test_one_file_is_taken_at_a_time(tmp_path: Path) -> None:
    said: list[str] = []
    with SimulatedWeb(spec=SPEC) as web:

        def steer() -> Script:
            yield lambda: len(web.log()) >= 1
            open_end = asyncio.Event()

            async def slow() -> AsyncIterator[list[bytes]]:
                yield [web.url("a.test").encode()]
                await open_end.wait()

            first = asyncio.ensure_future(ordering().take(slow()))
            yield lambda: any(entry.host.startswith("a.test") for entry in web.log())
            second = asyncio.ensure_future(ordering().take(pieces(b"b.test")))
            yield second.done
            said.append(str(second.exception()))
            # The connection of the first one breaks.
            first.cancel()
            yield first.done
            third = asyncio.ensure_future(ordering().take(pieces(b"b.test")))
            yield third.done
            said.append(third.result().message)

        crawl_of(web, tmp_path, [web.url("z.test")], script=steer()).run()
    assert said == [
        "another file is being taken: give this one again after it",
        "1 new, 0 known already",
    ]


# --- a crawl in a process of its own ---


@pytest.fixture
def crawl(tmp_path: Path) -> Iterator[SimpleNamespace]:
    with crawling(tmp_path) as found:
        yield found


def imported(crawl: SimpleNamespace, body: bytes, code: int = 200, **headers: str) -> Any:
    status, _, answer = post(crawl, "import", body, **headers)
    assert status == code, answer
    return json.loads(answer)


@pytest.mark.slow
def test_the_api_takes_a_file(crawl: SimpleNamespace) -> None:
    port = urlsplit(crawl.web.url("a.test")).port
    many = b"".join(b"http://h%d.test:%d/\n" % (number, port) for number in range(300))
    found = imported(crawl, gzip.compress(many) + gzip.compress(b"b a d\n"))
    assert (found["new"], found["bad_lines"]) == (
        300,
        [{"line": 301, "reason": "whitespace inside"}],
    )
    schema = api(crawl, "openapi.json")["paths"]["/api/v1/import"]["post"]["responses"]["200"]
    check_schema(found, schema["content"]["application/json"]["schema"])
    assert api(crawl, "status")["queued"] > 290
    assert "401" in str(ask(crawl, "/api/v1/import", b"a.test")[0])
    assert "give the token" in imported(crawl, b"a.test", 401, Authorization="Bearer x")["error"]
    assert "coding" in imported(crawl, b"x", 415, **{"Content-Encoding": "gzip"})["error"]
    assert "binary" in imported(crawl, b"\0\0", 400)["error"]
    assert imported(crawl, b"")["message"] == "0 new, 0 known already"
    bomb = gzip.compress((b"#" * 9_999 + b"\n") * (FILE_MAX // 10_000 + 1))
    assert "in parts" in imported(crawl, bomb, 413)["error"]
    # Of a body that is announced too long, nothing is read.
    token = (crawl.jobdir / CONTROL_TOKEN).read_text().strip()
    with socket.create_connection(("127.0.0.1", urlsplit(crawl.url).port)) as client:
        head = f"POST /api/v1/import HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}"
        client.sendall(f"{head}\r\nContent-Length: {FILE_MAX + 1}\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 413"
    # A client that breaks off takes no other's turn, and no traceback is in the log.
    with socket.create_connection(("127.0.0.1", urlsplit(crawl.url).port)) as client:
        client.sendall(f"{head}\r\nContent-Length: 900\r\n\r\nhalf.test\n".encode())
    with suppress(AssertionError):
        imported(crawl, b"more.test")
    assert imported(crawl, b"more.test")["bad"] == 0
    # Without a length, and for longer than other clients may take.
    root = crawl.web.url("a.test", "/new/").encode()

    def slow() -> Iterator[bytes]:
        for start in range(0, 10_000, 2000):
            yield b"".join(b"%b%d\n" % (root, start + number) for number in range(2000))
            time.sleep(1.5)

    assert CrawlSource(crawl.url).send(slow(), token)["new"] == 10_000


@pytest.mark.slow
def test_the_command_hands_a_file_to_the_running_crawl(
    crawl: SimpleNamespace, tmp_path: Path
) -> None:
    host = urlsplit(crawl.web.url("a.test")).netloc
    file = tmp_path / "more.csv.gz"
    file.write_bytes(gzip.compress(f"1,b.{host}\n2,a b\n3,c.{host}/x\n1,b.{host}\n".encode()))
    done = scrapy("frontier", crawl.jobdir, "--import", file)
    assert done.stdout == b"imported 2, known 1, refused 0, bad 1\n"
    assert done.stderr == b"krowlspider: line 2 skipped: whitespace inside\n"
    done = scrapy("frontier", crawl.jobdir, "--import", file, "--json")
    assert json.loads(done.stdout) == {
        "imported": 0,
        "known": 3,
        "refused": {},
        "bad": 1,
        "sent": 0,
        "pages": 0,
    }
    file.write_bytes(b"x\n")
    assert scrapy("frontier", crawl.jobdir, "--import", file, code=2).stdout.endswith(b"bad 1\n")
    done = scrapy("frontier", crawl.jobdir, "--import", tmp_path / "none", code=2)
    assert b"No such file" in done.stderr
    done = scrapy(
        "frontier", crawl.jobdir, "--import", file, "-s", "KROWL_CONTROL_TOKEN=" + 16 * "x", code=2
    )
    assert b"give the token of the crawl" in done.stderr


@pytest.mark.slow
def test_what_an_answer_calls_done_survives_a_kill(tmp_path: Path) -> None:
    """Right behind the answer, and though no commit follows."""
    with MockWeb(spec=SPEC) as web:
        seeds = write_seeds(tmp_path / "seeds.txt", [web.url("a.test")])
        settings = {
            "PROMETHEUS_ENABLED": 1,
            "PROMETHEUS_PORT": 0,
            "KROWL_DELAY_MIN": 30,
            "KROWL_COMMIT_INTERVAL": 60,
        }
        run = Crawl(tmp_path / "job", arguments={"seeds": seeds}, settings=settings)
        run.start()
        found: Any = type("Found", (), {})()
        found.url = awaited(run, r"page (http://127.0.0.1:\d+)/;")[1]
        found.jobdir = run.jobdir
        names = "".join(f"h{number}.invalid\n" for number in range(5000))
        answer = imported(found, names.encode())
        run.kill()
        assert answer["new"] == 5000
        view = frontier_view(run.jobdir)
        assert view["queued"] >= 5000
        export = scrapy("frontier", run.jobdir, "--export").stdout.decode().splitlines()
        bare = [json.loads(line) for line in export if '"bare":true' in line]
        assert {line["url"] for line in bare} == {
            f"https://h{number}.invalid/" for number in range(5000)
        }

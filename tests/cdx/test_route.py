"""The routes over HTTP: forms, compression, clients that go or that ask too much; and files."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import zlib
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from krowlspider.cdx.archives import Archives
from krowlspider.cdx.pace import CONNECTION, ClientGone
from krowlspider.cdx.route import ANSWERS_MAX, CdxRoute
from krowlspider.cdx.warc_files import SENT_MAX, WithFiles
from krowlspider.job.monitoring.access import HostNames
from krowlspider.job.monitoring.endpoint import Endpoint
from tests.archive.captures import capture, series, written
from tests.archive.index.lines import small_index

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from krowlspider.cdx.pace import ClientWork

# Seconds that nothing here takes.
LONG = 60.0
CORS = {"Access-Control-Allow-Origin": "https://replay.test"}


@asynccontextmanager
async def serving(
    archives: Archives,
    headers: Mapping[str, str] = CORS,
    time_limit: float = LONG,
    share: float = 1.0,
    clients_max: int = 64,
) -> AsyncIterator[int]:
    """Serve on the loop of the test; yield the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    routes = WithFiles(
        CdxRoute(archives, headers, share).routes(), archives.folders, "https://replay.test"
    )
    endpoint = Endpoint(routes, time_limit, lambda _: None, HostNames(), clients_max)
    await endpoint.listen(listening)
    try:
        async with asyncio.timeout(LONG):
            yield listening.getsockname()[1]
    finally:
        endpoint.close()


async def said(port: int, target: str, method: str = "GET", **headers: str) -> tuple[str, bytes]:
    """The head of an answer, and its body without the coding of its transfer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    names = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    writer.write(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{names}\r\n".encode())
    content = b""
    try:
        with suppress(ConnectionError):
            content = await reader.read()
    finally:
        writer.transport.abort()
    head, _, body = content.partition(b"\r\n\r\n")
    if b"Transfer-Encoding: chunked" in head:
        body = dechunked(body)
    return head.decode(), body


def dechunked(body: bytes) -> bytes:
    content = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        content, body = content + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return content


def archive(folder: Path, count: int) -> Archives:
    small_index(folder / "a.cdxj", [f"h{number:05}.test" for number in range(count)])
    return Archives([folder])


async def test_long_answer_comes_whole_and_compressed_if_asked_so(tmp_path: Path):
    archives = archive(tmp_path, 5000)
    every = (tmp_path / "a.cdxj").read_bytes()
    async with serving(archives) as port:
        head, body = await said(port, "/cdx?url=*.test")
        assert head.startswith("HTTP/1.1 200 OK")
        assert "Access-Control-Allow-Origin: https://replay.test" in head
        assert "outbackcdx-urlkey: test," in head
        assert body == every
        head, body = await said(port, "/cdx?url=*.test", Accept_Encoding="br, gzip")
        assert "Content-Encoding: gzip" in head
        assert zlib.decompress(body, 31) == every
        head, body = await said(port, "/cdx?url=*.test&gzip=false", Accept_Encoding="gzip")
        assert "Content-Encoding" not in head
        assert body == every


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("/cdx", "give one of url= and urlkey="),
        ("/cdx?url=%20", "url= is empty: give a URL"),
        ("/cdx?url=*", "url= is empty: give a URL"),
        ("/cdx?url=a.test&filter=~url:(a%2B)%2B$", "filter=~url:(a+)+$: the expression could"),
        ("/cdx?url=a.test&output=%0d%0aX-Evil:1", "output=\r\nX-Evil:1 not supported"),
        ("/outbackcdx?url=a.test&filter=x", "filter=x: give a field"),
        ("/cdx?q=type:urlquery", "q= has no url:"),
        ("/cdx?url=" + "*." * 20, None),
    ],
)
async def test_bad_query_is_answered_in_one_line(tmp_path: Path, target: str, message: str | None):
    async with serving(archive(tmp_path, 10)) as port:
        head, body = await said(port, target)
    assert head.startswith("HTTP/1.1 400" if message else "HTTP/1.1 200")
    assert "\r\nX-Evil" not in head
    assert CORS.items() <= dict(each.split(": ", 1) for each in head.split("\r\n")[1:]).items()
    if message:
        assert json.loads(body)["message"].startswith(message)


async def test_head_has_no_body(tmp_path: Path):
    async with serving(archive(tmp_path, 10)) as port:
        head, body = await said(port, "/cdx?url=*.test", "HEAD")
        assert head.startswith("HTTP/1.1 200")
        assert not body
        assert (await said(port, "/cdx?url=*.test", "POST"))[0].startswith("HTTP/1.1 405")


async def test_broken_line_cuts_an_answer_that_has_begun(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """The client sees that it is not whole."""
    archives = archive(tmp_path, 2000)
    with (tmp_path / "a.cdxj").open("a") as file:
        file.write("test,x)/ 2026 junk\n")
    async with serving(archives) as port:
        head, body = await said(port, "/cdx?url=x.test&output=json")
        assert head.startswith("HTTP/1.1 500")
        assert "a line of an index is broken" in json.loads(body)["message"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /cdx?url=*.test&output=json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        content = b""
        with suppress(ConnectionError):
            content = await reader.read()
        writer.transport.abort()
        assert not content.endswith(b"\r\n0\r\n\r\n")
    [logged] = caplog.messages
    assert "(a.cdxj line 2001)" in logged


class Blocked(Archives):
    """An archive whose disk does not answer until the client has gone or it is ``released``."""

    def __init__(self, folder: Path):
        super().__init__([folder])
        self.released = threading.Event()
        self.begun = self.ended = 0

    def look(self, work: ClientWork):  # type: ignore[no-untyped-def]
        self.begun += 1
        while not self.released.wait(0.005):
            try:
                work.go_on()
            except ClientGone:
                self.ended += 1
                raise
        return super().look(work)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a thread makes it true
        await asyncio.sleep(0.01)


async def test_one_answer_more_than_the_limit_is_refused(tmp_path: Path):
    archives = Blocked(archive(tmp_path, 10).folders[0])
    async with serving(archives) as port:
        target = "/cdx?url=h00001.test"
        asked = [asyncio.create_task(said(port, target)) for _ in range(ANSWERS_MAX)]
        await until(lambda: archives.begun == ANSWERS_MAX)
        assert (await said(port, target))[0].startswith("HTTP/1.1 503")
        archives.released.set()
        for each in asked:
            assert (await each)[1].startswith(b"test,h00001)/ ")
        assert (await said(port, target))[0].startswith("HTTP/1.1 200")


async def test_flood_of_short_queries_takes_its_share(tmp_path: Path):
    """At a running crawl, whatever is asked: a wrong query is the shortest one."""
    answers, begun, share = 0, time.monotonic(), 0.03

    async def flood(port: int) -> None:
        nonlocal answers
        while time.monotonic() < begun + 1:
            head, _ = await said(port, "/cdx?url=a.test&limit=-1")
            assert head.startswith("HTTP/1.1 400")
            answers += 1

    async with serving(archive(tmp_path, 10), share=share, clients_max=8) as port:
        await asyncio.gather(*(flood(port) for _ in range(6)))
    assert answers * CONNECTION < 0.06 + share * (time.monotonic() - begun)


async def test_refused_clients_wait_and_keep_their_connections(tmp_path: Path):
    """At a running crawl, so that those that ask again at once are no flood."""
    archives, target = Blocked(archive(tmp_path, 10).folders[0]), "/cdx?url=h00001.test"
    async with serving(archives, share=0.03, clients_max=8) as port:
        asked = []
        for at in range(ANSWERS_MAX):
            asked.append(asyncio.create_task(said(port, target)))
            await until(lambda at=at: archives.begun > at)
        begun = time.monotonic()
        more = [asyncio.create_task(said(port, target)) for _ in range(8)]
        for each in more:
            assert (await each)[0].startswith("HTTP/1.1 503")
        assert time.monotonic() - begun > 0.9
        archives.released.set()
        for each in asked:
            assert (await each)[0].startswith("HTTP/1.1 200")


async def test_work_ends_when_the_client_goes(tmp_path: Path):
    archives = Blocked(archive(tmp_path, 10).folders[0])
    async with serving(archives) as port:
        asked = [asyncio.create_task(said(port, "/cdx?url=a.test")) for _ in range(3)]
        await until(lambda: archives.begun == 3)
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await until(lambda: archives.ended == 3)


async def test_client_that_does_not_read_is_closed(tmp_path: Path):
    """Within the limit for a piece, however long the whole answer would take."""
    async with serving(archive(tmp_path, 60_000), time_limit=0.3) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET /cdx?url=*.test HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(1.5)
        content = b""
        with suppress(ConnectionError):
            content = await reader.read()
        writer.transport.abort()
    assert not content.endswith(b"\r\n0\r\n\r\n")


# --- files ---


async def test_file_is_served_by_ranges(tmp_path: Path):
    [path] = written(tmp_path, [capture(number) for number in range(9)])
    content = path.read_bytes()
    async with serving(Archives([tmp_path])) as port:
        head, body = await said(port, f"/warc/{path.name}")
        assert (head.split()[1], body) == ("200", content)
        assert "Accept-Ranges: bytes" in head
        for asked, found in (
            ("bytes=10-19", content[10:20]),
            ("bytes=100-", content[100:]),
            ("bytes=-7", content[-7:]),
            ("bytes=5-999999999", content[5:]),
        ):
            head, body = await said(port, f"/warc/{path.name}", Range=asked)
            assert (head.split()[1], body) == ("206", found), asked
            assert f"/{len(content)}\r\n" in head
        for asked in (f"bytes={len(content)}-", "bytes=9-3", "lines=1-2"):
            head, _ = await said(port, f"/warc/{path.name}", Range=asked)
            assert head.split()[1] == "416", asked
        head, body = await said(port, f"/warc/{path.name}", "HEAD")
        assert f"Content-Length: {len(content)}" in head
        assert not body


async def test_open_file_is_found_after_it_has_ended(tmp_path: Path):
    files = series(tmp_path)
    files.append(capture(1))
    [path] = tmp_path.iterdir()
    async with serving(Archives([tmp_path])) as port:
        for _ in range(2):
            assert (await said(port, f"/warc/{path.name}"))[0].split()[1] == "200"
            files.close()


async def test_so_many_files_are_sent_at_a_time(tmp_path: Path):
    with (tmp_path / "a.warc.gz").open("wb") as file:
        # More than the kernel takes off the server's hands.
        file.truncate(64 * 1024 * 1024)
    async with serving(Archives([tmp_path])) as port:
        writers = []
        for _ in range(SENT_MAX):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(b"GET /warc/a.warc.gz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            writers.append(writer)
        assert (await said(port, "/warc/a.warc.gz"))[0].split()[1] == "503"
        for writer in writers:
            writer.transport.abort()


@pytest.mark.parametrize(
    "name",
    ["../secret.warc.gz", "%2e%2e%2fsecret.warc.gz", "/etc/passwd", "a.cdxj", "", "x.warc.gz",
     "folder.warc.gz", "%00.warc.gz", "..%5csecret.warc.gz", "sub/b.warc.gz"],
)  # fmt: skip
async def test_nothing_but_the_files_is_served(tmp_path: Path, name: str):
    folder = tmp_path / "warc"
    (folder / "folder.warc.gz").mkdir(parents=True)
    (folder / "sub").mkdir()
    for path in ("a.cdxj", "sub/b.warc.gz", "../secret.warc.gz"):
        (folder / path).write_text("secret")
    async with serving(Archives([folder])) as port:
        head, body = await said(port, f"/warc/{name}")
    assert head.split()[1] in {"404", "400"}
    assert b"secret" not in body

"""A crawl uploads its archive, ends as without uploads, and waits for no store that is down."""

from __future__ import annotations

import json
import signal
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.exceptions import NotConfigured
from scrapy.utils.test import get_crawler

from krowlspider.archive.tools.check import check_folder
from krowlspider.archive.uploader import finished_files, upload_folder
from krowlspider.archive.uploads import NOTES, Destination, UploadLog, uploaded
from krowlspider.config.validation import validate
from krowlspider.errors import SettingsError, counted
from krowlspider.extensions.upload import Upload
from tests.archive.captures import capture, written
from tests.archive.command import warc
from tests.archive.upload.s3 import (
    CREDENTIALS,
    SECRET,
    Fate,
    Proxy,
    S3Server,
    contents,
    noise,
    s3_server,
)
from tests.mockweb import MockWeb
from tests.support.archived import assert_archived
from tests.support.crawling import frontier_view
from tests.support.crawls import crawl_of, page, pages
from tests.support.in_process import run_here
from tests.support.settings import project_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.crawling import Crawl

PAGES = 12
BUCKET = "archive"
FAST = {"KROWL_DELAY_MIN": 0, "KROWL_DELAY_FACTOR": 0}
# Gives up soon.
IMPATIENT = json.dumps(
    {"krowlspider.extensions.upload.Upload": None, "tests.archive.upload.s3.ImpatientUpload": 0}
)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        running.make_bucket(BUCKET)
        yield running


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def proxy(server: S3Server) -> Iterator[Proxy]:
    running = Proxy(server.url)
    yield running
    running.stop()


@pytest.fixture
def web() -> Iterator[MockWeb]:
    """Serve pages of 30 kB that cannot be compressed: a WARC file ends after two."""
    links = "".join(f"<a href=/{number}>x</a>" for number in range(PAGES))
    leaves = [
        page(f"/{number}", "".join(map(chr, noise(30_000, number)))) for number in range(PAGES)
    ]
    with MockWeb(spec=[page("/robots.txt", "", status=404), page("/", links), *leaves]) as running:
        yield running


def crawl(web: MockWeb, folder: Path, proxy: Proxy, **changes: Any) -> Crawl:
    settings = {
        **FAST,
        "KROWL_WARC_MAX_SIZE": 50_000,
        "KROWL_WARC_UPLOAD": f"s3://{BUCKET}/{folder.name}",
        "KROWL_WARC_UPLOAD_ENDPOINT": proxy.url,
        "EXTENSIONS": IMPATIENT,
        **changes,
    }
    return crawl_of(web, folder, [web.url("a.test")], settings=settings)


def in_bucket(server: S3Server, folder: Path) -> dict[str, bytes]:
    """Return names and contents of the objects that the crawl in ``folder`` has uploaded."""
    prefix = f"{folder.name}/"
    objects = server.objects(BUCKET)
    return {
        key.removeprefix(prefix): content
        for key, content in objects.items()
        if key.startswith(prefix)
    }


def figures(crawl: Crawl) -> dict[str, int]:
    return {
        name.removeprefix("krowl/upload/"): value
        for name, value in crawl.stats.items()
        if name.startswith("krowl/upload/")
    }


def uploads_said(crawl: Crawl) -> list[str]:
    return [line for line in crawl.complaints if "upload" in line.lower() or BUCKET in line]


def assert_whole(crawl: Crawl, web: MockWeb) -> None:
    """Assert that all pages were fetched once and counted, whatever the uploads did."""
    paths = ["/", *(f"/{number}" for number in range(PAGES))]
    assert sorted(entry.path for entry in pages(web.log())) == sorted(paths)
    assert len(crawl.items) == len(paths)
    assert crawl.stats["krowl/frontier/done_count"] == len(paths)
    assert crawl.stats["finish_reason"] == "finished"
    view = frontier_view(crawl.jobdir)
    assert (view["done"], view["queued"]) == (len(paths), 0)


def test_every_file_of_a_crawl_is_uploaded_at_its_end(
    tmp_path: Path, web: MockWeb, server: S3Server, proxy: Proxy
) -> None:
    done = crawl(web, tmp_path, proxy).run()
    assert_whole(done, web)
    assert_archived(done.jobdir, web.log())
    files = contents(done.jobdir / "warc")
    assert (
        sum(name.endswith(".warc.gz") for name in files) == done.stats["krowl/archive/files_count"]
    )
    assert done.stats["krowl/archive/files_count"] > 3
    assert in_bucket(server, tmp_path) == files
    size = sum(map(len, files.values()))
    assert figures(done) == {
        "files_count": len(files),
        "bytes_count": size,
        "failed_count": 0,
        "waiting": 0,
    }
    assert done.complaints == []
    assert uploaded(done.jobdir / "warc").keys() == files.keys()


@pytest.mark.slow
def test_no_secret_is_in_the_log_the_archive_or_the_notes(
    tmp_path: Path, web: MockWeb, server: S3Server, proxy: Proxy
) -> None:
    proxy.fate = lambda _: Fate.DENIED
    done = crawl(web, tmp_path, proxy, LOG_LEVEL="DEBUG").run(code=7)
    assert f" files not uploaded to s3://{BUCKET}/{tmp_path.name}: " in done.log.splitlines()[-1]
    proxy.fate = lambda _: Fate.PASS
    crawl(web, tmp_path, proxy, LOG_LEVEL="DEBUG").run()
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert done.jobdir / "warc" / NOTES in written
    assert not any(SECRET.encode() in path.read_bytes() for path in written)
    info = check_folder(done.jobdir / "warc")
    assert info.problems == []


@pytest.mark.slow
def test_store_that_is_down_delays_uploads_to_the_next_start(
    tmp_path: Path, web: MockWeb, server: S3Server, proxy: Proxy
) -> None:
    proxy.fate = lambda _: Fate.CUT
    # Long enough for the client to give its first question up.
    done = crawl(web, tmp_path, proxy, KROWL_DELAY_MIN=0.2).run(code=7)
    assert_whole(done, web)
    assert_archived(done.jobdir, web.log())
    files = contents(done.jobdir / "warc")
    left = len(files)
    found = figures(done)
    assert found.pop("failed_count") > 0
    assert found == {"files_count": 0, "bytes_count": 0, "waiting": left}
    assert in_bucket(server, tmp_path) == {}
    # Told when it begins, once while it lasts, and at the end.
    said = uploads_said(done)
    assert [len(said), f": {counted(left, 'file')}" in said[-1]] == [3, True]
    assert "cannot be used now; the crawl goes on" in said[0]
    proxy.fate = lambda _: Fate.PASS
    again = crawl(web, tmp_path, proxy).run()
    assert in_bucket(server, tmp_path) == contents(done.jobdir / "warc")
    assert figures(again)["files_count"] >= left
    assert figures(again)["waiting"] == 0
    assert uploads_said(again) == []


@pytest.mark.slow
def test_only_the_end_of_a_crawl_waits_for_a_hung_store(
    tmp_path: Path, web: MockWeb, server: S3Server, proxy: Proxy
) -> None:
    proxy.fate = lambda _: Fate.HUNG
    running = crawl(web, tmp_path, proxy).start()
    running.wait_until(lambda: "Closing spider" in running.log)
    closing = time.monotonic()
    running.wait(code=7)
    assert time.monotonic() - closing < 10
    assert_whole(running, web)


@pytest.mark.slow
def test_interrupted_crawl_uploads_its_files(
    tmp_path: Path, web: MockWeb, server: S3Server, proxy: Proxy
) -> None:
    running = crawl(web, tmp_path, proxy, KROWL_DELAY_MIN=0.3).start()
    running.wait_until(lambda: len(web.log()) > 3)
    running.process.send_signal(signal.SIGTERM)
    running.wait()
    assert in_bucket(server, tmp_path) == contents(running.jobdir / "warc") != {}


@pytest.mark.slow
def test_folder_that_another_process_uploads_is_reported(
    tmp_path: Path, web: MockWeb, server: S3Server, proxy: Proxy
) -> None:
    """Files that the other process has noted for the same place do not wait."""
    known, warc = 2, tmp_path / "warc"
    warc.mkdir()
    running = crawl(web, tmp_path, proxy, KROWL_DELAY_MIN=0.2, KROWL_WARC_DIR=str(warc))
    with closing(UploadLog(warc, Destination(BUCKET, tmp_path.name, proxy.url))) as notes:
        notes.open()
        running.start()
        running.wait_until(lambda: len(finished_files(warc)) > known)
        for file in finished_files(warc)[:known]:
            notes.add(file, "etag")
        running.wait(code=7)
    assert_whole(running, web)
    left = len(contents(warc)) - known
    first, last = uploads_said(running)
    why = f"another process uploads the files in {warc}"
    assert f"WARC files are not uploaded yet: {why}" in first
    assert f"Not uploaded to s3://{BUCKET}/{tmp_path.name}: {counted(left, 'file')} ({why})" in last
    assert figures(running) == {
        "files_count": 0,
        "bytes_count": 0,
        "failed_count": 0,
        "waiting": left,
    }
    assert in_bucket(server, tmp_path) == {}
    again = crawl(web, tmp_path, proxy, KROWL_WARC_DIR=str(warc)).run()
    assert figures(again)["waiting"] == 0
    assert len(in_bucket(server, tmp_path)) >= left


def test_without_the_setting_nothing_is_uploaded() -> None:
    with pytest.raises(NotConfigured):
        Upload(get_crawler(settings_dict={"KROWL_WARC_UPLOAD": None}))


@pytest.mark.parametrize("name", ["KROWL_WARC_UPLOAD", "KROWL_WARC_UPLOAD_ENDPOINT"])
@pytest.mark.parametrize("scheme", ["s3", "https"])
def test_credentials_in_a_url_are_refused_and_not_repeated(name: str, scheme: str) -> None:
    with pytest.raises(SettingsError) as caught:
        validate(project_settings(**{name: f"{scheme}://KEY:{SECRET}@bucket"}))
    assert name in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "KEY" not in str(caught.value)


@pytest.mark.slow
def test_command_reports_a_missing_place(tmp_path: Path, server: S3Server) -> None:
    written(tmp_path, map(capture, range(3)), max_size=1)
    place = ("-s", f"KROWL_WARC_UPLOAD_ENDPOINT={server.url}", "-s")
    assert "KROWL_WARC_UPLOAD=s3://bucket" in warc("upload", tmp_path, code=2)[1]
    nowhere = warc("upload", tmp_path, *place, "KROWL_WARC_UPLOAD=s3://not-there", code=2)[1]
    assert nowhere.startswith("krowlspider: s3://not-there")
    assert "NoSuchBucket" in nowhere


def test_command_uploads_and_removes_the_files_of_a_crawl(tmp_path: Path, server: S3Server) -> None:
    written(tmp_path, map(capture, range(3)), max_size=1)
    files = dict(contents(tmp_path))
    there = f"s3://{BUCKET}/{tmp_path.name}"
    settings = ("-s", f"KROWL_WARC_UPLOAD={there}", "-s", "KROWL_WARC_UPLOAD_DELETE=True")
    endpoint = ("-s", f"KROWL_WARC_UPLOAD_ENDPOINT={server.url}")
    said, _ = warc("upload", tmp_path, *settings, *endpoint)
    assert said.decode() == f"6 files uploaded to {there}, 0 left\n"
    assert in_bucket(server, tmp_path) == files
    assert contents(tmp_path) == {
        name: content for name, content in files.items() if name.endswith(".cdxj")
    }
    lost = min(name for name in files if name.endswith(".warc.gz"))
    server.ask("DELETE", f"/{BUCKET}/{tmp_path.name}/{lost}")
    said, _ = warc("upload", tmp_path, "--verify", *settings, *endpoint, code=1)
    assert said.decode().splitlines()[:2] == [
        f"{there}/{lost} is missing",
        "verified 6 files: 1 missing or changed",
    ]


@pytest.mark.slow
def test_command_exits_with_1_when_files_are_left(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a minute; here for 1.5 s."""
    monkeypatch.setattr(
        "krowlspider.programs.warc.upload_folder", partial(upload_folder, stalled_after=1.5)
    )
    written(tmp_path, map(capture, range(3)), max_size=1)
    files = dict(contents(tmp_path))
    taken = min(name for name in files if name.endswith(".warc.gz"))
    server.ask("PUT", f"/{BUCKET}/{tmp_path.name}/{taken}", b"another's")
    there = f"s3://{BUCKET}/{tmp_path.name}"
    done = run_here(
        [
            *("warc", "upload", str(tmp_path)),
            *("-s", f"KROWL_WARC_UPLOAD={there}", "-s", "KROWL_WARC_UPLOAD_DELETE=True"),
            *("-s", f"KROWL_WARC_UPLOAD_ENDPOINT={server.url}"),
        ]
    )
    assert done.returncode == 1, done.stderr.decode()
    assert done.stdout.decode() == f"5 files uploaded to {there}, 1 left\n"
    assert "exists with other content" in done.stderr.decode()
    assert contents(tmp_path)[taken] == files[taken]
    assert in_bucket(server, tmp_path)[taken] == b"another's"

"""Each setting of the archive has its stated effect on the records of whole crawls."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import BaseSettings
from zlib_ng import zlib_ng

from krowlspider import __version__, settings
from krowlspider.archive.payload import digest
from krowlspider.config.log import IN_FILES
from krowlspider.job.provenance import own_address, warcinfo
from tests.archive.command import warc
from tests.fetch.nameserver import NXDOMAIN, nameserver_in_thread, refusing_port
from tests.mockweb import MockWeb
from tests.support.archived import Records, assert_archived, sha1, stored, valid_records
from tests.support.crawling import CONTACT, Crawl, write_seeds
from tests.support.crawls import crawl_of, crawl_raw, failures, page
from tests.support.rawweb import HTML, Raw, RawWeb, answer
from tests.support.simulated_web import SimulatedRawWeb, SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fetch.nameserver import Zone

NO_ROBOTS = page("/robots.txt", "", status=404)
NO_DELAY = {"KROWL_DELAY_MIN": 0, "KROWL_DELAY_FACTOR": 0, "RETRY_TIMES": 0}


def named(*urls: str) -> str:
    places = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{places}</urlset>'


# --- KROWL_WARC_ALSO ---

LEADING = [
    {
        "host": "b.test",
        "path": "/robots.txt",
        "redirect": "http://d.test:{port}/robots.txt",
    },
    page("/robots.txt", "User-agent: *\nAllow: /\n"),
    page("/sitemap.xml", named("http://a.test:{port}/mapped"), host="a.test"),
    page(
        "/",
        "<meta charset=iso-8859-2><a href=/two>2</a><a href=/moved>m</a><a href=#here>h</a>",
        host="a.test",
        headers={"Content-Type": "text/html"},
    ),
    {"path": "/moved", "redirect": "/again"},
    {"path": "/again", "redirect": "/target"},
    page("^/(two|target|mapped)$", "<p>leaf"),
    page("/", "<p>root"),
]
TIMES = ("fetchTimeMs", "firstByteTimeMs", "dnsTimeMs", "connectTimeMs", "tlsTimeMs")


def test_metadata_describe_each_fetch(
    tmp_path: Path,
) -> None:
    """How its URL was found, its times, and the links found in it."""
    with SimulatedWeb(spec=LEADING, tls=True) as web:
        seeds = [web.url("a.test"), web.url("b.test"), web.url("c.test", tls=True)]
        settings = {"KROWL_WARC_ALSO": "metadata", "KROWL_SITEMAPS": 1, **NO_DELAY}
        crawl = crawl_of(web, tmp_path, seeds, settings=settings).run()
        records = valid_records(crawl.jobdir / "warc")
        entries = web.log()
        a = web.url("a.test", "")
        expected: dict[str, list[tuple[str, str]]] = {
            f"{a}/robots.txt": [("hop", "P")],
            web.url("b.test", "/robots.txt"): [("hop", "P")],
            web.url("d.test", "/robots.txt"): [
                ("redirected-from", web.url("b.test", "/robots.txt")),
                ("via", web.url("b.test", "/robots.txt")),
                ("hop", "R"),
            ],
            web.url("c.test", "/robots.txt", tls=True): [("hop", "P")],
            f"{a}/": [("hop", "S"), ("depth", "0"), ("outlinks", "3"), ("charset", "ISO-8859-2")],
            f"{a}/two": [
                ("via", f"{a}/"),
                ("hop", "L"),
                ("depth", "1"),
                ("hopsFromSeed", "L"),
                ("outlinks", "0"),
                ("charset", "UTF-8"),
            ],
            f"{a}/moved": [("via", f"{a}/"), ("hop", "L"), ("depth", "1"), ("hopsFromSeed", "L")],
            f"{a}/again": [
                ("redirected-from", f"{a}/moved"),
                ("via", f"{a}/moved"),
                ("hop", "R"),
                ("depth", "1"),
                ("hopsFromSeed", "LR"),
            ],
            f"{a}/target": [
                ("redirected-from", f"{a}/moved"),
                ("redirected-from", f"{a}/again"),
                ("via", f"{a}/again"),
                ("hop", "R"),
                ("depth", "1"),
                ("hopsFromSeed", "LRR"),
                ("outlinks", "0"),
                ("charset", "UTF-8"),
            ],
            f"{a}/sitemap.xml": [
                ("via", f"{a}/robots.txt"),
                ("hop", "M"),
                ("depth", "1"),
                ("hopsFromSeed", "PM"),
            ],
            f"{a}/mapped": [
                ("via", f"{a}/sitemap.xml"),
                ("hop", "M"),
                ("depth", "1"),
                ("hopsFromSeed", "PMM"),
                ("outlinks", "0"),
                ("charset", "UTF-8"),
            ],
            seeds[1]: [("hop", "S"), ("depth", "0"), ("outlinks", "0"), ("charset", "UTF-8")],
            seeds[2]: [("hop", "S"), ("depth", "0"), ("outlinks", "0"), ("charset", "UTF-8")],
        }
    notes = {note.url: note for note in records.of_kind("metadata")}
    answers = {first.url: first for first in records.of_kind("response", "revisit")}
    # Each fetch has one, which refers to it.
    assert len(records.of_kind("metadata")) == len(entries) == len(answers)
    assert notes.keys() == answers.keys() == {entry.url for entry in entries}
    for url, note in notes.items():
        assert note["WARC-Concurrent-To"] == answers[url]["WARC-Record-ID"]
        assert note["WARC-Date"] == answers[url]["WARC-Date"]
        assert note["Content-Type"] == "application/warc-fields"
        assert note["WARC-Block-Digest"] == sha1(note.block)
    others = {*TIMES, "delayMs", "sourceTag"}
    assert {
        url: [(name, value) for name, value in notes[url].block_fields if name not in others]
        for url in expected
    } == expected
    assert {dict(note.block_fields)["delayMs"] for note in notes.values()} == {"0"}
    tags = {url: dict(note.block_fields).get("sourceTag") for url, note in notes.items()}
    # A seed is its own source. A robots.txt has none.
    assert tags[f"{a}/"] == tags[f"{a}/two"] == tags[f"{a}/target"] == f"{a}/"
    assert tags[seeds[1]] == seeds[1]
    assert tags[f"{a}/robots.txt"] is None
    first_of = {entry.conn: entry.url for entry in reversed(entries)}
    for url, note in notes.items():
        times = {name: float(value) for name, value in note.block_fields if name in TIMES}
        assert times["fetchTimeMs"] >= times["firstByteTimeMs"] > 0
        # A reused connection has no connect times.
        opened = {"dnsTimeMs", "connectTimeMs"} if url in first_of.values() else set()
        opened |= {"tlsTimeMs"} if opened and url.startswith("https") else set()
        assert times.keys() == {"fetchTimeMs", "firstByteTimeMs"} | opened
        assert times["fetchTimeMs"] >= sum(value for name, value in times.items() if name in opened)
        assert all(times[name] > 0 for name in opened)


def test_without_metadata_only_redirects_are_noted(tmp_path: Path) -> None:
    with SimulatedWeb(spec=LEADING) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=NO_DELAY).run()
        records = valid_records(crawl.jobdir / "warc")
        a = web.url("a.test", "")
        asked = len(web.log())
    assert {note.url: note.block_fields for note in records.of_kind("metadata")} == {
        f"{a}/again": [("redirected-from", f"{a}/moved"), ("via", f"{a}/moved")],
        f"{a}/target": [
            ("redirected-from", f"{a}/moved"),
            ("redirected-from", f"{a}/again"),
            ("via", f"{a}/again"),
        ],
    }
    assert len(records) == 2 + 2 * asked + 2


def asks(zone: Zone) -> dict[str, Any]:
    """Return settings that look names up in this zone only."""
    return {"KROWL_RESOLVE": None, "KROWL_DNS_SERVERS": f"127.0.0.1:{zone.port}"}


@pytest.mark.parametrize(("obeys", "path"), [(1, "/robots.txt"), (0, "/p")])
def test_failed_fetches_are_noted_with_their_reason(tmp_path: Path, obeys: int, path: str) -> None:
    """If robots.txt cannot be fetched, its fetch is the one noted, and the page is not fetched."""
    silent = Raw(b"", hangs=True)
    names: dict[str, tuple[int, list[str]] | int | None] = {
        "gone.example": NXDOMAIN,
        "fine.example": (60, ["127.0.0.1"]),
    }
    with (
        nameserver_in_thread(names) as zone,
        SimulatedRawWeb({path: silent}) as mute,
        SimulatedRawWeb({path: Raw(b"HTTP/1.1 200 OK\r\nno colon", closes=True)}) as rude,
        SimulatedRawWeb({"/p": Raw(answer(HTML, body=b"fine"))}) as fine,
        refusing_port() as nobodys,
    ):
        failing = {
            f"http://127.0.0.1:{nobodys}": "connect_refused",
            "http://gone.example": "dns_nxdomain",
            mute.url("127.0.0.1", ""): "first_byte_timeout",
            rude.url("127.0.0.1", ""): "disconnect",
        }
        crawl = crawl_raw(
            tmp_path,
            [f"{root}/p" for root in [*failing, fine.url("fine.example", "")]],
            KROWL_WARC_ALSO="failures",
            ROBOTSTXT_OBEY=obeys,
            **asks(zone),
        )
        records = valid_records(crawl.jobdir / "warc")
    notes = records.of_kind("metadata")
    assert {note.url: note.block_fields for note in notes} == {
        f"{root}{path}": [("error", kind)] for root, kind in failing.items()
    }
    assert all("WARC-Concurrent-To" not in note for note in notes)
    # Without an answer there is no request record. Names are recorded by a setting of their own.
    assert records.kinds == {
        "warcinfo": 1,
        "resource": 1,
        "response": 1 + obeys,
        "request": 1 + obeys,
        "metadata": 4,
    }
    assert failures(crawl) == dict.fromkeys(failing.values(), 1)


def test_each_try_that_fails_is_said_when_a_page_is_tried_again(tmp_path: Path) -> None:
    with SimulatedRawWeb({"/p": Raw(b"", closes=True)}) as web:
        crawl = crawl_raw(
            tmp_path,
            [web.url("a.test", "/p")],
            code=4,
            KROWL_WARC_ALSO="failures, metadata",
            RETRY_TIMES=1,
        )
        notes = valid_records(crawl.jobdir / "warc").about(web.url("a.test", "/p"))
    assert [note.block_fields[:3] for note in notes] == [
        [("hop", "S"), ("depth", "0"), ("error", "disconnect")]
    ] * 2
    assert len({note["WARC-Date"] for note in notes}) == 2


def test_dns_answers_are_resources_of_their_lines_one_a_look_up(tmp_path: Path) -> None:
    names: dict[str, tuple[int, list[str]] | int | None] = {
        "one.example": (300, ["127.0.0.1"]),
        "two.example": (7, ["127.0.0.1", "127.0.0.9"]),
        "xn--caf-dma.example": (60, ["127.0.0.1"]),
        "six.example": (60, ["::1"]),
        "gone.example": NXDOMAIN,
    }
    with (
        nameserver_in_thread(names) as zone,
        SimulatedRawWeb({"/": Raw(answer(HTML, body=b"x"))}) as web,
    ):
        hosts = ["one.example", "Two.example.", "caf\u00e9.example", "six.example", "gone.example"]
        # Two pages of a host need one look-up.
        seeds = [web.url(host, path) for host in hosts for path in ("/", "/2")]
        crawl = crawl_raw(tmp_path, seeds, KROWL_WARC_ALSO="dns", **asks(zone))
        records = valid_records(crawl.jobdir / "warc")
    resources = {record.url: record for record in records.of_kind("resource")}
    del resources["urn:krowlspider:seeds"]
    assert {url: record.block.decode() for url, record in resources.items()} == {
        "dns:one.example": "one.example.\t300\tIN\tA\t127.0.0.1\r\n",
        "dns:two.example": "two.example.\t7\tIN\tA\t127.0.0.1\r\n"
        "two.example.\t7\tIN\tA\t127.0.0.9\r\n",
        "dns:xn--caf-dma.example": "xn--caf-dma.example.\t60\tIN\tA\t127.0.0.1\r\n",
        "dns:six.example": "six.example.\t60\tIN\tAAAA\t::1\r\n",
    }
    for record in resources.values():
        assert record["Content-Type"] == "text/dns"
        assert record["WARC-Payload-Digest"] == record["WARC-Block-Digest"] == sha1(record.block)
    assert len(records.of_kind("resource")) == 5
    # Three hosts with robots.txt, / and /2 (which is missing); ::1 is forbidden.
    assert records.kinds["request"] == 9


# --- Answers that are fetched again ---

BUSY = [
    NO_ROBOTS,
    page("/", "<a href=/busy>b</a><a href=/sick>s</a><a href=/gone>g</a>"),
    {"path": "/busy", "status": 429, "body": "wait", "first": 1},
    {"path": "/sick", "status": 503, "body": "ill", "first": 1},
    page("^/(busy|sick)", "better"),
    page("/gone", "gone", status=404),
]


def test_answers_429_and_503_leave_no_record(tmp_path: Path) -> None:
    skipped = {429, 503}
    with SimulatedWeb(spec=BUSY) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=NO_DELAY).run()
        records = valid_records(crawl.jobdir / "warc")
        entries = web.log()
    assert Counter(entry.status for entry in entries) == {404: 2, 200: 3, 429: 1, 503: 1}
    kept = [e for e in entries if e.status not in skipped or e.path == "/robots.txt"]
    assert stored(crawl.jobdir) == Counter((entry.url, entry.sha1) for entry in kept)
    # The request of a skipped answer is not recorded either.
    assert sorted(record.url for record in records.of_kind("request")) == sorted(
        entry.url for entry in kept
    )
    assert crawl.stats["krowl/archive/records_count"] == 2 + 2 * len(kept) == len(records)
    assert sorted(item["status"] for item in crawl.items) == [200, 200, 200, 404]


# --- KROWL_WARC_REVISIT, KROWL_WARC_DIGEST, KROWL_WARC_COMPRESSION ---

BODIES = [page(f"^/n\\d*{digit}$", f"body {digit} " * 100) for digit in range(10)]
PAGES = 100


def alike(count: int) -> list[dict[str, Any]]:
    """Return pages of 10 bodies, by the last digit."""
    links = "".join(f"<a href=/n{number}>x</a>" for number in range(count))
    return [NO_ROBOTS, page("/", links), *BODIES]


@pytest.mark.parametrize(("revisit", "whole"), [(1, 10), (0, PAGES)])
def test_equal_bodies_are_kept_once_unless_revisits_are_off(
    tmp_path: Path, revisit: int, whole: int
) -> None:
    with SimulatedWeb(spec=alike(PAGES)) as web:
        chosen = {**NO_DELAY, "KROWL_WARC_REVISIT": revisit}
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=chosen).run()
        assert_archived(crawl.jobdir, web.log())
        assert len(web.log()) == 2 + PAGES
    records = Records.of(crawl.jobdir / "warc")
    assert records.unresolved() == []
    # The pages, and / and robots.txt.
    assert records.kinds["response"] == whole + 2
    assert records.kinds["revisit"] == PAGES - whole
    assert records.kinds["request"] == 2 + PAGES
    assert crawl.stats["krowl/archive/records_count"] == 2 + 2 * (2 + PAGES)
    numbers = [
        int(record.url.rpartition("n")[2]) % 10 for record in records.of_kind("response")[2:]
    ]
    assert Counter(numbers) == dict.fromkeys(range(10), whole // 10)
    assert (crawl.jobdir / "payloads").exists() == bool(revisit)


def test_digests_and_compression_are_those_that_are_set(tmp_path: Path) -> None:
    dense = {
        **NO_DELAY,
        "KROWL_WARC_DIGEST": "sha256",
        "KROWL_WARC_COMPRESSION": "zlib-ng-6",
        "KROWL_WARC_ALSO": "dns,metadata",
    }
    with SimulatedWeb(spec=alike(20)) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=dense).run()
        records = valid_records(crawl.jobdir / "warc")
    assert records.kinds["revisit"] == 10
    for record in records:
        assert record["WARC-Block-Digest"] == digest(record.block, "sha256")
        claimed = record.all("WARC-Payload-Digest")
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in claimed)
    for path in (crawl.jobdir / "warc").glob("*.warc.gz"):
        members = list(members_of(path.read_bytes()))
        assert len(members) == len(records)
        for member in members:
            assert member == zlib_ng.compress(zlib.decompress(member, 31), 6, 31)


def members_of(data: bytes) -> Iterator[bytes]:
    while data:
        unpacking = zlib.decompressobj(31)
        unpacking.decompress(data)
        rest = unpacking.unused_data
        yield data[: len(data) - len(rest)]
        data = rest


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_revisit_has_its_original_after_kill_9(
    tmp_path: Path,
) -> None:
    """With small files, so that revisits refer across them, and new bodies all the time. What one
    process has stored, the next ones know."""
    chance = random.Random(7)
    bodies = [page(f"^/n\\d*{n:02}$", chance.randbytes(300).hex()) for n in range(100)]
    links = "".join(f"<a href=/n{number:04}>x</a>" for number in range(400))
    hosts = [f"h{number}.test" for number in range(4)]
    with MockWeb(spec=[NO_ROBOTS, page("/", links), *bodies]) as web:
        seeds = [web.url(host) for host in hosts]
        often = {
            "KROWL_DELAY_MIN": 0.01,
            "KROWL_DELAY_FACTOR": 0,
            "KROWL_WARC_MAX_SIZE": 60_000,
            "KROWL_COMMIT_INTERVAL": 0.1,
        }
        for _ in range(8):
            crawl = crawl_of(web, tmp_path, seeds, settings=often).start()
            goal = len(web.log()) + chance.randrange(1, 200)
            crawl.wait_until(lambda goal=goal: len(web.log()) >= goal)  # type: ignore[misc]
            crawl.kill()
        last = crawl_of(web, tmp_path, seeds, settings=often).run()
        records = valid_records(last.jobdir / "warc")
        entries = web.log()
    assert stored(last.jobdir).keys() == {(entry.url, entry.sha1) for entry in entries}
    assert records.kinds["revisit"] > 1000
    whole = {(r.url, r["WARC-Date"]): r.file for r in records.of_kind("response")}
    originals = [
        (r.file, whole[r["WARC-Refers-To-Target-URI"], r["WARC-Refers-To-Date"]])
        for r in records.of_kind("revisit")
    ]
    for part in (0, -1):
        # The whole name, and the process in it.
        names = [[name.split("-")[part:] for name in pair] for pair in originals]
        assert sum(one != other for one, other in names) > 100


# --- The first record of each file ---

INFO = {"operator": "Bibliothèque", "isPartOf": "autumn", "curator": "A: B"}
SECRETS = ("hunter2", "AKIASECRET", "p4ssw0rd")


@pytest.mark.slow
def test_each_file_begins_with_its_warcinfo_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one has the seeds next."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS[1])
    with RawWeb({"/": Raw(answer(HTML, body=b"x"))}) as web:
        seeds = write_seeds(tmp_path / "seeds.txt", ["# ours", web.url("a.test")])
        crawl = Crawl(
            tmp_path / "job",
            arguments={"seeds": seeds},
            settings={
                "KROWL_WARC_MAX_SIZE": 1,
                "KROWL_DELAY_MIN": 2,
                "KROWL_WARC_PREFIX": "aged",
                "KROWL_WARC_INFO": json.dumps(INFO),
                "TELNETCONSOLE_PASSWORD": SECRETS[0],
            },
        ).start()
        folder = crawl.jobdir / "warc"
        crawl.wait()
        assert web.asked == ["/robots.txt", "/"]
    records = valid_records(folder)
    files = sorted(path.name for path in folder.glob("*.warc.gz"))
    name = re.compile(rf"aged-\d{{14}}-0000[01]-(.+)-{crawl.process.pid}\.warc\.gz")
    assert [[r.kind for r in records if r.file == file] for file in files] == [
        ["warcinfo", "resource", "response", "request"],
        ["warcinfo", "response", "request"],
    ]
    [planted] = records.of_kind("resource")
    assert (planted.url, planted.block) == ("urn:krowlspider:seeds", seeds.read_bytes())
    assert planted["Content-Type"] == "text/plain"
    assert planted["WARC-Payload-Digest"] == sha1(planted.block)
    assert warc("cat", planted.url, crawl.jobdir)[0] == planted.block
    assert warc("check", folder)[0].startswith(b"2 files, 7 records: 0 problems, 0 warnings")
    infos = records.of_kind("warcinfo")
    assert len({info["WARC-Record-ID"] for info in infos}) == 2
    for file, info in zip(files, infos, strict=True):
        assert info["WARC-Filename"] == file
        assert info["Content-Type"] == "application/warc-fields"
        members = [r["WARC-Warcinfo-ID"] for r in records[1:] if r.file == file and r is not info]
        assert set(members) == {info["WARC-Record-ID"]}
        fields = dict(info.block_fields)
        assert len(fields) == len(info.block_fields)
        matched = name.fullmatch(file)
        assert matched is not None
        assert fields["hostname"] == matched[1]
        assert {name: fields[name] for name in INFO} == INFO
        assert "KROWL_WARC_INFO" not in fields
        assert fields["http-header-user-agent"] == f"krowlspider/{__version__} (+{CONTACT})"
        assert json.loads(fields["KROWL_CONTACT"]) == CONTACT
        assert json.loads(fields["KROWL_DELAY_MIN"]) == "2"
        assert json.loads(fields["CONCURRENT_REQUESTS"]) == 256
        assert not any(secret.encode() in info.block for secret in SECRETS)


def test_warcinfo_has_standard_fields_and_all_settings() -> None:
    """But no setting that may hold a secret or a path."""
    chosen = {name: value for name, value in vars(settings).items() if name.isupper()}
    chosen |= {
        "KROWL_CONTACT": "a\r\nb: c\u2028\u00e9",
        "KROWL_EXCLUDE": SECRETS[0],
        "KROWL_RESOLVE": {"*.test": SECRETS[0]},
        "KROWL_WARC_DIR": SECRETS[0],
        "KROWL_WARC_UPLOAD": f"s3://{SECRETS[2]}/x",
        "KROWL_WARC_UPLOAD_ENDPOINT": f"https://user:{SECRETS[2]}@store.example",
        "KROWL_NODE_ID": SECRETS[2],
        "KROWL_NOTIFY": f"https://hooks.example/{SECRETS[1]}",
        "KROWL_CONSUL": f"http://{SECRETS[2]}:8500",
        **dict.fromkeys(IN_FILES, SECRETS[1]),
        "REDIS_URL": f"redis://:{SECRETS[1]}@{SECRETS[2]}",
        "AWS_SECRET_ACCESS_KEY": SECRETS[1],
        "TELNETCONSOLE_PASSWORD": SECRETS[0],
        "ROBOTSTXT_OBEY": False,
    }
    fields = warcinfo(BaseSettings(chosen), "me@example.org", "agent/1 (+me@example.org)")
    ours = {
        name
        for name, value in chosen.items()
        if name.startswith("KROWL_")
        and not name.startswith(
            (
                *("KROWL_WARC_UPLOAD", "KROWL_CONSUL", "KROWL_NODE_ID"),
                *IN_FILES,
            )
        )
        and name not in {"KROWL_EXCLUDE", "KROWL_RESOLVE", "KROWL_WARC_DIR", "KROWL_WARC_INFO"}
        and value is not None
    }
    assert fields.pop("ip", None) == own_address()
    plain = {"software", "robots", "operator", "http-header-user-agent"}
    scrapys = {name for name in fields if name in chosen} - ours
    assert fields.keys() == plain | ours | scrapys
    assert scrapys == {
        "BOT_NAME",
        "CONCURRENT_REQUESTS",
        "DOWNLOAD_MAXSIZE",
        "DOWNLOAD_TIMEOUT",
        "REDIRECT_MAX_TIMES",
        "RETRY_HTTP_CODES",
        "RETRY_TIMES",
        "URLLENGTH_LIMIT",
    }
    assert {name: fields[name] for name in plain} == {
        "software": f"krowlspider/{__version__}",
        "robots": "ignore",
        "operator": "me@example.org",
        "http-header-user-agent": "agent/1 (+me@example.org)",
    }
    assert {name: json.loads(fields[name]) for name in ours} == {
        name: chosen[name] for name in ours
    }
    text = "".join(fields.values())
    assert not any(secret in text for secret in SECRETS)
    assert re.fullmatch(r"[ -~]*", text)

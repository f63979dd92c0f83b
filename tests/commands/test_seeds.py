"""``scrapy seeds``: published lists become files of seeds, and bad input is told in one line."""

from __future__ import annotations

import gzip
import io
import os
import shlex
import tracemalloc
import zipfile
from typing import TYPE_CHECKING

import pytest

from krowlspider.errors import KrowlError
from krowlspider.programs.program import read_lines
from krowlspider.programs.seeds import Conversion
from krowlspider.urls.seeds import Zone, parse_seed, ranked, seed_lines
from tests.support.crawling import ROOT, scrapy
from tests.support.crawls import page
from tests.support.documented import commands
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb
from tests.support.small_disk import SmallDisk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRANCO = b"1,google.com\r\n2,a.co.uk\r\n3,xn--mnchen-3ya.de\r\n"
MAJESTIC = (
    b"GlobalRank,TldRank,Domain,TLD,RefSubNets,RefIPs,IDN_Domain,IDN_TLD,PrevGlobalRank\n"
    b"1,1,facebook.com,com,502342,2533462,facebook.com,com,1\n"
    b'2,2,"google.com",com,499121,2480293,google.com,com,2\n'
)
# As the CZDS has them: the apex with its servers, DNSSEC, glue, and a name that is no delegation
# of this zone.
ZONE = b"""\
example.\t900\tin\tsoa\tns1.nic.example. admin.nic.example. 7 1800 900 604800 86400
example.\t86400\tin\tns\tns1.nic.example.
example.\t86400\tin\tdnskey\t257 3 8 AwEAAc==
a.example.\t3600\tin\tns\tns1.dns.test.
a.example.\t3600\tin\tns\tns2.dns.test.
a.example.\t3600\tin\tds\t1 8 2 ABCD
B.example.\t3600\tIN\tNS\tns1.b.example.
b.example.\t3600\tin\tns\tns2.b.example.
ns1.b.example.\t3600\tin\ta\t192.0.2.1
; a comment
deep.c.example.\t3600\tin\tns\tns1.dns.test.
xn--4gbrim.example.\t3600\tin\tns\tns1.dns.test.
example.\t900\tin\tsoa\tns1.nic.example. admin.nic.example. 7 1800 900 604800 86400
"""
# A gzip that breaks off long after its first lines.
BROKEN_OFF = gzip.compress(TRANCO * 1000)[:-9]
PLAIN = """\
# ours

example.org
https://www.example.com/news/
example.net/a/
münchen.de # a city
""".encode()
PLAIN_SEEDS = [
    "example.org",
    "https://www.example.com/news/",
    "example.net/a/",
    "xn--mnchen-3ya.de",
]


def zipped(*contents: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, content in enumerate(contents):
            archive.writestr(f"list-{number}.csv", content)
    return file.getvalue()


# Bit 0 of the flags, in the central directory and before the file (APPNOTE.TXT 4.4.4).
ENCRYPTED = (
    zipped(TRANCO)
    .replace(b"PK\3\4\x14\0\0", b"PK\3\4\x14\0\1")
    .replace(b"PK\1\2\x14\3\x14\0\0", b"PK\1\2\x14\3\x14\0\1")
)
# The method, in the same two places (APPNOTE.TXT 4.4.5): 14 is LZMA.
LZMA = (
    zipped(TRANCO)
    .replace(b"PK\x03\x04\x14\0\0\0\x08", b"PK\x03\x04\x14\0\0\0\x0e")
    .replace(b"PK\x01\x02\x14\x03\x14\0\0\0\x08", b"PK\x01\x02\x14\x03\x14\0\0\0\x0e")
)


@pytest.mark.parametrize(
    ("content", "form", "seeds"),
    [
        (TRANCO, "tranco", ["google.com", "a.co.uk", "xn--mnchen-3ya.de"]),
        (MAJESTIC, "majestic", ["facebook.com", "google.com"]),
        (ZONE, "czds", ["a.example", "b.example", "xn--4gbrim.example"]),
        (PLAIN, "plain", PLAIN_SEEDS),
        (b"\xef\xbb\xbf" + TRANCO, "tranco", ["google.com", "a.co.uk", "xn--mnchen-3ya.de"]),
    ],
    ids=["tranco", "majestic", "czds", "plain", "byte order mark"],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zipped])
def test_each_format_is_recognised(
    tmp_path: Path, content: bytes, form: str, seeds: list[str], pack: type[bytes]
) -> None:
    (tmp_path / "list").write_bytes(pack(content))
    done = scrapy("seeds", tmp_path / "list")
    assert done.stdout.decode().splitlines() == seeds
    assert done.stderr.decode().endswith(f" from {tmp_path / 'list'} ({form})\n")


def test_apex_of_an_excerpt_is_its_top_level_domain() -> None:
    conversion = Conversion(Zone().seed, ZONE.splitlines()[3:])
    assert list(conversion.seeds()) == ["a.example", "b.example", "xn--4gbrim.example"]
    assert conversion.bad == 0


def test_lines_are_read_only_as_seeds_are_written() -> None:
    read = 0

    def lines() -> Iterator[bytes]:
        nonlocal read
        for read in range(1, 10_001):
            yield b"%d,host%d.test\n" % (read, read)

    conversion = Conversion(ranked, lines())
    for number, _ in enumerate(conversion.seeds(), 1):
        assert read == number == conversion.good
    assert read == 10_000


def test_a_large_file_is_never_in_memory_at_once(tmp_path: Path) -> None:
    """A line that is too long for a seed is not, either."""
    rows = b"".join(b"%d,%b\n" % (n, b"x" * 300_000) for n in range(10)) + TRANCO
    (tmp_path / "list.zip").write_bytes(zipped(rows))
    tracemalloc.start()
    conversion = Conversion(ranked, read_lines(str(tmp_path / "list.zip"), seed_lines))
    assert sum(1 for _ in conversion.seeds()) == 3
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000 < len(rows)
    assert conversion.bad == 10


def test_first_reads_no_further_than_it_must(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(BROKEN_OFF)
    done = scrapy("seeds", tmp_path / "list", "--first", 200)
    assert len(done.stdout.splitlines()) == 200


def test_bad_lines_are_named_and_counted_and_the_rest_is_converted(tmp_path: Path) -> None:
    bad = b"".join(b"%d,no domain\n" % n for n in range(8))
    done = scrapy("seeds", "-", given=(TRANCO + bad + b"4,b.test").decode())
    assert done.stdout.decode().splitlines()[-2:] == ["xn--mnchen-3ya.de", "b.test"]
    *named, counts = done.stderr.decode().splitlines()
    assert named == [f"krowlspider: line {n} skipped: whitespace inside" for n in range(4, 9)]
    assert counts == "4 seeds from standard input (tranco), 8 bad lines skipped"


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        (b"", [], "list is empty"),
        (b"# nothing\n\n", [], "list is empty"),
        (b"a.test\n\0\n", [], "list is binary"),
        (b"<html>\n<p>Moved\nhome,a.test\n", [], "list is of no known format"),
        (TRANCO, ["--format", "czds"], "list has no seed: 3 bad lines, read as czds"),
        (BROKEN_OFF, [], "list cannot be read: Compressed file ended"),
        (zipped(TRANCO)[:-9], [], "list cannot be read: File is not a zip file"),
        (zipped(TRANCO, TRANCO), [], "list has 2 files"),
        (ENCRYPTED, [], "is encrypted"),
        (LZMA, [], "list is a zip file of an uncommon compression: unpack it first"),
        (TRANCO, ["--first", "0"], "--first 0: give 1 or more"),
        (TRANCO, ["--frist=1"], "--frist is not an option"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else str(value),
)
def test_a_bad_list_is_one_line_and_no_file(
    tmp_path: Path, content: bytes, words: list[str], message: str
) -> None:
    (tmp_path / "list").write_bytes(content)
    (tmp_path / "seeds.txt").write_text("before.test\n")
    output = ["-o", tmp_path / "seeds.txt"]
    errors = scrapy("seeds", tmp_path / "list", *words, *output, code=2).stderr.decode()
    *bad, last = errors.splitlines()
    assert message in last
    assert all(" skipped: " in line for line in bad)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["list", "seeds.txt"]
    assert (tmp_path / "seeds.txt").read_text() == "before.test\n"


def test_a_list_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    errors = scrapy("seeds", tmp_path / "none", code=2).stderr.decode()
    assert errors == f"krowlspider: {tmp_path / 'none'} cannot be read: No such file or directory\n"


def test_a_full_disk_has_its_exit_code_and_keeps_the_file(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(TRANCO)
    disk = SmallDisk(tmp_path / "disk", 64_000)
    try:
        if not disk.mounted:
            pytest.skip("no small file system can be mounted here")
        output = disk.outside / "seeds.txt"
        output.write_text("before.test\n")
        disk.fill()
        errors = scrapy("seeds", tmp_path / "list", "-o", output, code=3).stderr.decode()
        assert errors == f"krowlspider: {output} cannot be written: No space left on device\n"
        assert sorted(path.name for path in disk.outside.iterdir()) == ["ballast", "seeds.txt"]
        assert output.read_text() == "before.test\n"
    finally:
        disk.close()


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(TRANCO)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    scrapy("seeds", tmp_path / "list", "-o", tmp_path / "pipe")
    assert os.read(reader, 100) == b"google.com\na.co.uk\nxn--mnchen-3ya.de\n"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(TRANCO)
    (tmp_path / "link").symlink_to(tmp_path / "seeds.txt")
    scrapy("seeds", tmp_path / "list", "--first", 1, "-o", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "seeds.txt").read_text() == "google.com\n"


def test_a_zip_file_in_a_pipe_is_refused() -> None:
    reader, writer = os.pipe()
    os.write(writer, zipped(TRANCO))
    os.close(writer)
    with pytest.raises(KrowlError, match="cannot be read from a pipe"):
        list(read_lines(f"/dev/fd/{reader}"))
    os.close(reader)


def test_the_documented_commands_make_the_seeds_of_a_crawl(tmp_path: Path) -> None:
    with SimulatedWeb(spec=[page("/", "<title>Hello</title>")]) as web:
        ranked = "".join(f"{rank},{name}.test:{web.port}\n" for rank, name in enumerate("abc", 1))
        given = {"top-1m.csv.zip": zipped(ranked.encode()), "com.txt.gz": gzip.compress(ZONE)}
        for name, content in given.items():
            (tmp_path / name).write_bytes(content)
        documented = commands(ROOT / "docs" / "getting-started.md")
        shown = [each for each in map(shlex.split, documented) if each[1:2] == ["seeds"]]
        assert len(shown) == len(given)
        for words in shown:
            scrapy(*(tmp_path / word if "." in word else word for word in words[1:]))
        com = gzip.decompress((tmp_path / "com-seeds.txt.gz").read_bytes())
        assert com == b"a.example\nb.example\nxn--4gbrim.example\n"
        crawl = SimulatedCrawl(
            tmp_path / "job",
            arguments={"seeds": tmp_path / "seeds.txt"},
            settings={"RETRY_TIMES": 0},
        ).run()
        urls = [item["url"] for item in crawl.items]
        assert sorted(urls) == [f"http://{name}.test:{web.port}/" for name in "abc"]


def test_the_starter_list_is_one_of_hosts() -> None:
    lines = (ROOT / "seeds" / "starter.txt").read_bytes().splitlines()
    assert b"CC0" in b"".join(lines[:6])
    hosts = [line for line in lines if line and not line.startswith(b"#")]
    for host in hosts:
        seed = parse_seed(host)
        assert seed is not None
        assert (seed.url, seed.bare) == (f"https://{host.decode()}/", True)
    # A name and the same with www are one site.
    assert len({host.removeprefix(b"www.") for host in hosts}) == len(hosts)
    assert 200 <= len(hosts) <= 400

"""An import restores an export; bad lines are reported and skipped."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.frontier.admin.export import (
    Imported,
    export_lines,
    import_lines,
    parse_line,
    url_items,
)
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.store.schema import poison_prefix
from krowlspider.frontier.store.store import Store, all_entries, entry_keys
from krowlspider.urls.canonical import host_of
from krowlspider.views import frontier as frontier_text
from tests.frontier.conftest import LIMITS, KeptMemoryStore, World
from tests.frontier.memory import MemoryStore
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable


URLS = ["http://a.test/", "http://a.test/x?b=1&a=2", "https://b.test/%C3%A4"]


def exported(world: World) -> list[dict[str, Any]]:
    return [json.loads(line) for line in export_lines(world.store)]


def imported(world: World, *lines: str) -> tuple[Imported, list[tuple[int, str]]]:
    mistakes: list[tuple[int, str]] = []

    def parse(line: bytes) -> Candidate | None:
        return parse_line(line, lambda entry: world.hasher.key(entry.url), url_max=100)

    encoded = [line.encode() for line in lines]
    result = import_lines(
        world.frontier, world.store, encoded, parse, lambda *mistake: mistakes.append(mistake)
    )
    return result, mistakes


def other_world() -> World:
    store = KeptMemoryStore()
    return World(lambda: store)


def line(url: str, **more: object) -> str:
    return json.dumps({"url": url, **more})


def test_an_import_elsewhere_restores_an_export(
    open_store: Callable[[], Store],
) -> None:
    world = World(open_store)
    entries = [
        Entry(URLS[0], depth=3, redirects=1, retries=2, throttling=3, bare=True),
        Entry(URLS[1], request=b"J{}", via="http://b.test/", path="M"),
        Entry(URLS[2], depth=7, chain=("http://old.test/", "http://b.test/moved")),
    ]
    hosts = ("a.test", "a.test", "b.test")
    world.frontier.add(
        Candidate(host, world.hasher.key(entry.url), entry, priority)
        for host, entry, priority in zip(hosts, entries, (0, -5, 2**31 - 1), strict=True)
    )
    lines = exported(world)
    assert lines[0] == {
        "url": URLS[0],
        "priority": 0,
        "depth": 3,
        "redirects": 1,
        "retries": 2,
        "throttling": 3,
        "bare": True,
        "state": "queued",
    }
    assert lines[1]["request"] == "Snt9"
    assert (lines[1]["via"], lines[1]["hop"]) == ("http://b.test/", "M")
    assert lines[2]["chain"] == ["http://old.test/", "http://b.test/moved"]
    assert [line["priority"] for line in lines] == [0, -5, 2**31 - 1]
    other = other_world()
    result, mistakes = imported(other, *map(json.dumps, lines))
    assert (result, mistakes) == (Imported(3, 0, {}, 0), [])
    assert exported(other) == lines
    assert imported(other, *map(json.dumps, lines))[0] == Imported(0, 3, {}, 0)
    assert exported(other) == lines


def test_urlfrontier_lines_are_url_items_of_its_protocol(
    open_store: Callable[[], Store],
) -> None:
    """By the field names of urlfrontier.proto: its client skips a line with any other."""
    world = World(open_store)
    now = 1_700_000_000.5
    entries = [
        Entry("http://a.test:8080/", depth=3, via="http://b.test/", chain=("http://old.test/",)),
        Entry("http://a.test:8080/form", request=b"J{}"),
        Entry("https://[::1]/due", due=now - 1, retries=1, throttling=2),
        Entry("https://b.test/later", due=now + 60, retries=1),
    ]
    world.frontier.add(Candidate(host_of(entry.url), None, entry) for entry in entries)
    killer = Entry("http://c.test/killer", strikes=3)
    batch = world.store.batch()
    batch.put(poison_prefix("c.test") + bytes(12), killer.encode("c.test"))
    batch.write()

    def info(url: str, key: str, depth: str = "0", **more: list[str]) -> dict[str, Any]:
        metadata = {"depth": [depth], **more}
        values = {name.replace("_", "."): {"values": found} for name, found in metadata.items()}
        return {"url": url, "key": key, "metadata": values, "crawlID": "DEFAULT"}

    path = ["http://b.test/", "http://old.test/"]
    lines = list(url_items(world.store, now))
    assert lines.count(None) == 1
    assert sorted((json.loads(line) for line in lines if line), key=repr) == [
        {"discovered": {"info": info(entries[0].url, "a.test", "3", url_path=path)}},
        {"discovered": {"info": info(entries[2].url, "[::1]", fetch_error_count=["3"])}},
        {"known": {"info": info(killer.url, "c.test")}},
        {
            "known": {
                "info": info(entries[3].url, "b.test", fetch_error_count=["1"]),
                "refetchable_from_date": 1_700_000_061,
            }
        },
    ]


def test_a_line_needs_only_a_url_which_is_normalised(
    open_store: Callable[[], Store],
) -> None:
    world = World(open_store)
    result, _ = imported(world, line("HTTP://A.test:80/x/../y#part"), "", line("http://a.test/y"))
    assert result == Imported(1, 1, {}, 0)
    assert [line["url"] for line in exported(world)] == ["http://a.test/y"]
    assert world.restart().queued == 1
    assert world.fetch() == "http://a.test/y"


def test_a_refused_line_is_counted_and_not_marked_seen() -> None:
    store = KeptMemoryStore()
    world = World(lambda: store, limits=replace(LIMITS, domain_budget=1000))
    result, _ = imported(world, *(line(f"http://a.test/{page}") for page in range(1003)))
    text = "imported 1000, known 0, refused 3 (domain_budget: 3), bad 0"
    assert frontier_text.imported(result) == text
    assert not world.frontier.seen.known("a.test", world.hasher.key("http://a.test/1002"))


@table(
    ("bad", "mistake"),
    [
        ("nonsense", "neither a URL nor a domain: 'nonsense'"),
        ("http://a.test/" + "x" * 100, "more than 100 characters"),
        ('{"url": ', 'not JSON: a line is {"url": "https://..."}, or a seed'),
        ("[" * 100_000, "longer than 2048 characters"),
        ('"http://a.test/"', "Expected `object`"),
        ('{"depth": 1}', "missing required field `url`"),
        ('{"url": 5}', "`$.url`"),
        ('{"url": "ftp://a.test/"}', "not an http or https URL"),
        ('{"url": "http://me:x@a.test/"}', "one with a user name"),
        ('{"url": "http://a.test/\\ud800"}', "not JSON"),
        (line("http://a.test/" + "x" * 100), "more than 100 characters"),
        (line("http://a.test/", depth=-1), "`$.depth`"),
        (line("http://a.test/", depth=True), "`$.depth`"),
        (line("http://a.test/", depth=32_768), "Expected `int` <= 32767 - at `$.depth`"),
        (line("http://a.test/", retries="2"), "`$.retries`"),
        (line("http://a.test/", retries=256), "Expected `int` <= 255 - at `$.retries`"),
        (line("http://a.test/", priority=1.5), "`$.priority`"),
        (line("http://a.test/", priority=2**31), "Expected `int` <= 2147483647"),
        (line("http://a.test/", priorty=1), "unknown field `priorty`"),
        (line("http://a.test/", chain="http://b.test/"), "`$.chain`"),
        (line("http://a.test/", chain=["http://b.test/"] * 256), "length <= 255 - at `$.chain`"),
        (line("http://a.test/", chain=["http://b.test/", 5]), "`$.chain[1]`"),
        (line("http://a.test/", chain=["ftp://b.test/"]), "not an http or https URL"),
        (line("http://a.test/", via="b.test"), "not an http or https URL"),
        (line("http://a.test/", via=5), "`$.via`"),
        (line("http://a.test/", via="http://b.test/" + "x" * 100), "more than 100 characters"),
        (line("http://a.test/", via="http://b.test/", hop="X"), "`$.hop`"),
        (line("http://a.test/", hop=[]), "`$.hop`"),
        (line("http://a.test/", state="done"), "`$.state`"),
        (line("http://a.test/", state=[]), "`$.state`"),
        (line("http://a.test/", bare=1), "`$.bare`"),
        (line("http://a.test/", request=[]), "`$.request`"),
        (line("http://a.test/", request="?"), "Invalid base64 encoded string - at `$.request`"),
    ],
)
def test_a_bad_line_is_reported_and_the_rest_imported(bad: str, mistake: str) -> None:
    world = other_world()
    result, mistakes = imported(world, line(URLS[0]), bad, line(URLS[1]))
    assert (result.imported, result.bad) == (2, 1)
    [(number, complaint)] = mistakes
    assert number == 2
    assert mistake in complaint


def test_bytes_that_are_not_text_are_a_bad_line() -> None:
    for line, fault in ((b'\xff{"url": "x"}\x00', "not UTF-8"), (b'{"url": \xff}', "not JSON")):
        with pytest.raises(ValueError, match=fault):
            parse_line(line, lambda entry: None, url_max=100)


def test_seeds_are_imported_as_those_of_a_file_of_seeds() -> None:
    world = other_world()
    seeds = [
        "# no",
        "",
        "a.test",
        "2,b.test:8080/x",
        "http://c.test/",
        "a.test",
        line("http://a.test/"),
    ]
    result, mistakes = imported(world, "\ufeff" + seeds[2], *seeds)
    assert (result.imported, result.known, result.bad, mistakes) == (4, 2, 0, [])
    found = {each["url"]: each.get("bare", False) for each in exported(world)}
    assert found == {
        "https://a.test/": True,
        "https://b.test:8080/x": True,
        "http://c.test/": False,
        "http://a.test/": False,
    }


def test_the_greatest_counts_are_imported_unchanged() -> None:
    world = other_world()
    most = {"depth": 0x7FFF, "retries": 0xFF, "priority": -(2**31 - 1)}
    assert imported(world, line(URLS[0], **most))[0].imported == 1
    [found] = exported(world)
    assert {name: found[name] for name in most} == most


def test_an_import_of_nothing_but_bad_lines_is_useless() -> None:
    assert imported(other_world(), "x", "y")[0].useless
    assert not imported(other_world(), "x", line(URLS[0]))[0].useless
    assert not imported(other_world(), "")[0].useless


def test_only_an_import_queues_poison_again(
    open_store: Callable[[], Store],
) -> None:
    world = World(open_store)
    world.add(URLS[0], URLS[1])
    [key, _] = list(entry_keys(world.store, "a.test"))
    batch = world.store.batch()
    batch.delete(key)
    batch.put(poison_prefix("a.test") + key[-12:], Entry(URLS[0], strikes=3).encode("a.test"))
    batch.write()
    poison = exported(world)[1]
    assert (poison["url"], poison["state"]) == (URLS[0], "poison")
    assert world.add(URLS[0]) == 0
    result, _ = imported(world, json.dumps(poison), json.dumps(poison))
    assert result == Imported(1, 1, {}, 0)
    assert {(line["url"], line["state"]) for line in exported(world)} == {
        (url, "queued") for url in URLS[:2]
    }
    entries = [entry_of(key, value) for key, value in all_entries(world.store)]
    assert [entry.strikes for entry in entries] == [0, 0]


def test_an_export_reads_one_line_at_a_time() -> None:
    """A frontier may be too large for memory."""
    world = other_world()
    world.add(*(f"http://a.test/{page}" for page in range(100)))
    reads = 0

    class Counting(MemoryStore):
        def items(self, prefix: bytes, after: bytes = b""):  # type: ignore[no-untyped-def]
            nonlocal reads
            for item in world.store.items(prefix, after):
                reads += 1
                yield item

    lines = export_lines(Counting())
    next(lines)
    # The host record, and its first entry.
    assert reads == 2

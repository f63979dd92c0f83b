"""A page that was fetched has a row, wherever its host goes, until it is forgotten."""

from __future__ import annotations

from functools import partial
from math import inf, nan
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from krowlspider.archive.reading import Synced
from krowlspider.frontier.admin.edit import forget_host
from krowlspider.frontier.admin.export import (
    export_lines,
    import_lines,
    line_of,
    page_in,
    page_lines,
    parse_line,
    take_rows,
)
from krowlspider.frontier.admin.repair import rebuild_indexes
from krowlspider.frontier.entry import AGAIN, JSON, UNMARKED, Entry, validators_in
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.moves.chunks import BadChunk, decode_chunk, encode_chunk
from krowlspider.frontier.moves.transfer import forget_now
from krowlspider.frontier.pages.row import SECONDS_MAX, PageRow
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import page_prefix, seen_prefix
from krowlspider.frontier.store.store import Store, put
from krowlspider.job.commits import OpenWarcNote
from krowlspider.recrawl.estimate import Estimate
from krowlspider.recrawl.gone import Absence, PageState
from krowlspider.recrawl.trust import Trust
from krowlspider.recrawl.validators import Meaning
from tests.frontier.conftest import KeptMemoryStore, World
from tests.frontier.moves.hosts import chunks
from tests.frontier.pages.fetching import SHA1, fetch_page, fetched_at, rows
from tests.frontier.pages.made_rows import HOST, ROWS
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable


A = "http://a.test/"
# Of pages: with validators as the row of an answer has them, and a known seed.
EXPORTED = ROWS.map(
    lambda row: replace(
        row,
        etag=row.etag[:1024],
        modified=row.modified[:64],
        listing=b"",
        seed=b"",
        absence=Absence() if row.absence.state is PageState.PRESENT else row.absence,
    )
)


@pytest.fixture
def world(open_store: Callable[[], Store]) -> World:
    return World(open_store)


@pytest.fixture
def other() -> World:
    kept = KeptMemoryStore()
    return World(lambda: kept, node="there")


def again(url: str, request: bytes = JSON + b"{}") -> Candidate:
    """Return a request that is queued although its URL is known."""
    return Candidate("a.test", None, Entry(url, request=request))


def later_row(world: World, url: str) -> bytes:
    """Put a row of a later version into a store, and return it."""
    row = b"\xff" + PageRow(url, 200, 1, 1.0).encode("a.test")[1:]
    assert world.frontier.pages is not None
    put(world.store, world.frontier.pages.key(url), row)
    return row


def test_a_page_that_is_done_has_a_row_after_a_kill(world: World):
    world.add(A)
    fetch_page(world, 1_700_000_000.5, etag=b'"a"', modified=b"soon", status=404)
    world.crash()
    row = PageRow(A, 404, 1_700_000_000, 1_700_000_000.5, changed=1_700_000_000)
    row.stored, row.etag, row.modified, row.payload = row.last, b'"a"', b"soon", SHA1
    assert rows(world) == [row]


@pytest.mark.parametrize(
    ("started", "held"), [(-5.0, 0), (2.0**33, SECONDS_MAX), (inf, SECONDS_MAX), (nan, 0)]
)
def test_a_clock_that_says_nonsense_stops_no_commit(world: World, started: float, held: int):
    world.add(A)
    fetch_page(world, started)
    for status in (200, 304, 503):
        world.frontier.queue([again(A)])
        meaning = Meaning.NOT_MODIFIED if status == 304 else Meaning.ORDINARY
        fetch_page(world, started, status=status, meaning=meaning)
    (row,) = rows(world)
    assert row is not None
    assert (row.last, row.fetches) == (held, 4)


def test_a_page_that_is_not_committed_has_no_row(world: World):
    world.add(A)
    assert world.fetch() == A
    world.crash()
    assert rows(world) == []


def test_a_page_that_is_dropped_keeps_its_row(world: World):
    world.add(A)
    fetch_page(world, 1000.0)
    before = rows(world)
    world.frontier.queue([again(A)])
    lease = world.pop()
    assert lease is not None
    world.frontier.acknowledge(lease, dropped="dns")
    world.commit()
    assert rows(world) == before


@pytest.mark.parametrize("request_", [JSON + b"{}", AGAIN, UNMARKED])
def test_a_second_fetch_counts_in_the_row(world: World, request_: bytes):
    world.add(A)
    fetch_page(world, 1000.0)
    world.frontier.queue([again(A, request_)])
    fetch_page(world, 2000.0)
    world.frontier.queue([again(A, request_)])
    fetch_page(world, 3000.0, payload=b"t" * 20)
    (row,) = rows(world)
    assert row is not None
    assert (row.first, row.changed, row.last, row.stored) == (1000, 3000, 3000.0, 3000.0)
    assert (row.fetches, row.changes, row.unmodified) == (3, 1, 0)


@pytest.mark.parametrize(
    ("texts", "payloads", "changes"),
    [
        ((b"one text", b"one text"), (SHA1, b"t" * 20), 0),
        ((b"one text", b"another."), (SHA1, b"t" * 20), 1),
        # The text is read otherwise by another version.
        ((b"one text", b"another."), (SHA1, SHA1), 0),
        ((b"", b"one text"), (SHA1, b"t" * 20), 1),
        ((b"one text", b""), (SHA1, b"t" * 20), 1),
        ((b"", b"one text"), (SHA1, SHA1), 0),
    ],
)
def test_a_page_changes_by_its_text_if_it_is_known(
    world: World, texts: tuple[bytes, bytes], payloads: tuple[bytes, bytes], changes: int
):
    world.add(A)
    fetch_page(world, 1000.0, text=texts[0], payload=payloads[0])
    world.frontier.queue([again(A)])
    fetch_page(world, 2000.0, text=texts[1], payload=payloads[1])
    world.crash()
    (row,) = rows(world)
    assert row is not None
    assert row.changes == changes
    assert row.changed == (2000 if changes else 1000)
    assert (row.text, row.payload) == texts[1:] + payloads[1:]


GOOD, BAD, NEW = b"g" * 20, b"b" * 20, b"n" * 20


@pytest.mark.parametrize(
    ("answers", "changes", "status"),
    [
        ([(200, GOOD), (503, BAD), (200, GOOD)], 0, 200),
        ([(200, GOOD), (503, BAD), (429, NEW), (500, BAD), (200, GOOD)], 0, 200),
        ([(200, GOOD), (503, BAD), (200, NEW)], 1, 200),
        ([(200, GOOD), (403, BAD)], 0, 403),
        # Of a page that was not seen before, nothing has changed.
        ([(503, BAD), (503, NEW), (200, GOOD)], 0, 200),
        ([(503, BAD), (200, GOOD), (200, NEW)], 1, 200),
        # A page that is missing for one answer was there all the time.
        ([(200, GOOD), (404, BAD), (200, GOOD)], 0, 200),
        ([(200, GOOD), (404, BAD), (200, NEW)], 1, 200),
        ([(200, GOOD), (404, BAD), (404, BAD), (404, BAD)], 1, 404),
        ([(200, GOOD), (410, BAD), (404, NEW), (200, GOOD)], 2, 200),
        ([(200, GOOD), (404, BAD), (503, NEW), (404, BAD)], 1, 404),
        ([(404, BAD), (404, BAD), (200, GOOD)], 1, 200),
        ([(404, BAD), (503, NEW), (404, BAD)], 0, 404),
        ([(200, GOOD), (301, GOOD)], 1, 301),
    ],
)
def test_an_error_that_may_pass_is_no_change(
    world: World, answers: list[tuple[int, bytes]], changes: int, status: int
):
    world.add(A)
    for at, (each, payload) in enumerate(answers):
        if at:
            world.frontier.queue([again(A, AGAIN)])
        fetch_page(world, 1000.0 * (at + 1), status=each, payload=payload, etag=b'"a"')
    (row,) = rows(world)
    assert row is not None
    assert (row.changes, row.status, row.fetches) == (changes, status, len(answers))
    if status == 403:
        # What is known of the page stays, but it is asked in full.
        assert (row.payload, row.stored, row.etag, row.changed) == (GOOD, 1000.0, b"", 1000)


def test_a_page_of_errors_only_has_no_change(world: World, other: World):
    world.add(A)
    fetch_page(world, 1000.0, status=503)
    (line,) = page_lines(world.store)
    assert line is not None
    assert "last_change" not in line
    take_rows(other.frontier, [page_in(line.encode(), 2000, lambda _: b"")])
    assert [row and row.changed for row in rows(other)] == [0]
    world.frontier.queue([again(A, AGAIN)])
    fetch_page(world, 2000.0)
    assert [row and row.changed for row in rows(world)] == [2000]


def test_a_row_keeps_the_text_of_a_body_that_is_fetched_without_it(world: World):
    world.add(A)
    fetch_page(world, 1000.0, text=b"one text")
    for answer in ({}, {"status": 304, "meaning": Meaning.NOT_MODIFIED}):
        world.frontier.queue([again(A)])
        fetch_page(world, 2000.0, **answer)
    (row,) = rows(world)
    assert row is not None
    assert row.text == b"one text"


def test_a_price_is_that_of_the_last_answer(world: World):
    """Also of a page that was free; and it is not there once the page is free again."""
    world.add(A)
    for price, status in (("", 200), ("USD 2", 402), ("", 200)):
        fetch_page(world, 1000.0, price=price, status=status)
        assert [row and row.price for row in rows(world)] == [price]
        world.frontier.queue([again(A, AGAIN)])


def test_a_row_of_a_later_version_stays(world: World):
    world.add(A)
    fetch_page(world, 1000.0)
    row = later_row(world, A)
    world.frontier.queue([again(A)])
    fetch_page(world, 2000.0)
    assert [value for _, value in world.store.items(page_prefix("a.test"))] == [row]
    assert list(page_lines(world.store)) == [None]


def test_rows_go_with_their_host(world: World, other: World):
    world.add(*(f"{A}{page}" for page in range(5)), "http://b.test/")
    for started in range(5):
        fetch_page(world, 1000.0 + started, text=b"one text", status=402, price="USD 0.01")
    before = rows(world, "a.test")
    assert len(before) > 2
    assert {row and row.price for row in before} == {"USD 0.01"}
    world.hand_over("a.test", other)
    assert rows(world, "a.test") == []
    assert rows(other, "a.test") == before


def test_the_later_fetch_of_two_nodes_stays(world: World, other: World):
    for place, started in ((world, 1000.0), (other, 2000.0)):
        place.add(A)
        fetch_page(place, started)
    newer = rows(other)
    world.hand_over("a.test", other)
    assert rows(other) == newer
    other.add("http://b.test/")
    other.hand_over("a.test", world)
    assert rows(world) == newer


def test_a_later_row_goes_with_its_host(world: World, other: World):
    world.add(A)
    fetch_page(world, 1000.0)
    row = later_row(world, A)
    world.hand_over("a.test", other)
    assert [value for _, value in other.store.items(page_prefix("a.test"))] == [row]


@pytest.mark.parametrize(
    ("identity", "row"),
    [
        (b"short", PageRow(A, 200, 1, 1.0).encode("a.test")),
        (bytes(8), PageRow("http://b.test/", 200, 1, 1.0).encode("a.test")),
        (bytes(8), PageRow(f"{A}{'a' * 3000}", 200, 1, 1.0).encode("a.test")),
        (bytes(8), PageRow("", 200, 1, 1.0).encode("a.test")),
        (bytes(8), b""),
        (bytes(8), b"\4\0"),
        (bytes(8), b"\4" + bytes(3)),
        (bytes(8), b"\4" + bytes(50_000)),
    ],
)
def test_a_false_row_of_a_chunk_is_refused(world: World, other: World, identity: bytes, row: bytes):
    world.add(A)
    fetch_page(world, 1000.0)
    (chunk,) = chunks(world)
    chunk.pages = [(identity, row)]
    with pytest.raises(BadChunk):
        other.arrivals.take(decode_chunk(encode_chunk(chunk)))
    assert rows(other) == []


def damage(world: World, url: str) -> bytes:
    """Cut off the row of a page in the store, and return its key."""
    assert world.frontier.pages is not None
    key = world.frontier.pages.key(url)
    row = world.store.get(key)
    assert row is not None
    put(world.store, key, row[:-1])
    return key


def test_a_damaged_row_is_named_and_replaced(world: World, caplog: pytest.LogCaptureFixture):
    world.add(A)
    fetch_page(world, 1000.0, etag=b'"a"')
    key = damage(world, A)
    assert world.frontier.pages is not None
    assert world.frontier.pages.get(A) is None
    (record,) = caplog.records
    assert record.getMessage() == (
        f"Row of a page of a.test is damaged, and counts as missing: identity {key[-8:].hex()}"
        " (a URL of 1 bytes, not 2); once the crawl has stopped, remove it with:"
        " scrapy frontier JOBDIR --repair"
    )
    world.frontier.queue([again(A)])
    fetch_page(world, 2000.0)
    (row,) = rows(world)
    assert row is not None
    assert (row.first, row.last, row.fetches) == (2000, 2000.0, 1)


def test_a_damaged_row_does_not_go_with_its_host(world: World, other: World):
    """The other node would refuse it, and with it the host."""
    world.add(A, f"{A}b")
    fetch_page(world, 1000.0)
    fetch_page(world, 1000.0)
    damage(world, A)
    world.hand_over("a.test", other)
    assert [row and row.url for row in rows(other)] == [f"{A}b"]
    # It is known there, as each page that was fetched.
    assert other.add(A) == 0


def test_a_damaged_row_gives_way_to_one_of_another_node(world: World, other: World):
    for place, started in ((world, 1000.0), (other, 2000.0)):
        place.add(A)
        fetch_page(place, started)
    before = rows(world)
    damage(other, A)
    world.hand_over("a.test", other)
    assert rows(other) == before


def test_a_repair_removes_damaged_rows(world: World):
    world.add(A, f"{A}b", f"{A}c")
    for started in range(3):
        fetch_page(world, 1000.0 + started)
    later, key = later_row(world, f"{A}b"), damage(world, A)
    world.frontier.close()
    store = world.open_store()
    found = rebuild_indexes(store, world.hasher, 2000.0, 5)
    assert found.bad_rows == [
        ("a.test", key[-8:].hex(), "a URL of 1 bytes, not 2"),
    ]
    assert (found.bad_row_count, found.kept["pages"], found.whole) == (1, 2, False)
    assert store.get(key) is None
    assert later in dict(store.items(page_prefix("a.test"))).values()


def test_the_longest_row_of_a_page_is_taken(world: World, other: World):
    """With two URLs and all validators of the greatest size."""
    longest = f"{A}{'a' * (2048 - len(A))}"
    world.add(longest)
    fetch_page(world, 1000.0, etag=b'"' + b"z" * 1022 + b'"', modified=b"m" * 64, price="1" * 40)
    (row,) = rows(world)
    assert row is not None
    row.elsewhere = f"http://b.test/{'b' * (2048 - len('http://b.test/'))}"
    assert world.frontier.pages is not None
    world.frontier.pages.write(row)
    world.hand_over("a.test", other)
    assert rows(other) == [row]


def test_a_forgotten_host_has_no_rows(world: World):
    world.add(A, "http://a.test.b.test/")
    fetch_page(world, 1000.0)
    fetch_page(world, 1000.0)
    forget_now(world.frontier, "a.test")
    assert [row.url for row in rows(world) if row] == ["http://a.test.b.test/"]
    world.frontier.close()
    store = world.open_store()
    forget_host(store, "a.test.b.test", lambda: None)
    assert list(store.keys(schema.PAGES)) == []


TAG, DATE = b'"a"', b"Wed, 01 Jan 2020 00:00:00 GMT"
LATER = b"Wed, 01 Jan 2020 06:00:00 GMT"


@pytest.mark.parametrize(
    ("case", "etag", "modified", "kept"),
    [
        ("304-lm-use-stored", b"", b"", (TAG, DATE)),
        ("304-etag-update-response-Last-Modified", TAG, LATER, (TAG, LATER)),
        ("a weakened tag", b"W/" + TAG, b"", (b"W/" + TAG, DATE)),
    ],
)
def test_a_304_updates_the_validators_of_the_row(
    world: World, case: str, etag: bytes, modified: bytes, kept: tuple[bytes, bytes]
):
    """RFC 9111, section 3.2; cases of cache-tests."""
    world.add(A)
    fetch_page(world, 1000.0, etag=TAG, modified=DATE)
    world.frontier.queue([again(A)])
    fetch_page(
        world, 2000.0, status=304, etag=etag, modified=modified, meaning=Meaning.NOT_MODIFIED
    )
    (row,) = rows(world)
    assert row is not None
    assert (row.etag, row.modified) == kept, case
    assert (row.status, row.payload, row.unmodified) == (200, SHA1, 1)


@pytest.mark.parametrize(
    ("tag", "payload", "is_trusted"),
    [
        (b'"a"', SHA1, True),
        (b'"a"', b"t" * 20, False),
        # The text may be the same.
        (b'W/"a"', b"t" * 20, True),
    ],
)
def test_a_host_whose_tag_stays_with_other_bytes_is_not_trusted(
    world: World, tag: bytes, payload: bytes, is_trusted: bool
):
    assert world.frontier.pages is not None
    world.add(A)
    fetch_page(world, 1000.0, etag=tag)
    world.frontier.queue([again(A)])
    fetch_page(world, 2000.0, etag=tag, payload=payload)
    world.restart()
    assert world.frontier.pages is not None
    assert world.frontier.pages.trust("a.test").tags.is_trusted == is_trusted
    world.add(f"{A}2")
    forget_now(world.frontier, "a.test")
    assert world.frontier.pages.trust("a.test") == Trust()


@pytest.mark.parametrize(
    ("tag", "text", "is_trusted"),
    [(b'"a"', b"one text", True), (b'"a"', b"another.", False), (b'W/"a"', b"another.", False)],
)
def test_a_tag_lies_if_it_stays_while_the_text_changes(
    world: World, tag: bytes, text: bytes, is_trusted: bool
):
    assert world.frontier.pages is not None
    world.add(A)
    fetch_page(world, 1000.0, etag=tag, text=b"one text")
    world.frontier.queue([again(A)])
    fetch_page(world, 2000.0, etag=tag, text=text, payload=b"t" * 20)
    assert world.frontier.pages.trust("a.test").tags.is_trusted == is_trusted


def test_the_rate_of_change_is_estimated_from_the_second_fetch_on(world: World):
    world.add(A)
    fetch_page(world, 1000.0)
    found = []
    for day, payload in enumerate((b"t" * 20, b"t" * 20), 1):
        world.frontier.queue([again(A)])
        fetch_page(world, 1000.0 + day * 86_400, payload=payload)
        (row,) = rows(world)
        assert row is not None
        assert row.estimate is not None
        found.append(Estimate(*row.estimate).mean)
    assert found[0] > found[1]


def filled(made: list[PageRow]) -> World:
    """Return a frontier with rows, each of a page of its own."""
    kept = KeptMemoryStore()
    world = World(lambda: kept)
    world.frontier.queue([Candidate(HOST, b"12345678", Entry(f"http://{HOST}/queued"))])
    assert world.frontier.pages is not None
    for at, row in enumerate(made):
        row.url = f"http://{HOST}/{at}"
        world.frontier.seen.restore(HOST, world.hasher.key(row.url))
        world.frontier.pages.write(row)
    return world


@given(st.lists(ROWS, max_size=3))
def test_a_hand_over_changes_only_the_plan_of_a_row(made: list[PageRow]):
    kept = KeptMemoryStore()
    world, other = filled(made), World(lambda: kept, node="there")
    before = rows(world, HOST)
    world.hand_over(HOST, other)
    for row in before:
        assert row is not None
        if row.is_planned:
            row.due = row.planned = row.tried = 0
            row.weight = 1.0
    assert rows(other, HOST) == before


@given(st.lists(EXPORTED, max_size=3))
def test_an_import_and_its_export_are_the_lines_of_the_export(made: list[PageRow]):
    kept = KeptMemoryStore()
    world, other = filled(made), World(lambda: kept)
    lines = lines_of(world)
    assert take_in(other, lines) == []
    of_archive = ("warc_date", "warc_url", "next_fetch")
    for line in (expected := [*map(msgspec.json.decode, lines)]):
        for name in of_archive:
            line.pop(name, None)
    assert [*map(msgspec.json.decode, lines_of(other))] == expected


def test_a_repair_marks_the_pages_that_have_rows(world: World):
    world.add(A)
    fetch_page(world, 1000.0)
    world.frontier.close()
    store = world.open_store()
    batch = store.batch()
    for key in store.keys(seen_prefix("a.test")):
        batch.delete(key)
    batch.write()
    found = rebuild_indexes(store, world.hasher, 2000.0, 5)
    assert (found.marked, found.kept["pages"]) == (1, 1)
    marked = set(schema.marked_by(store.items(seen_prefix("a.test"))))
    assert marked == {world.hasher.key(A)}


def lines_of(world: World) -> list[bytes]:
    return [line.encode() for line in page_lines(world.store) if line]


def parser(world: World) -> Callable[[bytes], Candidate | PageRow | None]:
    assert world.frontier.pages is not None
    key_of_seed = world.frontier.pages.seeds.key_of
    return partial(parse_line, identify=world.identify, url_max=100, key_of_seed=key_of_seed)


def take_in(world: World, lines: list[bytes]) -> list[str]:
    """Import lines, and return the mistakes."""
    mistakes: list[str] = []
    import_lines(
        world.frontier,
        world.store,
        lines,
        parser(world),
        lambda _, mistake: mistakes.append(mistake),
    )
    return mistakes


def test_an_import_keeps_all_but_the_record_in_another_archive(world: World, other: World):
    world.add(A, "https://b.test/p?q=1")
    fetch_page(world, 1000.25, etag=b'W/"\xe4"', modified=b"Thu, 01 Jan 1970 00:10:00 GMT")
    fetch_page(world, 1001.0, status=301, payload=b"\x01" * 32, text=b"one text", price="USD 1")
    assert [row and row.price for row in rows(world)] == ["", "USD 1"]
    for row, state in zip(rows(world), (PageState.MISSING, PageState.MOVED), strict=True):
        assert row is not None
        assert world.frontier.pages is not None
        world.frontier.pages.write(replace(row, absence=Absence(state, 2, 900.0)))
    assert take_in(other, lines_of(world)) == []
    expected = rows(world)
    for row in expected:
        assert row is not None
        assert row.stored
        row.stored = 0.0
    assert rows(other) == expected
    # The pages are known, and their hosts are handed over.
    assert other.add(A, "https://b.test/p?q=1") == 0
    world.frontier.close()
    third = KeptMemoryStore()
    other.hand_over("a.test", World(lambda: third, node="third"))


def of_seed(world: World, url: str, seed: str) -> Candidate:
    """Return a link of a page that came from a seed."""
    assert world.frontier.pages is not None
    entry = Entry(url, 2, seed=world.frontier.pages.seeds.key_of(seed))
    return Candidate("a.test", world.hasher.key(url), entry)


def seeds_in(lines: list[bytes]) -> dict[str, str]:
    found = map(msgspec.json.decode, lines)
    return {line["url"]: line["seed"] for line in found}


def test_a_row_has_its_seed_after_a_kill_and_an_import(world: World, other: World):
    world.add(A)
    world.frontier.queue([of_seed(world, f"{A}b", "https://seed.test/")])
    fetch_page(world, 1000.0)
    world.crash()
    world.clocks.pass_(60)
    fetch_page(world, 2000.0)
    lines = lines_of(world)
    assert seeds_in(lines) == {A: A, f"{A}b": "https://seed.test/"}
    take_in(other, lines)
    assert seeds_in(lines_of(other)) == seeds_in(lines)


def test_a_fetch_for_another_seed_changes_no_row(world: World):
    world.frontier.queue([of_seed(world, A, "https://seed.test/")])
    fetch_page(world, 1000.0)
    world.frontier.queue([again(A, AGAIN)])
    fetch_page(world, 2000.0)
    assert seeds_in(lines_of(world)) == {A: "https://seed.test/"}


def test_seeds_go_with_rows_and_entries_of_a_host(world: World, other: World):
    links = [of_seed(world, f"{A}{at}", f"https://seed{at}.test/") for at in range(3)]
    world.frontier.queue(links)
    fetch_page(world, 1000.0)
    world.hand_over("a.test", other)
    fetch_page(other, 2000.0)
    assert seeds_in(lines_of(other)) == {
        f"{A}0": "https://seed0.test/",
        f"{A}1": "https://seed1.test/",
    }
    exported = [msgspec.json.decode(line) for line in export_lines(other.store)]
    assert [line["seed"] for line in exported] == ["https://seed2.test/"]


def test_a_false_name_of_a_seed_in_a_chunk_is_refused(world: World, other: World):
    world.frontier.queue([of_seed(world, A, "https://seed.test/")])
    (chunk,) = chunks(world)
    chunk.seed_names = ["https://Seed.test/"]
    with pytest.raises(BadChunk, match="of a seed"):
        other.arrivals.take(decode_chunk(encode_chunk(chunk)))


def test_a_row_of_a_url_that_is_queued_is_left_out(world: World, other: World):
    """Else a pass would ask its page twice."""
    world.add(A, f"{A}b")
    fetch_page(world, 1000.0)
    fetch_page(world, 2000.0)
    other.add(A)
    for known in (1, 1):
        result = import_lines(
            other.frontier, other.store, lines_of(world), parser(other), lambda *_: None
        )
        assert (result.pages, result.known) == (1, known)
    assert [row.url for row in rows(other) if row] == [f"{A}b"]


@pytest.mark.parametrize(
    "change",
    [
        {"url": "http://A.test/"},
        {"url": f"{A}{'a' * 200}"},
        {"seed": "http://B.test/"},
        {"status": 1000},
        {"payload_digest": "sha1:x"},
        {"text_digest": "12"},
        {"price": "USD\x1b"},
        {"price": "1" * 41},
        {"first_fetch": "1901-01-01T00:00:00Z"},
        {"etag": "a" * 1025},
        {"etag": "\u20ac"},
        {"fetches": -1},
        {"what": 1},
        {"absence": {"state": "present", "answers": 1, "since": "2026-01-01T00:00:00Z"}},
        {"absence": {"state": "moved", "answers": 256, "since": "2026-01-01T00:00:00Z"}},
    ],
)
def test_a_bad_line_is_named_and_takes_nothing_in(world: World, change: dict[str, object]):
    world.add(A)
    fetch_page(world, 1000.0)
    line = msgspec.json.decode(lines_of(world)[0])
    before = dict(world.store.items(b"P"))
    assert len(take_in(world, [msgspec.json.encode({**line, **change})])) == 1
    assert dict(world.store.items(b"P")) == before


def test_a_running_crawl_names_rows_as_what_they_are(world: World):
    """It takes entries and seeds: `line_of` reads its lines."""
    world.add(A)
    fetch_page(world, 1000.0)
    with pytest.raises(ValueError, match="the row of a page"):
        line_of(lines_of(world)[0], 100)


def test_lines_are_chosen_by_host_status_and_time(world: World):
    world.add(A, "http://b.test/")
    fetch_page(world, 1000.0)
    fetch_page(world, 2000.0, status=404)
    urls = [row.url for row in rows(world) if row]

    def chosen(**by: object) -> list[str]:
        found = page_lines(world.store, **by)  # type: ignore[arg-type]
        return [msgspec.json.decode(line)["url"] for line in found if line]

    assert chosen() == urls
    assert chosen(host="a.test") == [A]
    assert chosen(status=404) == ["http://b.test/"]
    assert chosen(since=2000.0) == ["http://b.test/"]


@table(
    ("headers", "kept", "left"),
    [
        ([(b"ETag", b'"a"'), (b"Last-Modified", b"soon")], (b'"a"', b"soon"), []),
        ([(b"etag", b'W/"\xff"')], (b'W/"\xff"', b""), []),
        ([(b"Etag", b"a")], (b"", b""), ["etag"]),
        ([(b"Etag", b'"a')], (b"", b""), ["etag"]),
        ([(b"Etag", b'"a b"')], (b"", b""), ["etag"]),
        ([(b"Etag", b'w/"a"')], (b"", b""), ["etag"]),
        ([(b"Etag", b'"\x01"')], (b"", b""), ["etag"]),
        ([(b"Etag", b'"' + b"a" * 1023 + b'"')], (b"", b""), ["etag"]),
        ([(b"Etag", b'"a"'), (b"ETAG", b'"b"')], (b"", b""), ["etag"]),
        ([(b"Last-Modified", b"\xff")], (b"", b""), ["modified"]),
        ([(b"Last-Modified", b"a" * 65)], (b"", b""), ["modified"]),
        ([(b"Etag", b"")], (b"", b""), []),
    ],
)
def test_a_validator_is_kept_as_sent_or_counted(
    headers: list[tuple[bytes, bytes]], kept: tuple[bytes, bytes], left: list[str]
):
    counted: list[str] = []
    assert validators_in(headers, counted.append) == kept
    assert counted == left


def test_a_page_whose_record_is_lost_loses_its_row(world: World):
    world.add(A, "http://b.test/")
    note = OpenWarcNote(world.store)
    for _ in range(2):
        lease = world.pop()
        assert lease is not None
        lease.fetched = fetched_at(1000.0, lease.entry.url)
        world.frontier.schedule.release(lease.host, 0.25)
        world.frontier.acknowledge(lease)
    commit = world.frontier.begin_commit()
    note.put(commit, Synced("a.warc.gz", 10, 2))
    commit.write()
    world.frontier.end_commit(commit)
    assert len(rows(world)) == 2
    assert note.queue_again(world.frontier, lambda url: url == A) == 1
    assert [row.url for row in rows(world) if row] == ["http://b.test/"]

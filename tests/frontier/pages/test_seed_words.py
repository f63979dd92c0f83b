"""The words of seeds: limits at intake and pop, counts over kills, and other nodes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pytest

from krowlspider.frontier import seed_words
from krowlspider.frontier.admin.export import export_lines, import_lines, page_lines, parse_line
from krowlspider.frontier.entry import AGAIN, AWAITED, REQUISITE, Entry
from krowlspider.frontier.entry_queues import Candidate, LastAnswer
from krowlspider.frontier.moves.chunks import BadChunk, decode_chunk, encode_chunk
from krowlspider.frontier.pages.seed_names import keys_of_seeds
from krowlspider.frontier.seed_limits import left_out_reader
from krowlspider.frontier.seed_words import SeedFetches, fetched_from, read_words
from krowlspider.frontier.store.store import put_owner
from krowlspider.urls.seeds import SeedWords
from tests.frontier.conftest import KeptMemoryStore, World
from tests.frontier.pages.fetching import fetched_at

if TYPE_CHECKING:
    from krowlspider.frontier.seed_words import WordedSeeds

SEED = "https://seed.test/"


@pytest.fixture
def other() -> World:
    kept = KeptMemoryStore()
    return World(lambda: kept, node="there")


def words_in(world: World) -> WordedSeeds:
    names = world.frontier.seed_names
    assert names is not None
    return names.begin_words()


def given(world: World, url: str = SEED, **words: object) -> bytes:
    """Give a seed words, and return its key."""
    assert world.frontier.seed_names is not None
    put_owner(world.store, 1, "")
    words_in(world).give([(url, SeedWords(**words))])  # type: ignore[arg-type]
    return world.frontier.seed_names.key_of(url)


def end(world: World, entry: Entry, started: float, dropped: str | None = None) -> None:
    """Queue an entry, take it, and acknowledge it with an answer of 100 bytes."""
    host = entry.url.split("/")[2]
    world.frontier.queue([Candidate(host, None, entry)])
    world.clocks.pass_(60)
    lease = world.pop()
    assert lease is not None
    if dropped is None:
        words_in(world).take(lease.entry)
        lease.fetched = fetched_at(started, lease.entry.url)
        lease.answer = LastAnswer.of(200, b"text/html", None, 100, 0.1)
    world.frontier.schedule.release(lease.host, 0.25)
    world.frontier.acknowledge(lease, dropped)


def fetched(world: World, key: bytes) -> SeedFetches:
    return fetched_from([world.store], key)


def test_no_words_are_no_cost(world: World) -> None:
    """A frontier of plain seeds has no table of words, after a restart neither."""
    world.add(SEED, "https://a.test/")
    world.fetch()
    world.commit()
    world.restart()
    assert world.frontier.seed_names is not None
    assert world.frontier.seed_names.words is None


def test_counts_are_those_of_acknowledged_pages_after_a_kill(world: World) -> None:
    key = given(world, max_pages=3)
    end(world, Entry(SEED), 1000.0)
    end(world, Entry("https://a.test/1", 1, seed=key), 900.0)
    world.commit()
    end(world, Entry("https://a.test/2", 1, seed=key), 2000.0)
    assert words_in(world).refusal(Entry("https://a.test/3", 1, seed=key)) == "seed_pages"
    world.crash()
    assert fetched(world, key) == SeedFetches(2, 200, 900.0, 1000.0)
    assert words_in(world).refusal(Entry("https://a.test/3", 1, seed=key)) == ""
    assert words_in(world).refuse(key, 1, [None, "scope"]) == [None, "scope"]


def test_files_and_later_fetches_are_no_pages(world: World) -> None:
    key = given(world)
    requisite = REQUISITE + b"\0\0"
    end(world, Entry("https://a.test/1", 1, seed=key), 1000.0)
    end(world, Entry("https://a.test/r", 1, request=requisite, seed=key), 1500.0)
    end(world, Entry("https://a.test/1", 1, request=AGAIN, seed=key), 2000.0)
    end(world, Entry("https://a.test/2", 1, seed=key), 3000.0, dropped="dns")
    world.commit()
    assert fetched(world, key) == SeedFetches(1, 100, 1000.0, 2000.0)


def test_drops_are_counted_for_the_seed(world: World) -> None:
    key = given(world, depth=1, max_pages=1)
    words = words_in(world)
    assert words.refuse(key, 2, [None, "scope", None]) == ["seed_depth", "scope", "seed_depth"]
    end(world, Entry("https://a.test/deep", 2, seed=key), 0.0, dropped="seed_depth")
    end(world, Entry("https://a.test/1", 1, seed=key), 1000.0)
    assert words.refuse(key, 1, [None]) == ["seed_pages"]
    world.commit()
    world.crash()
    found = fetched(world, key)
    assert found.left_out == {"depth": 3, "max_pages": 1}


def test_urls_that_limits_leave_out_survive_a_kill(world: World) -> None:
    """Those that were committed, of seeds without words too; other nodes count their own."""
    names = world.frontier.seed_names
    assert names is not None
    key, other = names.key_of(SEED), names.key_of("https://other.test/")
    assert left_out_reader([world.store]) is None
    names.limits.add(key, ["max_pages", None, "scope", "max_pages"])
    names.limits.add(b"", ["max_pages"])
    world.frontier.queue([Candidate("a.test", None, Entry("https://a.test/1", 1, seed=key))])
    lease = world.pop()
    assert lease is not None
    world.frontier.schedule.release(lease.host, 0.25)
    world.frontier.acknowledge(lease, "max_bytes")
    world.commit()
    world.crash()
    names = world.frontier.seed_names
    assert names is not None
    names.limits.add(key, ["max_pages"])
    left_out = left_out_reader([world.store, world.store])
    assert left_out is not None
    assert left_out(key) == {"max_pages": 4, "max_bytes": 2}
    assert not left_out(other)
    world.commit()
    left_out = left_out_reader([world.store])
    assert left_out is not None
    assert left_out(key) == {"max_pages": 3, "max_bytes": 1}


def test_a_page_waits_for_those_in_flight(world: World) -> None:
    """What needs no place is never held back: a page in flight may wait for it."""
    key = given(world, max_pages=1)
    words = words_in(world)
    first, page = (Entry(f"https://a.test/{n}", 1, seed=key) for n in range(2))
    words.take(first)
    assert words.refusal(page) is None
    for free in (REQUISITE + b"\0\0", AWAITED + b"1", AGAIN):
        assert words.refusal(Entry("https://a.test/r", 1, request=free, seed=key)) == ""
    assert words.refusal(Entry("https://b.test/")) == ""
    words.give_back(first)
    assert words.refusal(page) == ""


def test_figures_of_seeds_in_use_are_not_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the others, none stays in memory beyond a bound."""
    monkeypatch.setattr(seed_words, "_KEPT", 4)
    keys = [given(world, f"https://seed{n}.test/", max_pages=2) for n in range(20)]
    words = words_in(world)
    end(world, Entry("https://a.test/0", 1, seed=keys[0]), 1000.0)
    words.take(Entry("https://a.test/1", 1, seed=keys[1]))
    for _ in range(3):
        for key in keys:
            assert words.of(key) is not None
    assert len(words._known) <= 8 + 2
    assert words.of(keys[0]).fetched.pages == 1  # type: ignore[union-attr]
    assert words.of(keys[1]).taken == 1  # type: ignore[union-attr]


def test_words_of_a_person_win_over_those_of_a_node(world: World) -> None:
    words = words_in(world)
    words.learn(SEED, SeedWords(tag="far"))
    words.learn(SEED, SeedWords(tag="later"))
    key = keys(world)(SEED)
    assert read_words(world.store, key) == SeedWords(tag="later")
    words.give([(SEED, SeedWords(tag="here")), ("https://plain.test/", None)])
    words.learn(SEED, SeedWords(tag="far"))
    world.restart()
    words_in(world).learn(SEED, SeedWords(tag="far"))
    assert read_words(world.store, key) == SeedWords(tag="here")
    assert read_words(world.store, keys(world)("https://plain.test/")) is None
    words_in(world).give([(SEED, None)])
    assert read_words(world.store, key) == SeedWords()


def keys(world: World):
    put_owner(world.store, 1, "")
    return keys_of_seeds(world.store)


def test_words_go_with_a_host(world: World, other: World) -> None:
    """Those of seeds that are queued there, and of seeds whose pages are. Counts stay."""
    key = given(world, tag="news", depth=2)
    given(world, "https://a.test/", max_pages=7)
    given(world, "https://b.test/", tag="away")
    world.add("https://a.test/")
    world.frontier.queue([Candidate("a.test", None, Entry("https://a.test/1", 1, seed=key))])
    world.hand_over("a.test", other)
    found = {words for _, words in seed_words.worded(other.store)}
    assert found == {SeedWords(tag="news", depth=2), SeedWords(max_pages=7)}
    assert words_in(other).refusal(Entry("https://c.test/", 3, seed=key)) == "seed_depth"


def test_bad_words_in_a_chunk_are_refused(world: World, other: World) -> None:
    world.frontier.queue([Candidate("a.test", None, Entry("https://a.test/1"))])
    chunk = world.departures.begin("a.test").chunk(0)
    assert chunk is not None
    chunk.seed_names = [f'{SEED}\t{{"depth": -1}}']
    with pytest.raises(BadChunk, match="depth is -1"):
        other.arrivals.take(decode_chunk(encode_chunk(chunk)))


def test_words_are_exported_and_imported(world: World, other: World) -> None:
    """Rows of pages have the tag alone; a seed with words keeps its own."""
    key = given(world, tag="news", depth=2)
    end(world, Entry(SEED), 1000.0)
    world.commit()
    world.frontier.queue(
        [
            Candidate("a.test", None, Entry("https://a.test/1", 1, seed=key)),
            Candidate("b.test", None, Entry("https://b.test/", 0)),
        ]
    )
    queued, pages = list(export_lines(world.store)), [*filter(None, page_lines(world.store))]
    said = [msgspec.json.decode(line).get("words") for line in queued]
    assert said == [{"tag": "news", "depth": 2}, None]
    assert [msgspec.json.decode(line)["tag"] for line in pages] == ["news"]
    for lines, expected in ((pages, {"tag": "news"}), (queued, {"tag": "news", "depth": 2})):
        assert take_in(other, [line.encode() for line in lines]) == []
        assert [words for _, words in seed_words.worded(other.store)] == [SeedWords(**expected)]
    assert take_in(other, [line.encode() for line in pages]) == []
    assert read_words(other.store, keys(other)(SEED)) == SeedWords("news", 2)


def test_imported_words_are_checked(world: World) -> None:
    lines = [
        b'https://a.test/\t{"tag": "x"}',
        b'https://b.test/\t{"tag": 1}',
        b'{"url": "https://c.test/", "words": {"tags": "x"}}',
        b'{"url": "https://d.test/", "words": {"max_pages": 3}}',
        b'{"url": "https://e.test/", "words": 3}',
    ]
    mistakes = take_in(world, lines)
    assert [text.partition(":")[0] for text in mistakes] == [
        "tag is 1",
        "unknown word 'tags'",
        "Expected `object`, got `int` - at `$.words`",
    ]
    words = {words for _, words in seed_words.worded(world.store)}
    assert words == {SeedWords("x"), SeedWords(max_pages=3)}
    assert world.frontier.queued == 2


def take_in(world: World, lines: list[bytes]) -> list[str]:
    """Import lines, and return the mistakes."""
    names = world.frontier.seed_names
    assert names is not None
    mistakes: list[str] = []
    parse = partial(
        parse_line,
        identify=world.identify,
        url_max=100,
        key_of_seed=names.key_of,
        give_words=names.give_words,
    )
    import_lines(
        world.frontier, world.store, lines, parse, lambda _, mistake: mistakes.append(mistake)
    )
    return mistakes

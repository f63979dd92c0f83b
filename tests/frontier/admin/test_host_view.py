"""The view of one host names the reason why it is not being fetched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from krowlspider.errors import duration
from krowlspider.frontier.admin.edit import UnknownHostError
from krowlspider.frontier.admin.view import HostView, view_host
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.header_terms import terms_of
from krowlspider.frontier.hosts.host import Health, Host
from krowlspider.frontier.hosts.host_record import encode_host
from krowlspider.frontier.hosts.table import SchedulingState
from krowlspider.frontier.moves.transfer import forget_now
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import poison_prefix
from krowlspider.frontier.store.store import put
from krowlspider.politeness.delay import DelayPolicy, HostRate, SiteDelays
from krowlspider.politeness.robots import RobotsRecord, Ruling
from krowlspider.urls.page import headers
from krowlspider.urls.robots_groups import TERMS_BYTES, terms_in
from krowlspider.views.frontier import one_host
from tests.frontier.conftest import RULE, World
from tests.frontier.memory import MemoryStore
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Store

NOW = 1_700_000_000.0


def seen(
    host: Host, *entries: Entry, poison: tuple[Entry, ...] = (), rule: DelayPolicy = RULE
) -> HostView:
    """Return the view of a host with these entries."""
    store = MemoryStore()
    batch = store.batch()
    prefix = schema.host_key(host.name)
    for sequence, entry in enumerate(entries):
        batch.put(schema.queue_key(prefix, 0, sequence), entry.encode(host.name))
    for sequence, entry in enumerate(poison):
        key = schema.queue_key(poison_prefix(host.name), 0, sequence)
        batch.put(key, entry.encode(host.name))
    host.queue.queued = len(entries)
    batch.put(schema.host_key(host.name), encode_host(host))
    batch.write()
    return view_host(store, host.name, rule, NOW, most=10)


def waiting(seconds: float = 0.0, **rate: float) -> Host:
    return Host("a.test", rate=HostRate(**rate), due=NOW + seconds)  # type: ignore[arg-type]


PAGE = Entry("http://a.test/")
LATER = structs.replace(PAGE, retries=1, due=NOW + 20)
LATEST = structs.replace(PAGE, throttling=2, due=NOW + 30)


@table(
    ("host", "entries", "why"),
    [
        (waiting(), [], "Nothing of it is queued."),
        (waiting(), [PAGE], "It is due: it will be fetched with the next start."),
        (waiting(-9), [PAGE], "It is due: it will be fetched with the next start."),
        (waiting(3, ema=2.0), [PAGE], "It is due in 3.0 s, because of its delay."),
        (
            waiting(3, ema=0.1, floor=5.0),
            [PAGE],
            "It is due in 3.0 s, because of the crawl-delay of its robots.txt.",
        ),
        (
            waiting(500, ema=0.1, throttling=1),
            [PAGE],
            "It is due in 8 min 20 s, because of the Retry-After of an answer 429 or 503.",
        ),
        (
            waiting(1, ema=1.0, throttling=2),
            [PAGE],
            "It is due in 1.0 s, because of its delay, doubled 2 times after answers 429 or 503.",
        ),
        (
            waiting(8, errors=4),
            [PAGE],
            "It is due in 8.0 s, because of the backoff after 4 errors in a row.",
        ),
        (waiting(1), [LATEST, LATER], "All its queued URLs are retries, the first due in 20.0 s."),
        (waiting(), [LATER, PAGE], "It is due: it will be fetched with the next start."),
        (waiting(25, ema=9.0), [LATER], "It is due in 25.0 s, because of its delay."),
    ],
)
def test_why_a_host_is_not_being_fetched(host: Host, entries: list[Entry], why: str) -> None:
    assert seen(host, *entries).why == why


@pytest.mark.parametrize(("name", "answers"), [("a.test", "429 or 503"), ("a.test:1965", "44")])
def test_why_names_the_statuses_of_a_gemini_server(name: str, answers: str) -> None:
    for host in (waiting(500, ema=0.1, throttling=1), waiting(1, ema=1.0, throttling=2)):
        host.name = name
        assert seen(host, PAGE).why.endswith(f"{answers}.")


def test_why_names_the_sheet_that_gives_the_delay() -> None:
    rule = SiteDelays.over(RULE, lambda _: 30.0, 30.0)
    assert seen(waiting(25, ema=0.1), PAGE, rule=rule).why == (
        "It is due in 25.0 s, because of its least delay of 30 s, which a sheet gives."
    )


def test_why_names_the_next_try_of_a_deferred_host() -> None:
    host = waiting()
    host.set_health(Health.DEFERRED)
    host.state = SchedulingState.DEFERRED
    view = seen(host, PAGE)
    assert view.state == "deferred"
    assert view.why == (
        "It is deferred because its robots.txt cannot be fetched; that is tried again at the next"
        " start and every hour."
    )


def test_why_names_errors_and_hours_of_a_host_deferred_for_a_day() -> None:
    host = waiting(9000, errors=10)
    host.set_health(Health.DEFERRED)
    assert seen(host, PAGE).why == (
        "It is deferred after 10 errors in a row; it is tried again in 2 h 30 min, or at a start"
        " after that."
    )
    host.rate.has_no_name = True
    assert seen(host, PAGE).why == (
        "It is deferred because the DNS does not know its name; it is tried again in 2 h 30 min, or"
        " at a start after that."
    )
    host.rate.has_no_name = False
    assert seen(host).why == "Nothing of it is queued."
    host.rate.errors = 9
    assert seen(host, PAGE).why.startswith(
        "It is deferred because its robots.txt cannot be fetched"
    )


def test_why_names_errors_and_minutes_of_a_resting_host() -> None:
    host = waiting(90, errors=5)
    host.ready = host.due
    host.set_health(Health.DEFERRED)
    assert seen(host, PAGE).why == (
        "It is deferred after 5 errors in a row; it is tried again in 1 min 30 s, or at a start"
        " after that."
    )


@pytest.mark.parametrize("entries", [[], [PAGE]])
def test_why_names_the_delay_that_a_retired_host_asks_for(entries: list[Entry]) -> None:
    host = waiting(floor=500.5)
    host.set_health(Health.RETIRED)
    assert seen(host, *entries).why == (
        "It is retired: its robots.txt asks for 500.5 s between two requests,"
        " and KROWL_CRAWL_DELAY_MAX is 300."
    )


def test_why_mentions_pages_that_are_set_aside() -> None:
    bad = structs.replace(PAGE, strikes=3)
    assert seen(waiting(), poison=(bad,)).why == (
        "Nothing of it is queued. 1 page is set aside: it killed the process three times."
    )
    assert " 2 pages are set aside: each killed" in seen(waiting(), PAGE, poison=(bad, bad)).why


def test_the_first_entries_are_shown_and_all_are_counted() -> None:
    entries = [structs.replace(PAGE, url=f"http://a.test/{at}", depth=at) for at in range(12)]
    entries[0] = structs.replace(LATER, strikes=2, throttling=3)
    bad = structs.replace(PAGE, url="http://a.test/bad", strikes=3)
    view = seen(waiting(2), *entries, poison=(bad,))
    assert (view.host.queued, view.retries, len(view.queue)) == (12, 1, 10)
    first = view.queue[0]
    assert (first.tries, first.strikes, first.due_in) == (4, 2, 20.0)
    assert (view.queue[9].url, view.queue[9].depth, view.queue[9].due_in) == (
        "http://a.test/9",
        9,
        0.0,
    )
    assert view.poisoned == 1
    assert (view.poison[0].url, view.poison[0].strikes) == (bad.url, 3)


def test_due_in_counts_the_host_and_its_retries() -> None:
    assert seen(waiting(3), PAGE).host.due_in == 3.0
    assert seen(waiting(3), LATER).host.due_in == 20.0
    assert seen(waiting(25), LATER).host.due_in == 25.0


def test_the_rate_of_a_host_is_shown_in_figures_and_in_words() -> None:
    """The delay is five times the latency, doubled three times; robots.txt asks for less."""
    view = seen(waiting(9, ema=0.3, floor=0.75, throttling=3, errors=1), PAGE)
    assert (view.host.delay, view.crawl_delay) == (12.0, 0.75)
    assert (view.throttling, view.host.errors) == (3, 1)
    lines = one_host(view).splitlines()
    assert "delay    12.00 s (its robots.txt asks for 0.75 s)" in lines
    assert "backoff  1 error in a row, slowed down 3 times" in lines
    assert "due in   9.0 s" in lines


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (3599.6, "1 h 0 min"),
        (101_839, "28 h 17 min"),
    ],
)
def test_durations_have_two_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_host_with_one_error_is_described_in_the_singular() -> None:
    host = waiting(90, errors=1, throttling=1)
    host.ready = host.due
    host.set_health(Health.DEFERRED)
    view = seen(host, PAGE)
    assert view.why.startswith("It is deferred after 1 error in a row;")
    assert "backoff  1 error in a row, slowed down 1 time" in one_host(view).splitlines()


def test_an_unknown_rate_shows_the_least_delay() -> None:
    view = seen(waiting(), PAGE)
    assert (view.host.delay, view.crawl_delay, view.throttling, view.host.errors) == (
        0.25,
        0.0,
        0,
        0,
    )
    lines = one_host(view).splitlines()
    assert "delay    0.25 s" in lines
    assert "backoff  0 errors in a row, slowed down 0 times" in lines


def test_its_robots_txt_is_shown_for_http_and_https(open_store: Callable[[], Store]) -> None:
    world = World(open_store)
    world.add("http://a.test/", "http://b.test/")
    record = RobotsRecord(Ruling.RULES.value, NOW, NOW + 60, 200, b"User-agent: *\n")
    world.put_robots("http://a.test", record.encode())
    world.put_robots("https://a.test", replace(record, status=203).encode())
    view = view_host(world.store, "a.test", RULE, NOW, most=10)
    assert [(known.authority, known.status) for known in view.robots] == [
        ("http://a.test", 200),
        ("https://a.test", 203),
    ]
    assert (view.robots[0].ruling, view.robots[0].expires) == ("rules", NOW + 60)
    assert view_host(world.store, "b.test", RULE, NOW, most=10).robots == []


TERMS = b"""\
User-agent: *
Content-Signal: search=yes, ai-train=no # why
License: https://a.test/rsl.xml
Allow: /
User-agent: OtherBot
User-agent: Third
Content-Usage: /news train-ai=n
Disallow: /
Licence-key: \x1b[31m
Content-Signal: \x1b[31msearch=no
"""


def test_its_terms_and_prices_are_shown(open_store: Callable[[], Store]) -> None:
    """As robots.txt has them, each with the user agents that it is for."""
    world = World(open_store)
    world.add("http://a.test/", "http://b.test/")
    record = RobotsRecord(Ruling.RULES.value, NOW, NOW + 60, 200, TERMS)
    world.put_robots("http://a.test", record.encode())
    # An error page is no robots.txt.
    refused = RobotsRecord(Ruling.ALLOW_ALL.value, NOW, NOW + 60, 404, TERMS)
    world.put_robots("https://a.test", refused.encode())
    put(world.store, schema.PRICES, b'{"a.test": ["USD 0.01", 7]}')
    view = view_host(world.store, "a.test", RULE, NOW, most=10)
    terms = [
        "Content-Signal: search=yes, ai-train=no (for *)",
        "License: https://a.test/rsl.xml (for *)",
        "Content-Usage: /news train-ai=n (for otherbot, third)",
        "Content-Signal: [31msearch=no (for otherbot, third)",
    ]
    assert [known.terms for known in view.robots] == [terms, []]
    lines = one_host(view).splitlines()
    assert [line for line in lines if line.startswith("terms")] == [f"terms    {t}" for t in terms]
    assert "price    USD 0.01 (7 answers 402, which count as errors)" in lines
    other = view_host(world.store, "b.test", RULE, NOW, most=10)
    assert not [
        line for line in one_host(other).splitlines() if line.startswith(("terms ", "price "))
    ]


def test_terms_in_headers_are_kept_until_the_host_is_forgotten(
    open_store: Callable[[], Store],
) -> None:
    """The first ten different ones, each with its first URL."""
    world = World(open_store)
    world.add("http://a.test/", "http://b.test/")
    kept = world.frontier.header_terms
    kept.note("a.test", ["Content-Usage: train-ai=n"], "http://a.test/1")
    world.commit()
    world.restart()
    kept = world.frontier.header_terms
    kept.note("a.test", ["Content-Usage: train-ai=n"], "http://a.test/2")
    for number in range(20):
        kept.note("a.test", [f"Link: </{number}>"], "http://a.test/" + "3" * 1000)
    world.commit()
    view = view_host(world.store, "a.test", RULE, NOW, most=10)
    assert view.terms[0] == "Content-Usage: train-ai=n (by a header of http://a.test/1)"
    assert len(view.terms) == 10
    assert max(map(len, view.terms)) < 350
    assert f"terms    {view.terms[0]}" in one_host(view).splitlines()
    assert view_host(world.store, "b.test", RULE, NOW, most=10).terms == []
    forget_now(world.frontier, "a.test")
    assert terms_of(world.store, "a.test") == []


@pytest.mark.parametrize(
    ("name", "values", "terms"),
    [
        (
            b"Content-Usage",
            [b"train-ai=n", b"search=y\x1b"],
            ["Content-Usage: train-ai=n", "Content-Usage: search=y"],
        ),
        (
            b"Link",
            [b'<https://a.test/l>; rel="License"; type="application/rsl+xml", </b>; rel=next'],
            ['Link: <https://a.test/l>; rel="license"; type="application/rsl+xml"'],
        ),
        (b"Link", [b"</license>; rel=next"], []),
        (b"Link", [b"<" + b"a" * 1000 + b">; rel=license"], ["Link: <" + "a" * 293]),
        (b"Link", [b"</l>; rel=license," * 50], ['Link: </l>; rel="license"'] * 5),
        (b"License", [b"/l"], []),
    ],
)
def test_terms_are_read_from_headers(name: bytes, values: list[bytes], terms: list[str]) -> None:
    assert headers.terms_in({name: values}) == terms


def test_only_the_start_of_a_long_robots_txt_has_terms() -> None:
    """The event loop of a running crawl reads it."""
    line = b"License: /rsl\n"
    filler = b"#" * (TERMS_BYTES - len(line) - 1) + b"\n"
    assert terms_in(filler + line + line) == (("License: /rsl", ""),)
    assert terms_in(b"#" + filler + line + line) == ()
    many = b"".join(b"License: /%d\n" % number for number in range(50))
    assert len(terms_in(many)) == 20
    agents = b"".join(b"User-agent: %s\n" % (b"a" * number) for number in range(1, 30))
    (long,) = terms_in(agents + b"License: " + b"x" * 9000)
    assert [len(text) < 400 and text.endswith("...") for text in long] == [True, True]


def test_an_unknown_host_is_an_error(open_store: Callable[[], Store]) -> None:
    world = World(open_store)
    with pytest.raises(UnknownHostError, match=r"no host 'no\.test'"):
        view_host(world.store, "no.test", RULE, NOW, most=10)

"""A served crawl: leases, schedule, delays, blocks and limits, over restarts and deaths."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from krowlspider.errors import JobError
from krowlspider.frontier.entry import JSON, Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.rpc.urlfrontier.crawl import QueueCounts
from krowlspider.rpc.urlfrontier.crawls import CrawlsError
from krowlspider.rpc.urlfrontier.intake import METADATA_MAX, Report
from krowlspider.rpc.urlfrontier.records import Phase
from krowlspider.urls.seeds import block_rule
from tests.rpc.urlfrontier.served import (
    FAIL,
    OK,
    SKIPPED,
    Clock,
    discovered,
    finished,
    known,
    opened,
    served,
    urls,
)

A, B, C = (f"http://a.example/{each}" for each in "abc")
OTHER = "http://b.example/"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_url_is_leased_once_and_is_done(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        assert crawl.put(discovered(A, A)) == [OK, OK]
        assert crawl.figures() == QueueCounts(1, 0, 0, 1, 1)
        assert urls(crawl) == [A]
        assert crawl.figures().leased == 1
        clock.move(1)
        assert urls(crawl) == []
        assert crawl.put(known(A)) == [OK]
        clock.move(100)
        assert urls(crawl) == []
        assert crawl.figures("a.example") == QueueCounts(0, 0, 1, 1, 0)
        assert crawl.put(discovered(A)) == [OK]
        clock.move(100)
        assert urls(crawl) == []


def test_a_host_has_one_batch_out(tmp_path: Path, clock: Clock):
    """Another client gets nothing of the host before all of the batch is acknowledged, and then not
    before the delay of the host."""
    with served(tmp_path, clock, KROWL_DELAY_MIN=2.0) as crawl:
        crawl.put(discovered(A, B, C, OTHER))
        assert sorted(urls(crawl, per_queue=2)) == [A, B, OTHER]
        clock.move(10)
        crawl.put(known(A))
        clock.move(10)
        assert urls(crawl) == []
        crawl.put(known(B))
        clock.move(1.9)
        assert urls(crawl) == []
        clock.move(0.2)
        assert urls(crawl) == [C]


def test_the_connections_of_our_crawls_are_no_limit(tmp_path: Path, clock: Clock):
    """Clients have as many as they like; of one domain, only some hosts have a batch out."""
    with served(tmp_path, clock, CONCURRENT_REQUESTS=4, KROWL_DOMAIN_CONCURRENCY=2) as crawl:
        crawl.put(discovered(*(f"http://{number}.example/" for number in range(100))))
        crawl.put(discovered(*(f"http://{number}.one.example/" for number in range(10))))
        given = urls(crawl)
        assert len(given) == 102
        for url in given:
            crawl.put(known(url))
        clock.move(10)
        assert len(urls(crawl)) == 2


def test_a_lease_that_ends_comes_back(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        crawl.put(discovered(A, B, depth="3"))
        assert urls(crawl, per_queue=1, seconds=5) == [A]
        clock.move(4.9)
        assert urls(crawl) == []
        clock.move(0.2)
        crawl.tick()
        assert crawl.figures() == QueueCounts(2, 0, 0, 1, 1)
        clock.move(5)
        taken = crawl.take(0, 0, 30)
        assert [(item.url, item.metadata) for _, item in taken] == [
            (B, {"depth": ["3"]}),
            (A, {"depth": ["3"]}),
        ]


def test_a_lease_ends_whatever_part_of_a_millisecond_it_has(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        crawl.put(discovered(A, OTHER))
        assert len(crawl.take(0, 0, 5.0002, "b.example")) == 1
        assert len(crawl.take(0, 0, 5.0007, "a.example")) == 1
        clock.move(4.9999)
        for _ in range(20):
            clock.move(0.0001)
            crawl.tick()
        assert crawl.figures().leased == 0


def test_a_report_after_the_end_of_its_lease_counts(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        crawl.put(discovered(A, B))
        urls(crawl, per_queue=1, seconds=5)
        clock.move(6)
        crawl.tick()
        crawl.put(known(A))
        clock.move(6)
        assert urls(crawl) == [B]
        assert crawl.figures() == QueueCounts(1, 1, 1, 1, 1)


@pytest.mark.parametrize("is_killed", [False, True])
def test_leases_survive_a_restart(tmp_path: Path, clock: Clock, is_killed: bool):
    """What is out stays out until its lease ends, and its report is taken; nothing is lost."""
    crawls = opened(tmp_path, clock)
    crawl = crawls.begun("")
    crawl.put(discovered(A, B, C))
    assert urls(crawl, per_queue=2, seconds=60) == [A, B]
    if is_killed:
        # As a kill leaves it: no clean end.
        crawl.frontier.store.close()
        crawl._folder.leave()
    else:
        crawls.close()
    with served(tmp_path, clock) as crawl:
        assert crawl.figures() == QueueCounts(3, 2, 0, 1, 1)
        clock.move(30)
        assert urls(crawl) == []
        crawl.put(known(B))
        assert urls(crawl) == []
        clock.move(31)
        crawl.tick()
        clock.move(10)
        assert sorted(urls(crawl)) == [A, C]
        crawl.put([*known(A), *known(C)])
        assert crawl.figures() == QueueCounts(0, 0, 3, 1, 0)
        assert crawl.frontier.counters["done"] == 3


def test_a_death_between_report_and_commit_loses_nothing(tmp_path: Path, clock: Clock):
    crawls = opened(tmp_path, clock)
    crawl = crawls.begun("")
    crawl.put(discovered(A, B))
    urls(crawl, seconds=60)
    crawl._intake.put([*known(A), *known(B, clock.now + 100)])
    crawl.frontier.store.close()
    crawl._folder.leave()
    with served(tmp_path, clock) as crawl:
        clock.move(50)
        assert urls(crawl) == []
        clock.move(51)
        assert urls(crawl) == [B]
        crawl.tick()
        assert crawl.figures() == QueueCounts(1, 1, 1, 1, 1)


def test_known_urls_come_when_they_are_due_the_first_first(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        crawl.put([*known(A, clock.now + 20), *known(B, clock.now + 10, k="v"), *known(C)])
        assert urls(crawl) == []
        assert crawl.figures() == QueueCounts(2, 0, 1, 1, 0)
        clock.move(10)
        assert urls(crawl) == [B]
        crawl.put(known(B, clock.now + 5))
        clock.move(30)
        assert urls(crawl) == [B, A]


def test_a_time_in_the_past_is_due_now(tmp_path: Path, clock: Clock):
    """As URLFrontierServiceTest.RightOrder has it, after the first look at what is due."""
    with served(tmp_path, clock) as crawl:
        crawl.put(known(C, clock.now + 1))
        clock.move(50)
        assert urls(crawl) == [C]
        crawl.put([*known(A, clock.now - 10), *known(B, clock.now - 1000), *known(C)])
        clock.move(5)
        assert urls(crawl) == [B, A]


def test_the_schedule_survives_a_restart(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        crawl.put(known(A, clock.now + 3600, k="v"))
    with served(tmp_path, clock) as crawl:
        assert urls(crawl) == []
        clock.move(3601)
        ((host, item),) = crawl.take(0, 0, 30)
        assert (host, item.url, item.metadata) == ("a.example", A, {"k": ["v"]})


def test_delays_blocks_limits_and_the_pause_survive(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        crawl.put(discovered(A, B, OTHER))
        crawl.set_delay(20, "a.example")
        crawl.block("b.example", clock.now + 100)
        crawl.set_active(active=False)
        clock.move(30)
        assert urls(crawl) == []
    with served(tmp_path, clock) as crawl:
        assert urls(crawl) == []
        crawl.set_active(active=True)
        clock.move(21)
        assert urls(crawl, per_queue=1) == [A]
        crawl.put(known(A))
        clock.move(19)
        assert urls(crawl) == []
        clock.move(2)
        assert urls(crawl) == [B]
        crawl.put(known(B))
        clock.move(28)
        crawl.tick()
        assert urls(crawl) == []
        clock.move(4)
        crawl.tick()
        clock.move(5)
        assert urls(crawl) == [OTHER]
        assert crawl.limit("a.example", 2)
        crawl.put(discovered(C))
    with served(tmp_path, clock) as crawl:
        clock.move(60)
        assert urls(crawl) == [OTHER]
        assert crawl.limit("a.example", 0)
        clock.move(60)
        assert C in urls(crawl)


def test_a_report_of_a_deferred_host_is_taken(tmp_path: Path, clock: Clock):
    """A crawl by Scrapy has deferred it: it does not answer."""
    with served(tmp_path, clock) as crawl:
        crawl.put(discovered(A, B))
        schedule = crawl.frontier.schedule
        schedule.deferral.defer(schedule.pop_named("a.example"))
        assert crawl.frontier.deferred_queued == 2
        crawl.put(known(A))
        assert crawl.frontier.deferred_queued == 1


def test_an_order_cannot_make_a_crawl_less_polite(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock, KROWL_DELAY_MIN=2.0) as crawl:
        crawl.put(discovered(A, B))
        crawl.set_delay(0)
        crawl.set_delay(0, "a.example")
        clock.move(3)
        urls(crawl, per_queue=1)
        crawl.put(known(A))
        clock.move(1.9)
        assert urls(crawl) == []


def test_a_delay_of_all_queues_survives(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        crawl.set_delay(50)
    with served(tmp_path, clock) as crawl:
        crawl.put(discovered(A, B))
        urls(crawl, per_queue=1)
        crawl.put(known(A))
        clock.move(49)
        assert urls(crawl) == []
        clock.move(2)
        assert urls(crawl) == [B]


def test_a_delay_of_all_queues_is_that_of_later_crawls(tmp_path: Path, clock: Clock):
    """As in the reference, where it is that of the service."""
    crawls = opened(tmp_path, clock)
    crawls.begun("early")
    crawls.set_delay("", 50)
    finished(crawls.delete(""))
    crawls.set_delay("own", 20)
    crawls.begun("late")
    crawls.close()
    crawls = opened(tmp_path, clock)
    for name, seconds in (("", 50), ("early", 50), ("late", 50), ("own", 20)):
        crawl = crawls.begun(name)
        crawl.put(discovered(A, B))
        urls(crawl, per_queue=1)
        crawl.put(known(A))
        clock.move(seconds - 1)
        assert urls(crawl) == []
        clock.move(2)
        assert urls(crawl) == [B]
    crawls.close()


def test_orders_for_a_crawl_that_comes_later_hold(tmp_path: Path, clock: Clock):
    crawls = opened(tmp_path, clock)
    crawls.set_delay("X", 50, "a.example")
    crawls.block("X", "b.example", clock.now + 200)
    assert crawls.ids() == []
    crawls.close()
    crawls = opened(tmp_path, clock)
    assert crawls.put([("X", each) for each in discovered(A, B, OTHER)]) == [OK] * 3
    clock.move(60)
    assert urls(crawls.begun("X"), per_queue=1) == [A]
    crawls.close()


def test_a_block_ends_by_an_order(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        crawl.put(discovered(A))
        crawl.block("a.example", 2**63)
        assert urls(crawl) == []
        assert not any(crawl.queue_names(include_inactive=False))
        crawl.block("a.example", 0)
        clock.move(5)
        assert urls(crawl) == [A]


@pytest.mark.parametrize("rule", ["a.example", block_rule("http://a.example/")])
def test_a_client_does_not_end_the_block_of_a_person(tmp_path: Path, clock: Clock, rule: str):
    with served(tmp_path, clock) as crawl:
        crawl.put(discovered(A))
        orders = crawl.frontier.schedule.orders
        orders.take(orders.made("block", rule, "a person"))
        for until in (clock.now + 10, 0):
            crawl.block("a.example", until)
            clock.move(60)
            crawl.tick()
            assert urls(crawl) == []
        assert orders.blocks.rules == {rule: "a person"}
        assert not any(crawl.queue_names(include_inactive=False))


def test_a_client_does_not_shorten_the_delay_of_a_person(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        orders = crawl.frontier.schedule.orders
        orders.take(orders.made("delay", "a.example", "a person", 60))
        # What a client has made longer stays, as the delay of the person would be lost with it.
        for seconds, least in ((20, 60), (0, 60), (90, 90), (70, 90), (0, 90), (95, 95)):
            crawl.set_delay(seconds, "a.example")
            assert orders.delays._rule.of("a.example").minimum == least
        assert orders.standing.in_force("delay")["a.example"].note.count("longer") == 1
        # Nor does it end as that of all queues is longer for a while.
        crawl.set_delay(300)
        crawl.set_delay(200, "a.example")
        crawl.set_delay(0)
        assert orders.delays._rule.of("a.example").minimum == 95


class Death(Exception):
    """The process ends here."""


@pytest.mark.parametrize("renamed", range(3))
def test_orders_of_people_outlive_a_deleted_crawl(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, renamed: int
):
    """Also where the process dies after so many renamed folders: none, one, or both."""
    crawls = opened(tmp_path, clock)
    crawl = crawls.begun("")
    crawl.put(discovered(A, OTHER))
    orders = crawl.frontier.schedule.orders
    orders.take(orders.made("block", "a.example", "a person"))
    crawl.set_delay(7)
    crawl.set_delay(50, "c.example")
    crawl.block("b.example", clock.now + 1e6)
    crawl.set_active(active=False)
    rename, left = Path.rename, renamed

    def dying(path: Path, target: Path) -> Path:
        nonlocal left
        if not left:
            raise Death
        left -= 1
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", dying)
    removal = crawls.delete("")
    with suppress(Death):
        next(removal)
    monkeypatch.undo()
    if renamed == 2:
        crawl.frontier.store.close()
    crawl._folder.leave()
    with served(tmp_path, clock) as crawl:
        assert not crawl.is_active
        assert crawl.state.delay == 7
        orders = crawl.frontier.schedule.orders
        assert "a.example" in orders.blocks.rules
        assert len(orders.blocks.rules) == (1 if renamed else 2)
        assert set(orders.standing.in_force("delay")) == (set() if renamed else {"c.example"})
        assert crawl.figures().active == (0 if renamed else 2)
        assert not list(tmp_path.glob("frontier.*"))
        crawl.set_active(active=True)
        crawl.put(discovered(A, OTHER))
        assert urls(crawl) == ([OTHER] if renamed else [])


def test_a_block_of_a_domain_leaves_the_hosts_below_it(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        crawl.put(discovered("http://example.org/", "http://www.example.org/"))
        crawl.block("example.org", clock.now + 100)
        assert urls(crawl) == ["http://www.example.org/"]


@pytest.mark.parametrize(
    "report",
    [
        Report("ftp://a.example/", {}),
        Report("no URL", {}),
        Report("http://user:pw@a.example/", {}),
        Report(f"http://a.example/{'x' * 100_000}", {}),
        Report(A, {"k": ["v" * METADATA_MAX]}),
        Report("", {}, 0.0),
    ],
)
def test_what_can_never_be_taken_is_skipped(tmp_path: Path, clock: Clock, report: Report):
    with served(tmp_path, clock) as crawl:
        assert crawl.put([report, *discovered(OTHER)]) == [SKIPPED, OK]


def test_what_a_cap_refuses_may_be_sent_again(tmp_path: Path, clock: Clock):
    settings = {"KROWL_DOMAIN_BUDGET": 1}
    with served(tmp_path, clock, **settings) as crawl:
        assert crawl.put(discovered(A, B)) == [OK, FAIL]
    with served(tmp_path, clock) as crawl:
        assert crawl.put(discovered(A, B)) == [OK, OK]
        clock.move(60)
        assert urls(crawl) == [A, B]


def test_a_deleted_queue_can_be_found_again(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        crawl.put([*discovered(A, B, OTHER), *known(C, clock.now + 10)])
        urls(crawl, queues=1, per_queue=1)
        assert finished(crawl.delete_queue("a.example")) == 3
        assert finished(crawl.delete_queue("a.example")) == 0
        assert crawl.figures("a.example").queues == 0
        assert crawl.find(A) is None
        clock.move(100)
        crawl.put(discovered(B))
    with served(tmp_path, clock) as crawl:
        clock.move(100)
        assert sorted(urls(crawl)) == [B, OTHER]


def many(host: str, count: int) -> list[str]:
    return [f"http://{host}/{number}" for number in range(count)]


def test_other_queues_go_on_while_one_is_deleted(tmp_path: Path, clock: Clock):
    """What is reported of that one has failed; its scheduled URLs and leases do not come back."""
    with served(tmp_path, clock) as crawl:
        crawl.put(discovered(*many("a.example", 2000), OTHER))
        crawl.put([*known(C, clock.now + 10), *known("http://b.example/b", clock.now + 10)])
        urls(crawl, per_queue=5, seconds=10)
        removal, steps = crawl.delete_queue("a.example"), 0
        for _ in removal:
            steps += 1
            clock.move(10)
            crawl.tick()
            assert crawl.put([*discovered(A), *known(B)]) == [FAIL, FAIL]
            found = urls(crawl, seconds=5)
            assert all("b.example" in url for url in found)
            assert crawl.put([report for url in found for report in known(url, clock.now + 1)])
        assert steps > 6
        assert crawl.figures("a.example") == QueueCounts(0, 0, 0, 0, 0)
        assert crawl.put(discovered(B)) == [OK]
        clock.move(60)
        crawl.tick()
        assert [url for url in urls(crawl) if "a.example" in url] == [B]


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_a_death_while_a_queue_is_deleted_leaves_none_of_it(
    tmp_path: Path, clock: Clock, steps: int
):
    crawls = opened(tmp_path, clock)
    crawl = crawls.begun("")
    crawl.put(discovered(*many("a.example", 2000), OTHER))
    removal = crawl.delete_queue("a.example")
    for _ in range(steps):
        next(removal)
    crawl.frontier.store.close()
    crawl._folder.leave()
    with served(tmp_path, clock) as crawl:
        assert crawl.figures() == QueueCounts(1, 0, 0, 1, 1)
        assert crawl.frontier.queued == 1
        assert crawl.put(discovered(*many("a.example", 3))) == [OK] * 3
        clock.move(60)
        assert sorted(urls(crawl)) == [*many("a.example", 3), OTHER]


def test_urls_that_are_leased_meanwhile_are_not_purged(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        crawl.put(discovered(*many("a.example", 1200)))
        clock.move(86_401)
        removal = crawl.purge(1)
        next(removal)
        out = urls(crawl, per_queue=100)
        assert finished(removal) == 1100
        assert crawl.figures().leased == len(out) == 100


def test_purged_urls_can_be_found_again(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock) as crawl:
        crawl.put([*discovered(A), *known(B), *known(C, clock.now + 10)])
        clock.move(86_401)
        crawl.put(discovered(OTHER))
        assert finished(crawl.purge(1)) == 3
        assert [item.url for _, item in crawl.items()] == [OTHER]
        assert crawl.figures() == QueueCounts(1, 0, 0, 2, 1)
        assert crawl.put(discovered(B)) == [OK]
        clock.move(60)
        assert sorted(urls(crawl)) == [B, OTHER]


@pytest.mark.parametrize("name", ["", "X"])
def test_other_calls_go_on_while_a_crawl_is_deleted(tmp_path: Path, clock: Clock, name: str):
    """A crawl of its name is a new one at once, also for a start after a death meanwhile."""
    crawls = opened(tmp_path, clock)
    crawls.put([(name, report) for report in discovered(A, B)])
    removal = crawls.delete(name)
    next(removal)
    assert name not in crawls.ids()
    assert crawls.put([(name, *discovered(C)), ("Y", *discovered(A))]) == [OK, OK]
    next(removal)
    # Files of the old one are there yet.
    assert list(tmp_path.rglob("*.removed/*"))
    crawls.close()
    crawls = opened(tmp_path, clock)
    assert not list(tmp_path.rglob("*.removed"))
    assert crawls.begun(name).figures().active == 1
    assert finished(crawls.delete(name)) == 1
    assert crawls.begun("Y").figures().active == 1
    assert not list(tmp_path.rglob("*.removed"))
    crawls.close()


def test_crawls_are_apart(tmp_path: Path, clock: Clock):
    crawls = opened(tmp_path, clock)
    reports = [("", *discovered(A)), ("X", *discovered(A)), ("../x", *discovered(A))]
    assert crawls.put(reports) == [OK, OK, OK]
    assert crawls.ids() == ["DEFAULT", "X", "../x"]
    crawls.set_active(active=False)
    crawls.close()
    crawls = opened(tmp_path, clock)
    assert sorted(crawls.ids()) == ["../x", "DEFAULT", "X"]
    assert crawls.take(None, 0, 0, 30, "") == []
    crawls.set_active(active=True)
    assert len(crawls.take(None, 2, 0, 30, "")) == 2
    assert finished(crawls.delete("X")) == 1
    assert finished(crawls.delete("DEFAULT")) == 1
    assert crawls.ids() == ["../x"]
    crawls.close()
    crawls = opened(tmp_path, clock)
    assert crawls.ids() == ["../x"]
    crawls.close()


def test_crawls_are_bounded(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("krowlspider.rpc.urlfrontier.crawls.CRAWLS_MAX", 2)
    crawls = opened(tmp_path, clock)
    found = crawls.put([("x", *discovered(A)), ("y", *discovered(A)), ("z" * 300, *discovered(A))])
    assert found[0] is OK
    assert all(isinstance(each, CrawlsError) for each in found[1:])
    crawls.close()


def test_a_folder_of_a_crawl_by_scrapy_is_served(tmp_path: Path, clock: Clock):
    """Entries without an item are leased; those that only Scrapy can send stay for it."""
    crawls = opened(tmp_path, clock)
    frontier = crawls.begun("").frontier
    frontier._admit = frontier._admission.admit
    key = frontier.pages._key_of
    frontier.queue(
        [
            Candidate("a.example", None, Entry("http://a.example/post", 1, request=JSON + b"{}")),
            *(Candidate("a.example", key(url), Entry(url, 1)) for url in (A, B)),
        ]
    )
    crawls.close()
    with served(tmp_path, clock) as crawl:
        assert [*filter(None, crawl.queue_names(include_inactive=False))] == ["a.example"]
        assert {item.url for _, item in crawl.items()} == {A, B}
        assert crawl.find(A)[1].phase is Phase.QUEUED
        clock.move(60)
        assert urls(crawl) == [A, B]
        assert crawl.put([*known(A), *known(B)]) == [OK, OK]
        assert crawl.figures() == QueueCounts(1, 0, 2, 1, 1)
    with served(tmp_path, clock) as crawl:
        assert crawl.figures() == QueueCounts(1, 0, 2, 1, 1)


def test_a_folder_in_use_is_refused(tmp_path: Path, clock: Clock):
    with served(tmp_path, clock), pytest.raises(JobError, match="in use"):
        opened(tmp_path, clock)

"""No page is fetched while its robots.txt is unknown; a decision holds until it expires."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.hosts.host import Host, RobotsFetch
from krowlspider.frontier.hosts.table import SchedulingState
from krowlspider.frontier.robots.gate import LAST_GOOD_MAX, UNREACHABLE_TTL, Verdict
from krowlspider.politeness.robots import Ruling
from krowlspider.urls.canonical import authority_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.robots.fetches import RobotsFetches
    from tests.frontier.conftest import World

A, B = "http://a.test", "http://b.test"
PAGE, PRIVATE = f"{A}/page", f"{A}/private"
RULES = b"User-agent: *\nDisallow: /private\nCrawl-delay: 7\n"
TTL = 1000.0
DAY = 86_400.0


@pytest.fixture
def robots(world: World) -> RobotsFetches:
    return fetches_of(world)


def fetches_of(world: World) -> RobotsFetches:
    return world.robots_fetches


def fetch_of(authority: str, host: Host) -> RobotsFetch:
    return RobotsFetch(authority, host, f"{authority}/robots.txt")


def robots_fetch_of(world: World, robots: RobotsFetches, page: str = PAGE) -> RobotsFetch:
    """Pop the page's host, and return the robots fetch for the page's authority."""
    world.add(page)
    host = world.frontier.schedule.pop()
    assert host is not None
    return fetch_of(page[: page.index("/", 8)], host)


def asked_again(world: World, robots: RobotsFetches, host: Host) -> RobotsFetch:
    """Return the robots fetch for the page's authority after the decision has expired."""
    assert robots.gate.verdict(A, PAGE) is Verdict.UNKNOWN
    return fetch_of(A, host)


def answer(
    robots: RobotsFetches,
    robots_fetch: RobotsFetch,
    status: int,
    body: bytes = b"",
    location: str | None = None,
) -> bool:
    robots.answered(robots_fetch, status, body, location)
    return robots_fetch.is_away


def test_a_crawl_delay_above_the_limit_is_too_slow(world: World, robots: RobotsFetches) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 200, b"User-agent: *\nCrawl-delay: 300\n")
    assert not robots.gate.too_slow("a.test")
    answer(robots, robots_fetch, 200, b"User-agent: *\nCrawl-delay: 301\n")
    assert robots.gate.too_slow("a.test")


def test_invariant_3_an_authority_without_a_fetch_is_unknown(robots: RobotsFetches) -> None:
    assert robots.gate.verdict(A, PAGE) is Verdict.UNKNOWN


def test_the_rules_decide_and_give_the_host_its_crawl_delay(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    assert robots_fetch.url == f"{A}/robots.txt"
    assert not answer(robots, robots_fetch, 200, RULES)
    assert robots.gate.verdict(A, PAGE) is Verdict.ALLOWED
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED
    assert robots_fetch.host.rate.floor == 7.0
    assert robots.gate.verdict("https://a.test", "https://a.test/page") is Verdict.UNKNOWN


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_4xx_allows_everything(world: World, robots: RobotsFetches, status: int) -> None:
    answer(robots, robots_fetch_of(world, robots), status, b"User-agent: *\nDisallow: /")
    assert robots.gate.verdict(A, PRIVATE) is Verdict.ALLOWED


def test_invariant_3_a_decision_expires(world: World, robots: RobotsFetches) -> None:
    answer(robots, robots_fetch_of(world, robots), 200, RULES)
    world.clocks.pass_(TTL - 1)
    assert robots.gate.verdict(A, PAGE) is Verdict.ALLOWED
    world.clocks.pass_(1)
    assert robots.gate.verdict(A, PAGE) is Verdict.UNKNOWN


def test_a_decision_outlives_the_process(world: World, robots: RobotsFetches) -> None:
    answer(robots, robots_fetch_of(world, robots), 200, RULES)
    world.crash()
    again = fetches_of(world)
    assert again.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED
    assert again.gate.verdict(A, PAGE) is Verdict.ALLOWED


@pytest.mark.parametrize(("status", "tries"), [(429, 2), (500, 1), (503, 2)])
def test_failed_robots_fetches_make_an_authority_unreachable(
    world: World, robots: RobotsFetches, status: int, tries: int
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    for _ in range(tries):
        assert not answer(robots, robots_fetch, status)
        assert robots.gate.verdict(A, PAGE) is Verdict.UNKNOWN
        assert list(robots_fetch.host.robots.fetches) == [robots_fetch]
        robots_fetch.host.robots.fetches.clear()
    answer(robots, robots_fetch, status)
    assert robots.gate.verdict(A, PAGE) is Verdict.UNREACHABLE
    assert not robots_fetch.host.robots.fetches
    world.clocks.pass_(UNREACHABLE_TTL)
    assert robots.gate.verdict(A, PAGE) is Verdict.UNKNOWN


def test_a_fetch_without_an_answer_is_retried_unless_it_is_final(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    robots.failed(robots_fetch, final=False)
    assert robots.gate.verdict(A, PAGE) is Verdict.UNKNOWN
    robots_fetch.host.robots.fetches.clear()
    robots.failed(robots_fetch, final=False)
    assert robots.gate.verdict(A, PAGE) is Verdict.UNREACHABLE
    other = robots_fetch_of(world, robots, f"{B}/")
    robots.failed(other, final=True)
    assert robots.gate.verdict(B, f"{B}/") is Verdict.UNREACHABLE


def test_an_unreachable_robots_txt_is_fetched_at_the_next_request(
    world: World, robots: RobotsFetches
) -> None:
    """However long the host waits: a day, after ten failures in a row."""
    record = robots.cache.new_record(Ruling.RETRY)
    robots.cache.learn(A, record)
    robots.cache.outlast(A, DAY)
    world.clocks.pass_(DAY)
    assert robots.gate.verdict(A, PAGE) is Verdict.UNKNOWN


def test_a_redirect_on_the_same_host_is_its_next_request(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    assert not answer(robots, robots_fetch, 301, location="/r.txt")
    assert (robots_fetch.url, list(robots_fetch.host.robots.fetches)) == (
        f"{A}/r.txt",
        [robots_fetch],
    )
    robots_fetch.host.robots.fetches.clear()
    answer(robots, robots_fetch, 200, RULES)
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED


def test_a_redirect_to_another_host_waits_for_that_hosts_turn(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    origin = robots_fetch.host
    assert answer(robots, robots_fetch, 302, location=f"{B}/robots.txt")
    assert list(origin.robots.fetches) == []
    world.frontier.schedule.release(origin, 0.25)
    world.clocks.pass_(10)
    host = world.frontier.schedule.pop()
    assert host is not None
    assert (host.name, list(host.robots.fetches)) == ("b.test", [robots_fetch])
    host.robots.fetches.clear()
    assert world.frontier.schedule.pop() is None
    assert not answer(robots, robots_fetch, 200, RULES)
    assert origin.state is SchedulingState.SCHEDULED
    popped = world.frontier.schedule.pop()
    assert popped is not None
    assert (popped.name, popped.rate.floor) == ("a.test", 7.0)
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED
    assert robots.gate.verdict(B, f"{B}/private") is Verdict.DISALLOWED
    assert host.rate.floor == 7.0


def test_a_redirect_back_from_another_host_resumes_the_host(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 302, location=f"{B}/robots.txt")
    world.frontier.schedule.release(robots_fetch.host, 0.25)
    world.frontier.schedule.cache.get("b.test").robots.fetches.clear()
    assert not answer(robots, robots_fetch, 302, location=f"{A}/r.txt")
    assert robots_fetch.host.state is SchedulingState.SCHEDULED
    assert list(robots_fetch.host.robots.fetches) == [robots_fetch]


def test_after_five_redirects_robots_txt_counts_as_missing(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    for hop in range(5):
        answer(robots, robots_fetch, 301, location=f"/{hop}")
        robots_fetch.host.robots.fetches.clear()
        assert robots.gate.verdict(A, PAGE) is Verdict.UNKNOWN
    answer(robots, robots_fetch, 301, location="/6")
    assert robots.gate.verdict(A, PAGE) is Verdict.ALLOWED


def test_the_longer_crawl_delay_of_http_and_https_holds(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 200, RULES)
    answer(robots, fetch_of("https://a.test", robots_fetch.host), 404)
    assert robots_fetch.host.rate.floor == robots.gate.crawl_delay("a.test") == 7.0


def test_an_unreachable_decision_does_not_outlive_the_process(
    world: World, robots: RobotsFetches
) -> None:
    robots.failed(robots_fetch_of(world, robots), final=True)
    assert robots.gate.verdict(A, PAGE) is Verdict.UNREACHABLE
    world.restart()
    assert fetches_of(world).gate.verdict(A, PAGE) is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "location", [f"{B}/private/delete?id=1", f"{B}/other", f"{A}/{'x' * 2048}"]
)
def test_a_redirect_to_another_hosts_pages_is_not_followed(
    world: World, robots: RobotsFetches, location: str
) -> None:
    assert not answer(robots, robots_fetch_of(world, robots), 301, location=location)
    assert robots.gate.verdict(A, PRIVATE) is Verdict.ALLOWED


@pytest.mark.parametrize("location", [None, "ftp://a.test/robots.txt", "http://"])
def test_a_redirect_to_nowhere_counts_as_missing(
    world: World, robots: RobotsFetches, location: str | None
) -> None:
    answer(robots, robots_fetch_of(world, robots), 301, location=location)
    assert robots.gate.verdict(A, PRIVATE) is Verdict.ALLOWED


# --- the last good copy ---


@pytest.mark.parametrize("fail", [
    lambda robots, robots_fetch: robots.failed(robots_fetch, final=True),
    lambda robots, robots_fetch: [answer(robots, robots_fetch, 500) for _ in range(2)],
    lambda robots, robots_fetch: [answer(robots, robots_fetch, 429) for _ in range(3)],
])  # fmt: skip
def test_the_last_good_copy_decides_while_the_server_fails(
    world: World, robots: RobotsFetches, fail: Callable[[RobotsFetches, RobotsFetch], object]
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 200, RULES)
    world.clocks.pass_(TTL)
    fail(robots, asked_again(world, robots, robots_fetch.host))
    assert robots.gate.verdict(A, PAGE) is Verdict.ALLOWED
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED
    assert robots_fetch.host.rate.floor == 7.0


def test_a_missing_robots_txt_counts_as_a_last_good_copy(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 404)
    world.clocks.pass_(TTL)
    robots.failed(asked_again(world, robots, robots_fetch.host), final=True)
    assert robots.gate.verdict(A, PRIVATE) is Verdict.ALLOWED


def test_a_failing_server_is_asked_again_after_a_while(world: World, robots: RobotsFetches) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 200, RULES)
    world.clocks.pass_(TTL)
    for _ in range(3):
        robots.failed(asked_again(world, robots, robots_fetch.host), final=True)
        world.clocks.pass_(UNREACHABLE_TTL - 1)
        assert robots.gate.verdict(A, PAGE) is Verdict.ALLOWED
        world.clocks.pass_(1)
    answer(
        robots,
        asked_again(world, robots, robots_fetch.host),
        200,
        b"User-agent: *\nDisallow: /page",
    )
    assert robots.gate.verdict(A, PAGE) is Verdict.DISALLOWED
    world.clocks.pass_(TTL - 1)
    assert robots.gate.verdict(A, PRIVATE) is Verdict.ALLOWED


def test_the_last_good_copy_expires_after_thirty_days(world: World, robots: RobotsFetches) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 200, RULES)
    world.clocks.pass_(LAST_GOOD_MAX - 10)
    robots.failed(asked_again(world, robots, robots_fetch.host), final=True)
    world.clocks.pass_(9)
    assert robots.gate.verdict(A, PAGE) is Verdict.ALLOWED
    world.clocks.pass_(1)
    robots.failed(asked_again(world, robots, robots_fetch.host), final=True)
    assert robots.gate.verdict(A, PAGE) is Verdict.UNREACHABLE


def test_a_restart_keeps_the_last_good_copy_and_its_retry_time(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 200, RULES)
    world.clocks.pass_(TTL)
    robots.failed(asked_again(world, robots, robots_fetch.host), final=True)
    world.crash()
    robots = fetches_of(world)
    world.clocks.pass_(UNREACHABLE_TTL - 1)
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED
    assert robots.gate.verdict(A, PAGE) is Verdict.ALLOWED
    world.clocks.pass_(1)
    robots.failed(asked_again(world, robots, robots_fetch.host), final=True)
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED


# --- the report of a robots.txt that was found ---

NAMING = b"Sitemap: /1.xml\nUser-agent: *\nDisallow: /private\nSitemap: /2.xml\n"
NAMED = ["/1.xml", "/2.xml"]


def reported(world: World) -> list[tuple[str, list[str]]]:
    """Return the authorities whose robots.txt was found, and the sitemaps they name."""
    return [(robots_fetch.authority, sitemaps) for robots_fetch, sitemaps in world.found]


@pytest.mark.parametrize(
    ("reply", "named"),
    [((200, None), NAMED), ((404, None), []), ((301, f"{B}/home"), []), ((301, None), [])],
)
def test_each_decision_is_reported_with_the_named_sitemaps(
    world: World,
    robots: RobotsFetches,
    reply: tuple[int, str | None],
    named: list[str],
) -> None:
    status, location = reply
    answer(robots, robots_fetch_of(world, robots), status, NAMING, location)
    assert reported(world) == [(A, named)]


@pytest.mark.parametrize("status", [429, 503, None])
@pytest.mark.parametrize("kept", [True, False])
def test_a_failed_fetch_is_not_reported(
    world: World,
    robots: RobotsFetches,
    status: int | None,
    kept: bool,
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    if kept:
        answer(robots, robots_fetch, 200, NAMING)
        world.found.clear()
        world.clocks.pass_(TTL)
        robots_fetch = asked_again(world, robots, robots_fetch.host)
    for _ in range(3):
        if status is None:
            robots.failed(robots_fetch, final=True)
        else:
            answer(robots, robots_fetch, status, NAMING)
    assert robots.gate.verdict(A, PAGE) is (Verdict.ALLOWED if kept else Verdict.UNREACHABLE)
    assert reported(world) == []


def test_a_redirect_to_a_known_robots_txt_is_reported(world: World, robots: RobotsFetches) -> None:
    answer(robots, robots_fetch_of(world, robots, f"{B}/"), 200, NAMING)
    answer(robots, robots_fetch_of(world, robots), 301, location=f"{B}/robots.txt")
    assert reported(world) == [(B, NAMED), (A, NAMED)]


# --- one robots.txt of many hosts ---

MANY = [f"http://h{number}.test" for number in range(50)]
SHARED = "http://shared.test/robots.txt"
LEADING = "http://leading.test/robots.txt"


def crawl(
    world: World, robots: RobotsFetches, status: int | None, way: tuple[str, ...] = (SHARED,)
) -> list[str]:
    """Fetch until nothing is due; return the URLs of robots.txt that were fetched.

    All redirect along ``way`` to SHARED, which answers ``status``; None: it does not answer.
    """
    asked = []
    idle = 0
    while idle < 100:
        host = world.frontier.schedule.pop()
        if host is None:
            idle += 1
            world.clocks.pass_(1)
            continue
        robots_fetch = next_robots_fetch(world, robots, host)
        if robots_fetch is None:
            world.frontier.schedule.deferral.defer(host)
            continue
        asked.append(robots_fetch.url)
        if robots_fetch.url != SHARED:
            further = way.index(robots_fetch.url) + 1 if robots_fetch.url in way else 0
            answer(robots, robots_fetch, 301, location=way[further])
        elif status is None:
            robots.failed(robots_fetch, final=False)
        else:
            answer(robots, robots_fetch, status, RULES)
        world.frontier.schedule.release(host, 0.25)
    return asked


def next_robots_fetch(world: World, robots: RobotsFetches, host: Host) -> RobotsFetch | None:
    """Return the robots fetch a host was popped for; None if its page has a decision.

    Such a page is acknowledged.
    """
    if host.robots.fetches:
        robots_fetch = host.robots.fetches.pop(0)
        assert isinstance(robots_fetch, RobotsFetch)
        return robots_fetch
    lease = world.frontier.queues.pop(host)
    assert lease is not None
    authority = authority_of(lease.entry.url)
    if robots.gate.verdict(authority, lease.entry.url) is not Verdict.UNKNOWN:
        world.frontier.acknowledge(lease)
        return None
    world.frontier.queues.unpop(lease)
    return fetch_of(authority, host)


def verdicts(robots: RobotsFetches) -> set[tuple[Verdict, Verdict]]:
    return {
        (robots.gate.verdict(host, f"{host}/a"), robots.gate.verdict(host, f"{host}/private"))
        for host in MANY
    }


def test_hosts_that_redirect_to_one_robots_txt_fetch_it_once(
    world: World, robots: RobotsFetches
) -> None:
    world.add(*[f"{host}/private" for host in MANY])
    asked = crawl(world, robots, 200)
    assert sorted(asked) == sorted([SHARED, *(f"{host}/robots.txt" for host in MANY)])
    assert verdicts(robots) == {(Verdict.ALLOWED, Verdict.DISALLOWED)}
    assert (
        robots.gate.verdict("http://shared.test", "http://shared.test/private")
        is Verdict.DISALLOWED
    )
    assert robots.waiting == 0
    assert {world.frontier.schedule.cache.get(host[7:]).rate.floor for host in MANY} == {7.0}


@pytest.mark.parametrize("together", [True, False])
def test_a_redirect_shared_by_many_hosts_is_fetched_once(
    world: World, robots: RobotsFetches, together: bool
) -> None:
    way = (LEADING, "https://leading.test/robots.txt", SHARED)
    asked = []
    for part in [MANY] if together else [MANY[:1], MANY[1:]]:
        world.add(*[f"{host}/private" for host in part])
        asked += crawl(world, robots, 200, way)
    assert sorted(asked) == sorted([*way, *(f"{host}/robots.txt" for host in MANY)])
    assert verdicts(robots) == {(Verdict.ALLOWED, Verdict.DISALLOWED)}
    for authority in ("http://leading.test", "https://leading.test"):
        assert robots.gate.verdict(authority, f"{authority}/private") is Verdict.DISALLOWED
    assert robots.waiting == 0


def test_a_known_robots_txt_is_not_fetched_for_a_redirect(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots, "http://shared.test/")
    answer(robots, robots_fetch, 200, RULES)
    world.clocks.pass_(10)
    assert not answer(robots, other := robots_fetch_of(world, robots), 301, location=SHARED)
    assert (other.is_away, other.host.robots.fetches, robots_fetch.host.robots.fetches) == (
        False,
        [],
        [],
    )
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED
    world.clocks.pass_(TTL - 10)
    assert robots.gate.verdict(A, PRIVATE) is Verdict.UNKNOWN


def test_an_expired_robots_txt_is_fetched_again_for_a_redirect(
    world: World, robots: RobotsFetches
) -> None:
    answer(robots, robots_fetch_of(world, robots, "http://shared.test/"), 200, RULES)
    world.clocks.pass_(TTL)
    assert answer(robots, robots_fetch_of(world, robots), 301, location=SHARED)


def test_http_that_redirects_to_https_shares_its_robots_txt(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 301, location="https://a.test/robots.txt")
    robots_fetch.host.robots.fetches.clear()
    answer(robots, robots_fetch, 200, RULES)
    assert robots.gate.verdict("https://a.test", "https://a.test/private") is Verdict.DISALLOWED


def test_rules_from_another_path_do_not_decide_for_their_host(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 301, location="https://a.test/r.txt")
    robots_fetch.host.robots.fetches.clear()
    answer(robots, robots_fetch, 200, RULES)
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED
    assert robots.gate.verdict("https://a.test", "https://a.test/private") is Verdict.UNKNOWN


def test_one_failed_fetch_decides_for_all_hosts_that_redirect(
    world: World, robots: RobotsFetches
) -> None:
    world.add(*[f"{host}/private" for host in MANY])
    asked = crawl(world, robots, None)
    assert asked.count(SHARED) == 2
    assert verdicts(robots) == {(Verdict.UNREACHABLE, Verdict.UNREACHABLE)}
    assert robots.waiting == 0

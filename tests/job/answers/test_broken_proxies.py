"""When failures through a proxy show that the proxy is broken."""

from __future__ import annotations

from krowlspider.job.answers.outages import ALONE, BROKEN_BY, Way, Ways
from krowlspider.politeness.outage import NOTED, WINDOW

WAY = Way("http://proxy.test:3128", is_own=True)


def failed(ways: Ways, host: int, now: float, *, hosts: int = 100) -> dict[str, int]:
    return ways.is_broken(WAY, f"h{host}.test", now, is_evidence=True, hosts=hosts)


def worked(now: float = 0.0) -> Ways:
    ways = Ways()
    ways.answered(WAY.proxy, now)
    return ways


def test_hosts_that_fail_one_after_another_show_it() -> None:
    """Each may have failed several times."""
    ways = worked()
    assert not any(failed(ways, host, ALONE) for host in (0, 0, 1, 2, 3))
    assert failed(ways, 4, ALONE) == {"h0.test": 2, **{f"h{n}.test": 1 for n in range(1, 5)}}


def test_all_hosts_of_a_small_crawl_are_enough() -> None:
    ways = worked()
    assert not failed(ways, 0, ALONE, hosts=2)
    assert failed(ways, 1, ALONE, hosts=2)
    # One alone proves nothing.
    ways = worked()
    assert not failed(ways, 0, ALONE, hosts=1)


def test_an_answer_by_any_way_shows_the_contrary() -> None:
    ways = worked()
    ways.answered("", 10.0)
    assert not any(failed(ways, host, 10.0 + ALONE / 2) for host in range(2 * BROKEN_BY))


def test_a_proxy_that_never_worked_proves_nothing() -> None:
    ways = Ways()
    assert not any(failed(ways, host, 100.0) for host in range(2 * BROKEN_BY))


def test_old_failures_count_no_more_and_few_are_held() -> None:
    """One of several proxies may be dead for as long as the crawl lasts."""
    ways = worked()
    for host in range(BROKEN_BY - 1):
        failed(ways, host, 1.0)
    assert not failed(ways, 99, 2.0 + WINDOW)
    ways.answered("", 1000.0)
    for host in range(2 * NOTED):
        assert not failed(ways, host, 1000.0 + ALONE / 2)
    assert len(ways._doubts[WAY.proxy]) <= NOTED

"""Cases of crawler-commons' tests that have no client: here they are asked of the real service.

The names of their tests are in the docstrings.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.rpc.urlfrontier.test_service import ACK, DEADLINE, discovered, known, serving, wait_until

grpc = pytest.importorskip("grpc")
pb = pytest.importorskip("krowlspider.rpc.generated.urlfrontier_pb2")

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.rpc.urlfrontier.test_service import Served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served") / "job", KROWL_DELAY_MIN=0.1) as served:
        yield served


def two_urls(service: Served, host: str) -> list[str]:
    urls = [f"http://{host}/{each}" for each in "ab"]
    assert service.put(*map(discovered, urls)) == [ACK.OK] * 2
    return urls


def asked(service: Served, host: str = "") -> list[str]:
    """Ask for one URL of a host, or of each."""
    crawl = {"crawlID": "DEFAULT"} if host else {"anyCrawlID": pb.AnyCrawlID()}
    params = pb.GetParams(key=host, max_urls_per_queue=1, delay_requestable=30, **crawl)
    return [info.url for info in service.stub.GetURLs(params, timeout=DEADLINE)]


def order_delay(service: Served, host: str, seconds: int) -> None:
    service.stub.SetDelay(pb.QueueDelayParams(key=host, delay_requestable=seconds))


def order_block(service: Served, host: str, seconds: int) -> None:
    until = int(time.time()) + seconds
    service.stub.BlockQueueUntil(pb.BlockQueueParams(key=host, time=until))


def order_limit(service: Served, host: str, most: int) -> None:
    service.stub.SetCrawlLimit(pb.CrawlLimitParams(key=host, limit=most))


@pytest.mark.parametrize("is_keyed", [False, True])
def test_a_queue_is_served_once_in_its_window(service: Served, is_keyed: bool):
    """rotationPathServesQueueOnlyOncePerWindow, keyedPathServesQueueOnlyOncePerWindow"""
    host = f"window{is_keyed:d}.example"
    first, _ = two_urls(service, host)
    with ThreadPoolExecutor(8) as clients:
        found = list(clients.map(lambda _: asked(service, host * is_keyed), range(8)))
    assert [url for each in found for url in each if host in url] == [first]
    order_delay(service, host, 300)
    service.put(known(first))
    assert not [url for url in asked(service, host * is_keyed) if host in url]


@pytest.mark.slow
def test_a_call_that_sends_nothing_costs_a_queue_no_time(service: Served):
    """zeroSentDoesNotPenalizeQueue"""
    first, _ = two_urls(service, "zero.example")
    order_delay(service, "zero.example", 1)
    wait_until(
        lambda: service.stub.GetStats(pb.QueueWithinCrawlParams(key="zero.example")).size > 1
    )
    time.sleep(1.1)
    service.stub.SetActive(pb.Active(state=False))
    assert asked(service, "zero.example") == []
    service.stub.SetActive(pb.Active(state=True))
    assert asked(service, "zero.example") == [first]


@pytest.mark.slow
def test_what_is_out_holds_its_queue_beyond_the_delay(service: Served):
    """inFlightReservationBlocksBeyondDelayWindow,
    controlUpdateDuringInFlightReservationLeavesMarkerIntact"""
    first, second = two_urls(service, "flight.example")
    assert asked(service, "flight.example") == [first]
    order_delay(service, "flight.example", 1)
    time.sleep(1.2)
    assert asked(service, "flight.example") == []
    service.put(known(first))
    reported = time.monotonic()
    assert asked(service, "flight.example") == []
    wait_until(lambda: asked(service, "flight.example") == [second])
    assert time.monotonic() - reported > 0.9


def test_a_client_that_goes_away_does_not_free_a_queue(service: Served):
    """exceptionDuringSendFailsClosedAndDoesNotHang"""
    two_urls(service, "gone.example")
    params = pb.GetParams(crawlID="DEFAULT", key="gone.example", max_urls_per_queue=1)
    call = service.stub.GetURLs(params)
    next(call)
    call.cancel()
    assert asked(service, "gone.example") == []
    assert service.stub.GetStats(pb.QueueWithinCrawlParams(key="gone.example")).inProcess == 1


def test_a_block_and_a_limit_hold_a_queue_back(service: Served):
    """keyedRequestHonoursCrawlLimit, gateRejectsBlockedAndLimitedQueues,
    queueBlockedViaRpcIsNotServedAfterwards"""
    first, second = two_urls(service, "gate.example")
    order_block(service, "gate.example", 3600)
    assert asked(service, "gate.example") == []
    assert not [url for url in asked(service) if "gate.example" in url]
    order_block(service, "gate.example", -1)
    wait_until(lambda: asked(service, "gate.example") == [first])
    service.put(known(first))
    order_limit(service, "gate.example", 1)
    time.sleep(0.5)
    assert asked(service, "gate.example") == []
    order_limit(service, "gate.example", 0)
    wait_until(lambda: asked(service, "gate.example") == [second])


def test_orders_and_removals_at_once_break_no_call(service: Served):
    """controlUpdatesHoldTheQueueMonitor, rotationPathHandlesQueueDeletedBetweenIterations"""
    hosts = [f"control{number}.example" for number in range(8)]
    for host in hosts:
        two_urls(service, host)

    def disturb(number: int) -> list[str]:
        host = hosts[number % 8]
        order_delay(service, host, 7)
        order_block(service, host, 3600)
        order_limit(service, host, 5)
        return asked(service)

    with ThreadPoolExecutor(8) as clients:
        found = [url for each in clients.map(disturb, range(32)) for url in each]
        assert len({url.split("/")[2] for url in found}) == len(found)
        list(
            clients.map(
                lambda host: service.stub.DeleteQueue(pb.QueueWithinCrawlParams(key=host)),
                hosts[:4],
            )
        )
        list(clients.map(lambda _: asked(service), range(8)))
    names = service.stub.ListQueues(pb.Pagination(include_inactive=True)).values
    assert [each for each in names if "control" in each] == hosts[4:]
    assert not [url for url in asked(service) if "control" in url]


@pytest.mark.slow
def test_queues_come_back_after_a_crash_and_removed_ones_do_not(tmp_path: Path):
    """RocksDBRecoveryTest: allQueuesRecoveredAfterCrash, queueInfosAreFullyClearedOnStartup,
    urlsSurviveCleanRestartWithoutWAL, deletedQueuesAreNotResurrected,
    deletedQueuesLeaveNothingBehind"""
    hosts = [f"host{number}.example" for number in range(3)]

    def queues(service: Served) -> list[str]:
        return list(service.stub.ListQueues(pb.Pagination(include_inactive=True)).values)

    with serving(tmp_path / "job") as service:
        for host in hosts:
            two_urls(service, host)
    with serving(tmp_path / "job") as service:
        assert queues(service) == hosts
        service.kill()
    with serving(tmp_path / "job") as service:
        assert queues(service) == hosts
        assert service.stub.CountURLs(pb.CountUrlParams()).value == 6
        out: list[str] = []
        wait_until(lambda: bool(out.extend(service.urls(delay_requestable=600)) or len(out) == 6))
        for host in hosts:
            service.put(known(f"http://{host}/a", int(time.time()) + 3600))
            assert service.stub.DeleteQueue(pb.QueueWithinCrawlParams(key=host)).value == 2
        service.kill()
    with serving(tmp_path / "job") as service:
        assert queues(service) == []
        assert service.stub.CountURLs(pb.CountUrlParams()).value == 0
        assert service.stats().size == service.stats().inProcess == 0
        two_urls(service, hosts[0])
        assert queues(service) == hosts[:1]

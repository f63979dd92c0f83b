"""The rate at which the crawl is asked, and refusals, without a crawl."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

grpc = pytest.importorskip("grpc")
api = pytest.importorskip("krowlspider.rpc.api")
control = pytest.importorskip("krowlspider.rpc.control")
pb = pytest.importorskip("krowlspider.rpc.generated.krowl_pb2")

if TYPE_CHECKING:
    from pathlib import Path


def test_a_burst_passes_and_a_flood_waits() -> None:
    now = [100.0]
    bucket = api.TokenBucket(rate=20, burst=3, clock=lambda: now[0])
    for _ in range(3):
        assert bucket.wait() == pytest.approx(0)
        bucket.take()
    assert bucket.wait() == pytest.approx(0.05)
    # One that went away before its turn is not waited for.
    assert bucket.wait() == pytest.approx(0.05)
    now[0] += 0.05
    bucket.take()
    assert bucket.wait() == pytest.approx(0.05)
    now[0] += 100
    for _ in range(3):
        assert bucket.wait() == pytest.approx(0)
        bucket.take()
    assert bucket.wait() == pytest.approx(0.05)


def test_a_large_one_counts_as_many() -> None:
    now = [100.0]
    bucket = api.TokenBucket(rate=10, burst=50, clock=lambda: now[0])
    assert bucket.wait(50) == pytest.approx(0)
    bucket.take(50)
    assert bucket.wait(1) == pytest.approx(0.1)
    assert bucket.wait(50) == pytest.approx(5)
    now[0] += 2
    assert bucket.wait(20) == pytest.approx(0)
    assert bucket.wait(50) == pytest.approx(3)


async def test_urls_that_come_too_fast_are_refused(tmp_path: Path) -> None:
    """A call is charged by its URLs. Those that wait are counted, and leave if their call ends."""
    now = [100.0]

    async def submit(count: int) -> int:
        with pytest.raises(api.ApiError) as caught:
            await crawl.order("import", b"", "a test", count)
        status: int = caught.value.status
        return status

    async with api.Api(tmp_path, "token", clock=lambda: now[0]) as crawl:
        # There is no crawl to ask.
        assert await submit(control.SUBMITTED_MAX) == 503
        assert await submit(control.SUBMITTED_MAX) == 429
        waiting = asyncio.create_task(submit(3000))
        await asyncio.sleep(0)
        assert await submit(3000) == 429
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        now[0] += 15
        assert await submit(3000) == 503
        # A request without URLs does not wait for them.
        assert await submit(0) == 503


async def passed(crawl: Any, name: str, count: int) -> int:
    """Return how many of so many orders pass at once; there is no crawl to ask."""
    orders = [asyncio.create_task(crawl.order(name, b"", "a test")) for _ in range(count)]
    for _ in range(10 * count):
        await asyncio.sleep(0)
    done = sum(each.done() for each in orders)
    for each in orders:
        each.cancel()
    await asyncio.gather(*orders, return_exceptions=True)
    return done


async def test_orders_for_many_hosts_count_twice(tmp_path: Path) -> None:
    for name, most in (("pause", 20), ("block", 10), ("unblock", 10)):
        async with api.Api(tmp_path, "token", clock=lambda: 100.0) as crawl:
            assert await passed(crawl, name, 25) == most


class Refused(Exception):
    """What a call ends with: its code and why."""


class Context:
    """The context of a call."""

    async def abort(self, code: object, why: str) -> None:
        raise Refused(code, why)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:9"


async def test_limits_without_a_file_of_sheets_are_refused_whole() -> None:
    """The delay beside them is not set either; the way out is named."""
    orders: list[str] = []

    class Crawl:
        async def order(self, name: str, *_: object) -> dict[str, object]:
            orders.append(name)
            return {"done": True, "message": name}

    service = control.CrawlService(Crawl(), {}, None, Counter())
    for fields in ({"max_depth": 2}, {"exclude": ["/print/"]}, {"remove_sheet": True}):
        asked = pb.UpsertDomainPolicyRequest(domain="b.test", delay=3, blocked=True, **fields)
        with pytest.raises(Refused) as caught:
            await service.UpsertDomainPolicy(asked, Context())
        code, why = caught.value.args
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "start it with KROWL_POLICIES=FILE" in why
    assert orders == []


async def test_a_submission_is_charged_by_its_urls() -> None:
    """One that is refused by that is counted, and says when to come back."""
    given: list[int] = []

    class Crawl:
        async def order(self, _: str, __: bytes, ___: str, urls: int = 0) -> dict[str, object]:
            given.append(urls)
            raise api.ApiError(429, "send these again in 43 s")

    counts: Counter[str] = Counter()
    service = control.CrawlService(Crawl(), {}, None, counts)
    asked = pb.SubmitUrlsRequest(urls=["http://a.test/", "not a URL", "http://b.test/"])
    with pytest.raises(Refused) as caught:
        await service.SubmitUrls(asked, Context())
    assert caught.value.args == (grpc.StatusCode.RESOURCE_EXHAUSTED, "send these again in 43 s")
    assert (given, counts) == ([3], {"rate": 1})

"""The rate at which the crawl is asked, and refusals, without a crawl."""

from __future__ import annotations

import pytest

grpc = pytest.importorskip("grpc")
api = pytest.importorskip("krowlspider.rpc.api")
control = pytest.importorskip("krowlspider.rpc.control")
pb = pytest.importorskip("krowlspider.rpc.generated.krowl_pb2")


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


class Refused(Exception):
    """What a call ends with: its code and why."""


class Context:
    """The context of a call."""

    async def abort(self, code: object, why: str) -> None:
        raise Refused(code, why)


async def test_limits_without_a_file_of_sheets_are_refused_whole() -> None:
    """The delay beside them is not set either; the way out is named."""
    orders: list[str] = []

    class Crawl:
        async def order(self, name: str, *_: object) -> dict[str, object]:
            orders.append(name)
            return {"done": True, "message": name}

    service = control.CrawlService(Crawl(), {}, None)
    for fields in ({"max_depth": 2}, {"exclude": ["/print/"]}, {"remove_sheet": True}):
        asked = pb.UpsertDomainPolicyRequest(domain="b.test", delay=3, blocked=True, **fields)
        with pytest.raises(Refused) as caught:
            await service.UpsertDomainPolicy(asked, Context())
        code, why = caught.value.args
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "start it with KROWL_POLICIES=FILE" in why
    assert orders == []

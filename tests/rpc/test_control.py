"""The rate at which the crawl is asked, without a crawl."""

from __future__ import annotations

import pytest

api = pytest.importorskip("krowlspider.rpc.api")


def test_a_burst_passes_and_a_flood_waits() -> None:
    now = [100.0]
    bucket = api.Bucket(rate=20, burst=3, clock=lambda: now[0])
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

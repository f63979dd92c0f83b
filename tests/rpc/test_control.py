"""The rate at which the crawl is asked, without a crawl."""

from __future__ import annotations

import pytest

api = pytest.importorskip("krowlspider.rpc.api")


def test_a_burst_passes_and_a_flood_waits() -> None:
    now = [100.0]
    bucket = api.Bucket(rate=20, burst=3, clock=lambda: now[0])
    assert [bucket.wait() for _ in range(3)] == pytest.approx([0, 0, 0])
    assert bucket.wait() == pytest.approx(0.05)
    assert bucket.wait() == pytest.approx(0.1)
    now[0] += 0.1
    assert bucket.wait() == pytest.approx(0.05)
    now[0] += 100
    assert [bucket.wait() for _ in range(3)] == pytest.approx([0, 0, 0])

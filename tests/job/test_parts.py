"""The parts of a crawl have bounds that no setting gives."""

from __future__ import annotations

from krowlspider.job.parts import frontier_limits
from tests.support.settings import project_settings


def test_frontier_has_the_bounds_that_are_no_settings() -> None:
    limits = frontier_limits(project_settings())
    assert (limits.domain_share, limits.outbox, limits.sessions.wait) == (0.1, 10_000_000, 15.0)

"""What every test runs under."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support import warm
from tests.support.crawling import end_all

if TYPE_CHECKING:
    from collections.abc import Iterator

# A loaded machine is not a failure; pytest's own timeout finds what hangs.
settings.register_profile("krowlspider", deadline=None)
settings.load_profile("krowlspider")

warm.enabled = True


@pytest.fixture(autouse=True)
def _no_crawl_outlives_its_test() -> Iterator[None]:
    yield
    end_all()


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.TestReport, config: pytest.Config
) -> tuple[str, str, str] | None:
    """With ``-q`` tests that pass are counted only."""
    if config.get_verbosity() < 0 and report.passed:
        return "passed" if report.when == "call" else "", "", ""
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the minutes of politeness: the others go on beside them."""
    items.sort(key=lambda item: item.path.name != "test_politeness.py")

"""A page that crashes the builder is left out by the next one."""

from __future__ import annotations

import faulthandler
import os
import signal
from typing import TYPE_CHECKING

import pytest

from krowlspider.errors import KrowlError
from krowlspider.search.watch import watched

if TYPE_CHECKING:
    from krowlspider.search.watch import PageWatch

KEY = bytes(range(16))


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGSEGV, "crashed"), (signal.SIGPROF, "took too long")]
)
def test_a_page_that_ends_the_builder_is_named(number: int, reason: str):
    def build(watch: PageWatch) -> str | None:
        assert watch.reading(bytes(16)) is None
        watch.read()
        if (found := watch.reading(KEY)) is None:
            faulthandler.disable()
            os.kill(os.getpid(), number)
        return found

    assert watched(build) == reason


def test_a_builder_that_somebody_kills_is_not_started_again():
    def build(watch: PageWatch) -> None:
        watch.reading(KEY)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(KrowlError, match="ended by SIGKILL: run the same command again"):
        watched(build)


def test_a_crash_between_two_pages_is_no_fault_of_a_page():
    def build(watch: PageWatch) -> None:
        watch.reading(KEY)
        watch.read()
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGSEGV)

    with pytest.raises(KrowlError, match="ended by SIGSEGV"):
        watched(build)


def test_errors_for_a_person_reach_the_parent():
    def build(watch: PageWatch) -> None:
        raise KrowlError("no index here")

    with pytest.raises(KrowlError, match="no index here"):
        watched(build)

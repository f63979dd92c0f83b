"""What an answer or a failure means for the host and for the page."""

from __future__ import annotations

import pytest

from krowlspider.fetch.errors import NameNotFound
from krowlspider.job.answers.host_feedback import (
    WaitCause,
    cause_of_answer,
    cause_of_failure,
    end_of_failure,
)
from krowlspider.job.in_flight import End


@pytest.mark.parametrize(
    ("status", "of_page", "of_robots"),
    [
        (200, WaitCause.ANSWER, WaitCause.ANSWER),
        (404, WaitCause.ANSWER, WaitCause.ANSWER),
        (402, WaitCause.PRICE, WaitCause.ANSWER),
        (429, WaitCause.THROTTLING, WaitCause.THROTTLING),
        (503, WaitCause.THROTTLING, WaitCause.THROTTLING),
        (500, WaitCause.ANSWER, WaitCause.THROTTLING),
        (599, WaitCause.ANSWER, WaitCause.THROTTLING),
        # Gemini.
        (41, WaitCause.ANSWER, WaitCause.THROTTLING),
        (44, WaitCause.THROTTLING, WaitCause.THROTTLING),
        (51, WaitCause.ANSWER, WaitCause.ANSWER),
    ],
)
def test_a_status_makes_the_host_wait(
    status: int, of_page: WaitCause, of_robots: WaitCause
) -> None:
    assert cause_of_answer(status, is_robots=False) is of_page
    assert cause_of_answer(status, is_robots=True) is of_robots


@pytest.mark.parametrize(
    ("kind", "status", "is_refused", "is_of_proxy", "cause"),
    [
        ("disconnect", None, False, False, WaitCause.ERROR),
        ("disconnect", 200, False, False, WaitCause.ERROR),
        # Its body could not be read, but its head asks for rest.
        ("disconnect", 503, False, False, WaitCause.THROTTLING),
        ("too_large", 429, True, False, WaitCause.THROTTLING),
        ("too_large", 200, True, False, WaitCause.ANSWER),
        (NameNotFound.kind, None, False, False, WaitCause.NO_NAME),
        ("proxy", None, False, True, WaitCause.NOTHING),
    ],
)
def test_a_failure_makes_the_host_wait(
    kind: str, status: int | None, is_refused: bool, is_of_proxy: bool, cause: WaitCause
) -> None:
    found = cause_of_failure(kind, status, is_refused=is_refused, is_of_proxy=is_of_proxy)
    assert found is cause


@pytest.mark.parametrize(
    ("is_excused", "goes_last", "may_fall_back", "end"),
    [
        (True, False, True, End.EXCUSED),
        (True, True, True, End.EXCUSED_LAST),
        (False, True, True, End.FELL_BACK),
        (False, True, False, End.FAILED),
        (False, False, False, End.FAILED),
    ],
)
def test_a_failure_decides_about_the_page(
    is_excused: bool, goes_last: bool, may_fall_back: bool, end: End
) -> None:
    found = end_of_failure(is_excused=is_excused, goes_last=goes_last, may_fall_back=may_fall_back)
    assert found is end

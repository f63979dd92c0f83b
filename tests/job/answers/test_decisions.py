"""What an answer or a failure means for the host and for the page."""

from __future__ import annotations

import pytest

from krowlspider.fetch.errors import NameNotFound
from krowlspider.job.answers.host_feedback import (
    Charge,
    charge_of_answer,
    charge_of_failure,
    end_of_failure,
)
from krowlspider.job.in_flight import End


@pytest.mark.parametrize(
    ("status", "of_page", "of_robots"),
    [
        (200, Charge.ANSWER, Charge.ANSWER),
        (404, Charge.ANSWER, Charge.ANSWER),
        (402, Charge.PRICE, Charge.ANSWER),
        (429, Charge.THROTTLING, Charge.THROTTLING),
        (503, Charge.THROTTLING, Charge.THROTTLING),
        (500, Charge.ANSWER, Charge.THROTTLING),
        (599, Charge.ANSWER, Charge.THROTTLING),
    ],
)
def test_a_status_charges_the_host(status: int, of_page: Charge, of_robots: Charge) -> None:
    assert charge_of_answer(status, is_robots=False) is of_page
    assert charge_of_answer(status, is_robots=True) is of_robots


@pytest.mark.parametrize(
    ("kind", "status", "is_refused", "is_of_proxy", "charge"),
    [
        ("disconnect", None, False, False, Charge.ERROR),
        ("disconnect", 200, False, False, Charge.ERROR),
        # Its body could not be read, but its head asks for rest.
        ("disconnect", 503, False, False, Charge.THROTTLING),
        ("too_large", 429, True, False, Charge.THROTTLING),
        ("too_large", 200, True, False, Charge.ANSWER),
        (NameNotFound.kind, None, False, False, Charge.NO_NAME),
        ("proxy", None, False, True, Charge.NOTHING),
    ],
)
def test_a_failure_charges_the_host(
    kind: str, status: int | None, is_refused: bool, is_of_proxy: bool, charge: Charge
) -> None:
    found = charge_of_failure(kind, status, is_refused=is_refused, is_of_proxy=is_of_proxy)
    assert found is charge


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

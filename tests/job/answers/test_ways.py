"""What follows from a failure of a proxy."""

from __future__ import annotations

import pytest

from krowlspider.job.answers.outages import ALONE, DENIED_FOR, Judgement, Way, Ways
from tests.support.tables import table

COUNT, EXCUSE, OUT, WRONG = Judgement
DOWN, DENIED, INVALID = "proxy", "proxy_auth", "proxy_url"


@table(
    ("answers", "is_own", "kind", "expected"),
    [
        # The only way, from the start on.
        ([], True, DOWN, OUT),
        ([], False, DOWN, OUT),
        ([], True, DENIED, WRONG),
        ([], False, DENIED, WRONG),
        ([], True, INVALID, WRONG),
        ([], False, INVALID, COUNT),
        # It has worked.
        (["p"], True, DOWN, OUT),
        (["p"], False, DOWN, OUT),
        (["p"], True, DENIED, OUT),
        (["p"], False, DENIED, OUT),
        # Another one works.
        (["q"], True, DOWN, EXCUSE),
        (["q"], False, DOWN, COUNT),
        (["p", "q"], False, DOWN, COUNT),
        (["p", "q"], True, DENIED, EXCUSE),
        (["q", "p"], True, DOWN, EXCUSE),
        (["q"], True, DENIED, WRONG),
        (["q"], False, DENIED, COUNT),
        (["", "p"], False, DOWN, COUNT),
    ],
)
def test_a_failure_is_judged_by_who_else_answers(
    answers: list[str], is_own: bool, kind: str, expected: Judgement
) -> None:
    ways = Ways()
    for way in answers:
        ways.answered(way, 1.0)
    assert ways.judge(Way("p", is_own), kind, 2.0) is expected


def test_a_proxy_is_alone_when_no_other_answers() -> None:
    ways = Ways()
    ways.answered("q", 0.0)
    ways.answered("p", 1.0)
    assert ways.judge(Way("p", is_own=False), DOWN, ALONE - 0.1) is COUNT
    assert ways.judge(Way("p", is_own=False), DOWN, ALONE) is OUT
    # One that never worked is not the only way: the other has worked.
    assert ways.judge(Way("r", is_own=False), DOWN, 100.0) is COUNT


def test_credentials_denied_for_long_are_wrong() -> None:
    ways, way = Ways(), Way("p", is_own=True)
    ways.answered("p", 0.0)
    assert ways.judge(way, DENIED, 10.0) is OUT
    assert ways.judge(way, DENIED, 10.0 + DENIED_FOR - 1) is OUT
    assert ways.judge(way, DENIED, 10.0 + DENIED_FOR) is WRONG
    ways.answered("p", 100.0)
    assert ways.judge(way, DENIED, 100.0 + DENIED_FOR) is OUT


@pytest.mark.parametrize(("is_own", "expected"), [(True, WRONG), (False, COUNT)])
def test_credentials_denied_for_long_while_others_answer(is_own: bool, expected: Judgement) -> None:
    """The URLs of a proxy of the environment are never counted as failed."""
    ways, way = Ways(), Way("p", is_own)
    ways.answered("p", 0.0)
    for now in (10.0, 10.0 + DENIED_FOR - 1):
        ways.answered("q", now)
        assert ways.judge(way, DENIED, now) is (EXCUSE if is_own else COUNT)
    ways.answered("q", 10.0 + DENIED_FOR)
    assert ways.judge(way, DENIED, 10.0 + DENIED_FOR) is expected

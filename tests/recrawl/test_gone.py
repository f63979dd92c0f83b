"""Pages that are missing, have moved, or say 200 and mean 404."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.recrawl.gone import AGAIN, AGAIN_MAX, Absence, PageState, SoftNotFound
from tests.support.tables import table

DAY = 86_400.0


def after(*statuses: int, every: float = DAY) -> Absence:
    absence = Absence()
    for number, status in enumerate(statuses):
        absence = absence.answered(status, number * every)
    return absence


@table(
    ("statuses", "is_tombstone"),
    [
        ((404,), False),
        ((404, 404), True),
        ((410, 404), True),
        ((410,), False),
        ((404, 200, 404), False),
        ((404, 304, 404), False),
        # An error that may pass says nothing.
        ((404, 503, 404), True),
        ((500, 500), False),
        ((403, 403), False),
        ((404, 301, 404), False),
    ],
)
def test_a_page_that_is_missing_twice_is_a_tombstone(
    statuses: tuple[int, ...], is_tombstone: bool
) -> None:
    assert after(*statuses).is_tombstone is is_tombstone


@pytest.mark.parametrize("status", [301, 308])
def test_permanent_redirects_are_counted(status: int) -> None:
    assert after(status, status).state is PageState.MOVED
    assert after(status, status).answers == 2
    assert after(status, 200).state is PageState.PRESENT


@pytest.mark.parametrize("status", [302, 303, 307])
def test_a_temporary_redirect_says_nothing(status: int) -> None:
    assert after(status, status).state is PageState.PRESENT


@pytest.mark.parametrize("status", [404, 301])
def test_waits_are_doubled_to_a_month(status: int) -> None:
    waits = [after(*[status] * count).wait for count in range(1, 9)]
    assert waits == [AGAIN * 2**number for number in range(5)] + [AGAIN_MAX] * 3
    assert after().wait is None


def test_a_tombstone_is_dropped_after_thirty_days() -> None:
    """It was asked five times by then: on days 0, 1, 3, 7 and 15."""
    absence, now = Absence(), 0.0
    for _ in range(5):
        assert not absence.is_dropped(now)
        absence = absence.answered(404, now)
        now += absence.wait or 0
    assert not absence.is_dropped(29 * DAY)
    assert absence.is_dropped(30 * DAY)


def test_a_jump_of_the_clock_drops_no_page() -> None:
    absence = after(404, 404, every=3650 * DAY)
    assert not absence.is_dropped(7300 * DAY)


def test_a_page_that_comes_back_is_present() -> None:
    assert after(404, 404, 404, 200) == Absence()


def test_a_moved_page_is_never_dropped() -> None:
    assert not after(*[301] * 300, every=30 * DAY).is_dropped(1e9)


@given(st.lists(st.sampled_from([200, 304, 301, 302, 404, 410, 500])))
def test_a_dropped_page_was_missing_in_its_last_answers(statuses: list[int]) -> None:
    absence = after(*statuses, every=20 * DAY)
    told = [status for status in statuses if status not in {302, 500}]
    if absence.is_dropped(len(statuses) * 20 * DAY):
        assert set(told[-4:]) <= {404, 410}
    assert 0 <= absence.answers <= 255


def shared(*changes: tuple[bytes, bytes, bytes]) -> SoftNotFound:
    """Return the texts after changes: text, text before, and page of each."""
    found = SoftNotFound()
    for text, before, page in changes:
        found = found.changed_into(text, before, page)
    return found


def test_pages_that_change_into_one_text_are_missing() -> None:
    texts = (b"error", b"news", b"error", b"error")
    found = shared(*((text, b"before %d" % at, b"page%d" % at) for at, text in enumerate(texts)))
    assert found.is_error(b"error")
    assert not found.is_error(b"news")
    assert (
        Absence().answered(200, 0.0, soft_404=found.is_error(b"error")).state is PageState.MISSING
    )


@pytest.mark.parametrize("every", [2, 5, 10])
def test_missing_pages_are_found_on_a_lively_site(every: int) -> None:
    """One change in so many is of a page that is missing from then on."""
    found, random = SoftNotFound(), Random(every)
    for at in range(100 * every):
        text = b"error" if random.randrange(every) == 0 else b"news %d" % at
        found = found.changed_into(text, b"before %d" % at, b"%d" % at)
    assert found.is_error(b"error")
    assert len(bytes(found)) < 400


@given(st.lists(st.binary(min_size=8, max_size=8), unique=True))
def test_ordinary_changes_are_no_errors(texts: list[bytes]) -> None:
    found = SoftNotFound()
    for text in texts:
        found = found.changed_into(text, text[::-1], text[:4])
        assert not found.is_error(text)


def test_a_page_whose_text_goes_round_is_not_missing() -> None:
    texts = [b"text %d" % (at % 3) for at in range(30)]
    found = shared(*((text, before, b"page") for before, text in pairwise(texts)))
    assert not any(map(found.is_error, texts))


def test_pages_that_shared_their_text_before_are_not_missing() -> None:
    found = shared(*((b"new shell", b"old shell", b"page%d" % at) for at in range(10)))
    assert not found.is_error(b"new shell")


def test_shared_texts_are_read_as_they_were_written() -> None:
    found = shared(
        (b"8 bytes.", b"of a row", b"one."),
        (b"8 bytes.", b"of other", b"two."),
        (b"of a 2nd", b"8 bytes.", b"one."),
    )
    assert SoftNotFound.read(bytes(found)) == found
    assert SoftNotFound.read(None) == SoftNotFound()

"""Which validators of a host are sent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from krowlspider.recrawl.trust import (
    COUNT_MAX,
    Trust,
    ValidatorRecord,
    after_change,
    after_content,
    after_not_modified,
    trusted,
)
from krowlspider.recrawl.validators import IN_FULL_EVERY, NO_VALIDATORS, Asked, Validators
from tests.support.tables import table

DATES = [b"Wed, 01 Jan 2020 00:00:00 GMT", b"Wed, 01 Jan 2020 06:00:00 GMT"]
OLD, NEW = Validators(b'"a"', DATES[0]), Validators(b'"b"', DATES[1])


def fetched(trust: Trust, answered: Validators, *, changed: bool) -> Trust:
    return after_content(trust, OLD, answered, text_changed=changed, bytes_changed=changed)


def test_an_unknown_host_is_trusted() -> None:
    assert trusted(Trust(), OLD) == OLD


def test_a_lie_has_the_host_asked_in_full() -> None:
    """Until as many honest full answers came as one lie in the sample stands for."""
    trust = fetched(Trust(), OLD, changed=True)
    assert trusted(trust, OLD) == NO_VALIDATORS
    for _ in range(IN_FULL_EVERY - 2):
        trust = fetched(trust, OLD, changed=False)
    assert trusted(trust, OLD) == NO_VALIDATORS
    assert trusted(fetched(trust, OLD, changed=False), OLD) == OLD


def test_a_tag_that_changes_with_equal_bytes_is_useless() -> None:
    """Tags of servers behind one name that differ, while their dates agree."""
    trust = Trust()
    for number in range(4):
        answered = Validators(b'"%d"' % number, DATES[0])
        trust = fetched(trust, answered, changed=False)
    assert trusted(trust, OLD) == Validators(b"", DATES[0])


def test_a_date_that_lies_does_not_spoil_the_tags() -> None:
    trust = fetched(Trust(), Validators(NEW.etag, OLD.last_modified), changed=True)
    assert trusted(trust, OLD) == Validators(OLD.etag)


def test_rare_churn_is_forgiven_where_304_is_answered() -> None:
    """A deployment changes all tags at once, and 304 is answered before and after it."""
    trust = Trust()
    for _ in range(40):
        trust = after_not_modified(trust, OLD)
    for _ in range(10):
        trust = fetched(trust, NEW, changed=False)
    assert trusted(trust, OLD) == OLD


def test_a_304_is_no_proof_of_honesty() -> None:
    trust = fetched(Trust(), OLD, changed=True)
    for _ in range(1000):
        trust = after_not_modified(trust, OLD)
    assert trusted(trust, OLD) == NO_VALIDATORS


SAMPLED, CONDITIONAL, FULL = Asked.SAMPLED, Asked.CONDITIONALLY, Asked.IN_FULL
TAG_STAYS, DATE_STAYS = Validators(OLD.etag, NEW.last_modified), Validators(NEW.etag, DATES[0])


@table(
    ("case", "changes", "hides"),
    [
        ("an honest host that changes rarely", [(CONDITIONAL, NEW)], False),
        ("one change, which the sample found", [(SAMPLED, NEW)], False),
        ("304 for each change", [(SAMPLED, NEW)] * 2, True),
        ("also after an honest year", [(CONDITIONAL, NEW)] * 400 + [(SAMPLED, NEW)] * 2, True),
        ("honest, in turn", [(SAMPLED, NEW), (CONDITIONAL, NEW)] * 9, False),
        ("found out, then mended", [(SAMPLED, NEW)] * 300 + [(CONDITIONAL, NEW)], False),
        ("without validators in its answers", [(SAMPLED, NO_VALIDATORS)] * 2, True),
        ("asked in full for another reason", [(FULL, NEW)] * 9, False),
        ("tags that stay are a lie of their own", [(SAMPLED, TAG_STAYS)] * 9, False),
        ("and so are dates", [(SAMPLED, DATE_STAYS)] * 9, False),
    ],
)
def test_a_host_hides_changes_if_only_the_sample_finds_them(
    case: str, changes: list[tuple[Asked, Validators]], hides: bool
) -> None:
    trust = Trust()
    for asked, answered in changes:
        trust = after_change(trust, OLD, answered, asked)
        # Answers that prove nothing.
        trust = after_not_modified(fetched(trust, OLD, changed=False), OLD)
    assert trust.hides_changes == hides, case


def test_nothing_is_learnt_where_nothing_would_be_sent() -> None:
    trust = fetched(Trust(), OLD, changed=True)
    assert after_change(trust, OLD, NEW, SAMPLED) == trust


events = st.tuples(st.sampled_from([OLD, NEW, NO_VALIDATORS]), st.booleans(), st.booleans())


@given(st.lists(events, max_size=600))
def test_trust_is_nine_bytes(steps: list[tuple[Validators, bool, bool]]) -> None:
    trust = Trust()
    for answered, changed, is_304 in steps:
        if is_304:
            trust = after_not_modified(trust, answered)
            trust = after_change(trust, OLD, answered, Asked.SAMPLED)
        else:
            trust = fetched(trust, answered, changed=changed)
    assert len(bytes(trust)) == 9
    assert Trust.read(bytes(trust)) == trust
    assert Trust.read(bytes(trust)[:8]) == trust._replace(hidden=0)
    assert max(bytes(trust)) <= COUNT_MAX
    assert Trust.read(b"") == Trust()


def test_counts_are_halved_together() -> None:
    assert ValidatorRecord(COUNT_MAX, 9, 4, 1).counted("held") == ValidatorRecord(128, 4, 2, 0)

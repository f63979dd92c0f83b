"""The health of a host changes only along legal steps."""

from __future__ import annotations

import pytest

from krowlspider.frontier.hosts.host import LEGAL_HEALTH_CHANGES, Health, Host, IllegalTransition
from tests.support.tables import table

# A second copy on purpose: the table must not check itself.
LEGAL = {
    "NEW": {"ROBOTS", "ACTIVE", "BACKING_OFF", "DEFERRED", "RETIRED"},
    "ROBOTS": {"ACTIVE", "BACKING_OFF", "DEFERRED", "RETIRED"},
    "ACTIVE": {"ROBOTS", "BACKING_OFF", "DEFERRED", "RETIRED"},
    "BACKING_OFF": {"ROBOTS", "ACTIVE", "DEFERRED", "RETIRED"},
    "DEFERRED": {"ACTIVE", "BACKING_OFF"},
    "RETIRED": set(),
}


@table("start", Health)
@table("end", Health)
def test_set_health_allows_only_legal_changes(start: Health, end: Health) -> None:
    host = Host("a.test", health=start)
    if end is start or end.name in LEGAL[start.name]:
        host.set_health(end)
        assert host.health is end
        return
    with pytest.raises(
        IllegalTransition, match=rf"a\.test is {start.words} and cannot be {end.words}"
    ):
        host.set_health(end)
    assert host.health is start


def test_every_health_can_be_reached_and_only_retired_is_final() -> None:
    assert set(LEGAL_HEALTH_CHANGES) == set(Health)
    assert set().union(*LEGAL_HEALTH_CHANGES.values()) | {Health.NEW} == set(Health)
    assert [health for health in Health if not LEGAL_HEALTH_CHANGES[health]] == [Health.RETIRED]

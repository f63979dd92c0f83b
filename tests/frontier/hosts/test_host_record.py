"""A host record survives its encoding."""

from __future__ import annotations

import pytest

from krowlspider.frontier.hosts.host import Health, Host, SchedulingState
from krowlspider.frontier.hosts.host_record import decode_host, encode_host, figures_in
from krowlspider.frontier.store.store import StoreError
from krowlspider.politeness.delay import HostRate
from tests.support.tables import table


@table("asks_signature", [False, True])
@table("origin", [0, 77])
@table("extras", [0, 3])
@table("health", Health)
def test_decode_returns_the_encoded_host(
    health: Health, extras: int, origin: int, asks_signature: bool
) -> None:
    host = Host("a.test", health=health, rate=HostRate(0.5, 7.0, 9, 3, 2), due=1234.5)
    host.asks_signature = asks_signature
    host.queue.done, host.queue.dropped, host.queue.extras = 4, 5, extras
    host.shares.origin = origin
    for priority, tries in ((0, 0), (0, 0), (-3, 1), (2**31 - 1, 255), (-(2**31 - 1), 7)):
        host.queue.level(priority, tries).tail += 1
        host.queue.queued += 1
    record = encode_host(host)
    again = decode_host("a.test", record)
    assert (again.health, again.due, again.queue.queued) == (health, 1234.5, 5)
    assert (again.queue.done, again.queue.dropped, again.queue.extras) == (4, 5, extras)
    assert (again.shares.origin, again.asks_signature) == (origin, asks_signature)
    assert figures_in(record) == (4 - extras, 5, 5, health, 0.5, 2)
    assert [getattr(again.rate, name) for name in HostRate.__slots__] == [0.5, 7.0, 9, 3, 2, False]
    assert {level: (q.head, q.tail) for level, q in again.queue.levels.items()} == {
        level: (q.head, q.tail) for level, q in host.queue.levels.items()
    }
    assert again.state is (
        SchedulingState.DEFERRED if health is Health.DEFERRED else SchedulingState.SCHEDULED
    )


def test_a_record_of_another_version_is_refused() -> None:
    record = bytearray(encode_host(Host("a.test")))
    record[0] = 99
    with pytest.raises(StoreError, match=r"host record of a\.test has version 99"):
        decode_host("a.test", bytes(record))

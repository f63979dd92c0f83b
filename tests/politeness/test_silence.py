"""Servers that make no connection in time, of hosts that have answered."""

from __future__ import annotations

from krowlspider.politeness.delay import ERRORS_PARK, PARKED, DelayPolicy
from krowlspider.politeness.silence import SERVERS_MAX, SILENT, SilentServers

HTTPS, HTTP = "https://a.test", "http://a.test"


def servers() -> SilentServers:
    return SilentServers(DelayPolicy(5, 0.25, 30, 60), lambda: 0.0)


def test_a_silent_server_rests_as_a_dead_host_and_alone() -> None:
    silent, rests = servers(), []
    for _ in range(ERRORS_PARK):
        silent.timed_out(HTTPS, "a.test", 100.0)
        rests.append(silent.rest(HTTPS, 100.0))
    assert rests == [*[0.0] * (SILENT - 1), 120, 240, 480, 960, 1920, PARKED, PARKED, PARKED]
    assert silent.rest(HTTPS, 100.0 + PARKED) == silent.rest(HTTP, 100.0) == 0.0


def test_a_connection_ends_the_count() -> None:
    silent = servers()
    for _ in range(SILENT):
        silent.timed_out(HTTPS, "a.test", 0.0)
    silent.connected(HTTPS)
    assert not silent.are_counted
    silent.timed_out(HTTPS, "a.test", 0.0)
    assert silent.rest(HTTPS, 0.0) == 0.0


def test_the_oldest_server_is_forgotten() -> None:
    silent = servers()
    for number in range(SERVERS_MAX + 1):
        for _ in range(SILENT):
            silent.timed_out(f"https://{number}.test", "a.test", 0.0)
    resting = [n for n in range(SERVERS_MAX + 1) if silent.rest(f"https://{n}.test", 0.0)]
    assert resting == [*range(1, SERVERS_MAX + 1)]

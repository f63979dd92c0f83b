"""What Scrapy's settings of politeness do to the delays, and which of them the log names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.config.validation import validate, without_effect
from krowlspider.job.parts import delay_policy, frontier_limits
from tests.support.settings import project_settings, refusal
from tests.support.tables import table

if TYPE_CHECKING:
    from krowlspider.politeness.delay import DelayPolicy

OWN = delay_policy(project_settings())


def policy(**changes: Any) -> DelayPolicy:
    validate(settings := project_settings(**changes))
    return delay_policy(settings)


def lines(**changes: Any) -> list[str]:
    validate(settings := project_settings(**changes))
    return list(without_effect(settings))


def per_address(**changes: Any) -> int:
    return frontier_limits(project_settings(**changes)).address_concurrency


# --- delays ---


def test_defaults_of_scrapy_change_nothing() -> None:
    assert (OWN.factor, OWN.minimum, OWN.maximum, OWN.of_hosts) == (5.0, 0.25, 30.0, {})
    assert per_address() == 8
    assert lines() == []
    # These are the defaults of `scrapy startproject`, and what the crawl does anyway.
    assert lines(CONCURRENT_REQUESTS_PER_DOMAIN=1, AUTOTHROTTLE_ENABLED=True) == []
    assert lines(RANDOMIZE_DOWNLOAD_DELAY="False", DOWNLOAD_DELAY_JITTER=0) == []


@pytest.mark.parametrize(("delay", "minimum"), [("2.5", 2.5), (0.1, 0.25), (60, 60.0)])
def test_download_delay_is_a_minimum_of_every_host(delay: object, minimum: float) -> None:
    asked = policy(DOWNLOAD_DELAY=delay)
    assert asked.of("a.test").minimum == minimum
    assert asked.maximum == 30.0


def test_delay_of_a_slot_takes_the_place_of_download_delay() -> None:
    slots = {"Slow.test": {"delay": 9}, "own.test": {"delay": "0.1"}, "::1": {"delay": 7}}
    slots |= {"a.test": {"concurrency": 1}, "my slot": {"delay": 8}, "a.test/x": {"delay": 8}}
    asked = policy(DOWNLOAD_DELAY=5, DOWNLOAD_SLOTS=slots)
    minima = {"slow.test": 9.0, "slow.test:8080": 9.0, "own.test": 0.25, "[::1]:81": 7.0}
    minima |= {"a.test": 5.0, "www.slow.test": 5.0}
    assert {host: asked.of(host).minimum for host in minima} == minima


def test_longest_delay_of_slots_of_one_host_counts() -> None:
    """However the slots write its name; the default ports of http and https are no part of it."""
    slots = {"A.test": 9, "a.test": 8, "b.test:443": 7, "b.test:80": 6, "c.test.": 5, "::443": 4}
    asked = policy(DOWNLOAD_SLOTS={name: {"delay": delay} for name, delay in slots.items()})
    minima = {"a.test": 9.0, "b.test": 7.0, "c.test": 5.0, "[::443]": 4.0}
    assert {host: asked.of(host).minimum for host in minima} == minima


def test_autothrottle_makes_delays_longer_only() -> None:
    on = {"AUTOTHROTTLE_ENABLED": True}
    assert policy(**on) == OWN
    assert policy(**on, AUTOTHROTTLE_TARGET_CONCURRENCY=4) == OWN
    # At a tenth, ten latencies pass from one request to the next, and it takes the first.
    assert policy(**on, AUTOTHROTTLE_TARGET_CONCURRENCY="0.1").factor == pytest.approx(9)
    assert policy(**on, AUTOTHROTTLE_MAX_DELAY=90).maximum == 90.0
    assert policy(**on, AUTOTHROTTLE_MAX_DELAY=9).maximum == 30.0
    assert policy(AUTOTHROTTLE_MAX_DELAY=90, AUTOTHROTTLE_TARGET_CONCURRENCY=0.1) == OWN


def test_requests_per_ip_lower_those_to_an_address() -> None:
    for asked, most in (("1", 1), (3, 3), (16, 8), (0, 8)):
        assert per_address(CONCURRENT_REQUESTS_PER_IP=asked) == most
    assert per_address(CONCURRENT_REQUESTS_PER_IP=2, KROWL_IP_CONCURRENCY=0) == 2


# --- what has no effect ---


@table(
    ("changes", "line"),
    [
        ({"DOWNLOAD_DELAY": "0"}, "DOWNLOAD_DELAY=0 has no effect: KROWL_DELAY_MIN is longer"),
        (
            {"CONCURRENT_REQUESTS_PER_DOMAIN": "8"},
            (
                "CONCURRENT_REQUESTS_PER_DOMAIN=8 has no effect: a host has one request in flight;"
                " for a domain, set KROWL_DOMAIN_CONCURRENCY"
            ),
        ),
        (
            {"CONCURRENT_REQUESTS_PER_IP": 9},
            "CONCURRENT_REQUESTS_PER_IP=9 has no effect: KROWL_IP_CONCURRENCY is lower",
        ),
        (
            {"RANDOMIZE_DOWNLOAD_DELAY": "True"},
            (
                "RANDOMIZE_DOWNLOAD_DELAY=True has no effect: a delay is a minimum; above it, it"
                " follows the latency of the host"
            ),
        ),
        (
            {"DOWNLOAD_DELAY_JITTER": 0.5},
            (
                "DOWNLOAD_DELAY_JITTER=0.5 has no effect: a delay is a minimum; above it, it"
                " follows the latency of the host"
            ),
        ),
        (
            {"AUTOTHROTTLE_ENABLED": 1, "AUTOTHROTTLE_TARGET_CONCURRENCY": 2},
            (
                "AUTOTHROTTLE_TARGET_CONCURRENCY=2 has no effect: a host has one request in flight;"
                " for shorter delays, set KROWL_DELAY_FACTOR"
            ),
        ),
        (
            {"AUTOTHROTTLE_ENABLED": 1, "AUTOTHROTTLE_START_DELAY": 3},
            (
                "AUTOTHROTTLE_START_DELAY=3 has no effect: the first answer of a host sets its"
                " delay; for a minimum, set DOWNLOAD_DELAY"
            ),
        ),
        (
            {"AUTOTHROTTLE_ENABLED": 1, "AUTOTHROTTLE_MAX_DELAY": 9},
            "AUTOTHROTTLE_MAX_DELAY=9 has no effect: KROWL_DELAY_MAX is longer",
        ),
        (
            {"AUTOTHROTTLE_ENABLED": 1, "AUTOTHROTTLE_DEBUG": "True"},
            (
                "AUTOTHROTTLE_DEBUG=True has no effect: `scrapy frontier JOBDIR --host NAME` shows"
                " the delay of a host"
            ),
        ),
        (
            {
                "DOWNLOAD_SLOTS": {
                    "a.test": {"delay": 0.1, "concurrency": 1, "jitter": 0, "throttle": True},
                    "b.test": {"concurrency": 2, "jitter": 0.5, "randomize_delay": True},
                    "my slot": {"delay": 1},
                    "c.test": {"throttle": False, "dely": 1, "delay": 1},
                }
            },
            (
                "DOWNLOAD_SLOTS has parts with no effect (delay of a.test, concurrency of b.test,"
                " jitter of b.test, randomize_delay of b.test, 'my slot' and 2 more): a slot is"
                " a host, has one request in flight, and waits KROWL_DELAY_MIN at least"
            ),
        ),
    ],
)
def test_setting_without_effect_is_named_in_one_line(changes: dict[str, Any], line: str) -> None:
    assert lines(**changes) == [line]


def test_no_limit_of_requests_per_ip_names_nothing() -> None:
    assert lines(CONCURRENT_REQUESTS_PER_IP=None) == []


def test_autothrottle_that_is_off_names_nothing() -> None:
    assert lines(AUTOTHROTTLE_START_DELAY=3, AUTOTHROTTLE_MAX_DELAY=9) == []


# --- invalid values ---


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (
            "DOWNLOAD_SLOTS",
            '{"a.test": 5}',
            "={'a.test': 5} has 5 for 'a.test', which is not a mapping such as {'delay': 5}",
        ),
        (
            "DOWNLOAD_SLOTS",
            {"a.test": {"delay": -1}},
            (
                "={'a.test': {'delay': -1}} has delay=-1 for 'a.test', which is out of range: 0 or"
                " more, at most 86400 seconds"
            ),
        ),
        ("DOWNLOAD_SLOTS", '{"a.test": {"delay": NaN}}', "={'a.test': {'delay': nan}} has delay="),
        ("DOWNLOAD_SLOTS", {"a.test": {"delay": None}}, "={'a.test': {'delay': None}} has delay="),
        ("DOWNLOAD_SLOTS", {"a.test": {"delay": "x"}}, "={'a.test': {'delay': 'x'}} has delay='x'"),
        (
            "DOWNLOAD_SLOTS",
            {"a.test": {"concurrency": 0}},
            "={'a.test': {'concurrency': 0}} has concurrency=0 for 'a.test', which is out of range",
        ),
        ("DOWNLOAD_SLOTS", {"a.test": {"jitter": "x"}}, "={'a.test': {'jitter': 'x'}} has jitter="),
    ],
)
def test_invalid_value_is_named(name: str, value: object, reason: str) -> None:
    assert refusal(**{name: value}).startswith(f"{name}{reason}")

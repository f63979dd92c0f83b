"""The audit of a log finds what is planted."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.mockweb import Entry, Graph, MockWeb
from tests.mockweb.asking import entry, get
from tests.mockweb.audit import Adaptive, Crowd, by_address, by_last_labels, violations
from tests.support import warm
from tests.support.tables import table

if TYPE_CHECKING:
    from pathlib import Path

ROBOTS = entry(0.0, 0.1, "http://h/robots.txt")


def test_a_polite_log_has_no_violations() -> None:
    log = [ROBOTS, entry(0.4, 0.5), entry(0.75, 0.9), entry(0.0, 0.2, "http://g/robots.txt")]
    assert violations(log, min_delay=0.25) == []
    assert violations([], min_delay=0.25) == []


@table(
    ("planted", "text"),
    [
        ([ROBOTS, entry(0.5, 0.9), entry(0.7, 0.8)], "overlap of 200.0 ms: http://h/p"),
        ([ROBOTS, entry(0.34, 0.4)], "gap of 0.240 s instead of 0.250 s: http://h/p"),
        ([ROBOTS, entry(0.5, 3.0), entry(3.1, 3.2)], "gap of 0.100 s"),
        ([entry(0.5, 0.6)], "before robots.txt was answered: http://h/p"),
        ([ROBOTS, entry(0.4, 0.5), entry(0.0, 0.5, "http://g/p")], "answered: http://g/p"),
        ([ROBOTS, entry(0.5, 0.6, "http://h/no/1")], "disallowed by robots.txt: http://h/no/1"),
        (
            [ROBOTS, entry(1, 2, status=429, retry_after=5.0), entry(6, 7)],
            "1.000 s before Retry-After is over",
        ),
        ([ROBOTS, entry(0.4, 0.6, complete=False), entry(0.59, 0.7)], "overlap of 10.0 ms"),
    ],
)
def test_the_audit_finds_what_is_planted(planted: list[Entry], text: str) -> None:
    (found,) = violations(planted, min_delay=0.25, allowed=lambda _, path: path != "/no/1")
    assert text in found


def test_a_long_request_is_overlapped_by_all_that_run_beside_it() -> None:
    log = [ROBOTS, entry(1, 9), entry(2, 3), entry(5, 6)]
    assert len(violations(log, min_delay=0.25)) == 2


def test_end_of_an_aborted_request_has_a_tolerance() -> None:
    log = [ROBOTS, entry(0.4, 0.6, complete=False), entry(0.597, 0.7)]
    assert violations(log, min_delay=0.0) == []
    log[1].complete = True
    assert len(violations(log, min_delay=0.0)) == 1


def test_the_delay_may_differ_by_host_and_the_unit_may_be_wider() -> None:
    other = [entry(0.2, 0.3, "http://g/robots.txt"), entry(0.4, 0.5, "http://g/p")]
    log = [ROBOTS, *other]
    assert violations(log, min_delay=lambda host: 0.2 if host == "g" else 9.0) == [
        "gap of 0.100 s instead of 0.200 s: http://g/p, after http://g/robots.txt"
    ]
    assert len(violations(log, min_delay=0.2, by=lambda _: "one domain")) == 2


THROTTLING = {"status": 503}


@pytest.mark.parametrize(
    ("later", "text"),
    [
        ([entry(1, 2, **THROTTLING), entry(2.4, 3)], "gap of 0.400 s instead of 0.500 s"),
        (
            [entry(1, 2, **THROTTLING), entry(3, 4, **THROTTLING), entry(4.9, 5)],
            "gap of 0.900 s instead of 1.000 s",
        ),
        # Halved again by an ordinary answer, not more.
        (
            [entry(1, 2, **THROTTLING), entry(3, 4, **THROTTLING), entry(6, 7), entry(7.4, 8)],
            "gap of 0.400 s instead of 0.500 s",
        ),
        (
            [entry(1, 2, status=429, retry_after=86_400.0), entry(3601, 3602)],
            "1.000 s before Retry-After is over",
        ),
    ],
)
def test_audit_finds_a_crawler_that_does_not_slow_down(later: list[Entry], text: str) -> None:
    (found,) = violations([ROBOTS, *later], min_delay=0.25)
    assert text in found


@pytest.mark.parametrize(
    "later",
    [
        [entry(1, 2, **THROTTLING), entry(2.5, 3), entry(3.25, 4)],
        [entry(1, 2, **THROTTLING), entry(3, 4, **THROTTLING), entry(5, 6), entry(6.5, 7)],
        [entry(1, 2, status=429, retry_after=86_400.0), entry(3602, 3603)],
        [entry(1 + 9e3 * n, 2 + 9e3 * n, **THROTTLING) for n in range(2000)],
    ],
)
def test_the_audit_is_content_with_who_slows_down_as_asked(later: list[Entry]) -> None:
    assert violations([ROBOTS, *later], min_delay=0.25) == []


def test_what_was_learnt_just_before_a_death_may_be_forgotten() -> None:
    log = [ROBOTS, entry(1, 2, **THROTTLING), entry(5, 6, **THROTTLING), entry(6.5, 7)]
    assert len(violations(log, min_delay=0.25)) == 1
    assert violations(log, min_delay=0.25, deaths=[3.0]) == []
    assert len(violations(log, min_delay=0.25, deaths=[9.0])) == 1
    slower = [entry(0, 0.1, "http://h/robots.txt"), entry(0.7, 1.7), entry(2.2, 2.3)]
    assert len(violations(slower, min_delay=0.25, adaptive=Adaptive(5, 30))) == 1
    assert violations(slower, min_delay=0.25, adaptive=Adaptive(5, 30), deaths=[2.0]) == []


def test_the_delay_follows_the_average_latency_up_to_its_limit() -> None:
    log = [entry(0, 0.1, "http://h/robots.txt"), entry(0.6, 1.6), entry(3.44, 4)]
    # 0.1 + 0.3 * (1.0 - 0.1), five times.
    (found,) = violations(log, min_delay=0.25, adaptive=Adaptive(5, 30))
    assert "gap of 1.840 s instead of 1.850 s" in found
    assert violations(log, min_delay=0.25, adaptive=Adaptive(5, 1.5)) == []


def test_no_more_than_so_many_of_a_crowd_are_in_flight() -> None:
    hosts = [f"{name}.site.test" for name in "abc"]
    log = [entry(0, 0.1, f"http://{host}/robots.txt", address="1.2.3.4") for host in hosts]
    by_domain = Crowd("domain", by_last_labels, 2)
    (found,) = violations(log, min_delay=0, crowds=[by_domain])
    assert (
        found == "3 in flight instead of 2 for the domain site.test: http://c.site.test/robots.txt"
    )
    assert violations(log, min_delay=0, crowds=[Crowd("domain", by_last_labels, 3)]) == []
    (found,) = violations(log, min_delay=0, crowds=[Crowd("address", by_address, 2)])
    assert "for the address 1.2.3.4" in found
    # One that ends as another begins makes room for it.
    log[2].start = 0.1
    assert violations(log, min_delay=0, crowds=[by_domain]) == []


def test_address_is_its_own_domain() -> None:
    """Names go by their last labels."""
    names = ("127.1.2.3:80", "a.b.test:8080", "b.test")
    found = [by_last_labels(entry(0, 1, f"http://{name}/")) for name in names]
    assert found == ["127.1.2.3", "b.test", "b.test"]


def test_robots_rules_hold_until_the_next_answer() -> None:
    def stated(answer: Entry) -> Any:
        return (lambda path: path != "/p") if answer.sha1 == "closed" else (lambda path: True)

    again = entry(2, 3, "http://h/robots.txt", sha1="closed")
    log = [ROBOTS, entry(1, 1.5), again, entry(5, 6)]
    assert violations(log, min_delay=0.25, stated=stated) == [
        "disallowed by robots.txt: http://h/p"
    ]
    again.status = 503
    # The last good copy holds while the server fails.
    assert violations(log, min_delay=0.25, stated=stated) == []
    again.status, log[0].sha1 = 200, "closed"
    again.sha1 = ""
    assert violations(log, min_delay=0.25, stated=stated) == [
        "disallowed by robots.txt: http://h/p"
    ]


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_a_robots_txt_that_fails_is_not_known(status: int) -> None:
    robots = entry(0, 0.1, "http://h/robots.txt", status=status)
    assert violations([robots, entry(9, 10)], min_delay=0.25) == [
        "before robots.txt was answered: http://h/p"
    ]


def test_the_audit_runs_as_a_command(tmp_path: Path) -> None:
    with MockWeb(graph=Graph(1, 2, 0)) as web:
        for path in ("/robots.txt", "/private/1"):
            get(web, path, host="127.10.0.1")
        lines = [json.dumps({n: getattr(e, n) for n in Entry.__slots__}) for e in web.log()]
    log = tmp_path / "log"
    log.write_text("\n".join([*lines, ""]))
    words = ["tests.mockweb.audit", str(log), "--delay", "5", "--graph", web.graph.text()]
    ran = warm.run([sys.executable, "-m", *words])
    assert ran.returncode == 1
    gap, disallowed, total = sorted(ran.stdout.decode().splitlines(), reverse=True)
    assert gap.startswith("gap of 0.0")
    assert disallowed.startswith("disallowed by robots.txt")
    assert total == "2 violations"
    assert ran.stderr == b""

"""Many hosts fail at once: whose fault it is, and what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.fetch.errors import FetchError
from krowlspider.politeness.outage import (
    ANSWERLESS,
    FORGIVEN_FOR,
    HOSTS,
    HOSTS_CERTAIN,
    NETWORK,
    NOTED,
    PROBE_EVERY,
    RESOLVER,
    WINDOW,
    FailureVerdict,
    Fault,
    OutageWatch,
    block_of,
)
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

SUSPECT = sorted(NETWORK.suspect)
CERTAIN = sorted(NETWORK.certain)
# Kinds that are a host's own doing, and show nothing of the network.
OWN = [
    *("too_slow", "dns_nxdomain", "dns_no_address", "dns_bad_name", "reset", "disconnect"),
    *("local", "error"),
]
REFUTED = sorted(NETWORK.refuted_by)


def fail(
    watch: OutageWatch,
    count: int,
    kind: str = "connect_timeout",
    now: float = 0.0,
    *,
    prefix: str = "h",
    is_evidence: bool = True,
    domain: str = "",
    block: str = "",
) -> list[FailureVerdict]:
    """Let this many hosts fail, each once. ``{}`` in a block is the number of the host."""
    return [
        watch.failed(
            f"{prefix}{number}.test",
            kind,
            now,
            is_evidence=is_evidence,
            domain=domain,
            block=block.format(number),
        )
        for number in range(count)
    ]


def in_outage(now: float = 0.0) -> OutageWatch:
    watch = OutageWatch()
    fail(watch, HOSTS, now=now)
    assert watch.is_out
    return watch


def kinds_of_fetching(error: type[FetchError] = FetchError) -> Iterator[str]:
    yield error.kind
    for below in error.__subclasses__():
        yield from kinds_of_fetching(below)


@pytest.mark.parametrize("fault", [NETWORK, RESOLVER])
def test_every_kind_is_of_a_fetch_error_and_of_one_sort(fault: Fault) -> None:
    every = [*fault.suspect, *fault.certain, *fault.refuted_by]
    assert set(every) <= set(kinds_of_fetching())
    assert len(every) == len(set(every))


def many(count: int, kind: str = "connect_timeout", now: float = 0.0, **more: Any) -> Any:
    """Return the failures of so many hosts, for `fail`."""
    return {"count": count, "kind": kind, "now": now, **more}


BLOCK = "203.0.113.0/24"
# Failures, and whether the last one begins an outage.
FAILURES: dict[str, tuple[list[Any], bool]] = {
    **{f"many hosts, {kind}": ([many(HOSTS, kind)], True) for kind in SUSPECT},
    "one host less": ([many(HOSTS - 1)], False),
    "fewer suffice if the failure is certain": ([many(HOSTS_CERTAIN, "network_down")], True),
    "one suffices without name servers": ([many(1, "dns_down")], True),
    **{f"a host's own, {kind}": ([many(10 * HOSTS, kind)], False) for kind in OWN},
    "one host for ever": ([many(1, "network_down")] * 10 * HOSTS, False),
    "just within the window": ([many(HOSTS - 1), many(1, now=WINDOW, prefix="late")], True),
    "further apart": ([many(HOSTS - 1), many(1, now=WINDOW + 0.1, prefix="late")], False),
    "dead hosts prove nothing": ([many(3 * HOSTS, is_evidence=False)], False),
    # A page links to hosts that do not answer, while our own network fails.
    "dead hosts displace no evidence": (
        [many(HOSTS - 1), many(3 * NOTED, prefix="dead", is_evidence=False), many(1, prefix="a")],
        True,
    ),
    # Subdomains of one domain, or domains in one address block, that answered before.
    "of one domain": ([many(10 * HOSTS, domain="evil.test")], False),
    "of one block": ([many(10 * HOSTS, block=BLOCK)], False),
    "of one domain in many blocks": (
        [many(10 * HOSTS, domain="evil.test", block="203.0.{}.0/24")],
        False,
    ),
    # With all of them there is one owner more than those.
    **{
        f"one owner more, by {name}": (
            [many(10 * HOSTS, **{name: BLOCK}), many(HOSTS - 1, prefix="other")],
            True,
        )
        for name in ("domain", "block")
    },
}


@table("name", FAILURES)
def test_outage_begins_when_many_owners_fail_at_once(name: str) -> None:
    failures, begins = FAILURES[name]
    watch = OutageWatch()
    *before, last = [verdict for each in failures for verdict in fail(watch, **each)]
    assert set(before) <= {FailureVerdict.COUNT}
    assert last is (FailureVerdict.BEGIN if begins else FailureVerdict.COUNT)
    assert watch.is_out == begins
    assert len(watch) <= NOTED


def test_failures_just_after_an_answer_are_no_outage() -> None:
    """Requests that one owner leaves unanswered time out together, between two answers of
    others."""
    watch = OutageWatch()
    watch.succeeded(100.0)
    assert set(fail(watch, 2 * HOSTS, now=100.0 + ANSWERLESS - 0.1)) == {FailureVerdict.COUNT}
    assert fail(watch, 1, now=100.0 + ANSWERLESS, prefix="late") == [FailureVerdict.BEGIN]


@pytest.mark.parametrize(
    ("address", "block"),
    [
        ("93.184.215.14", "93.184.215.0/24"),
        ("2606:2800:21f:cb07::1", "2606:2800:21f::/48"),
        ("127.0.0.1", ""),
        ("10.1.2.3", ""),
        ("fd00::1", ""),
    ],
)
def test_only_a_public_address_has_a_block(address: str, block: str) -> None:
    assert block_of(address) == block


@pytest.mark.parametrize("reached_by", [None, *REFUTED])
def test_reached_host_starts_the_count_anew_and_ends_an_outage(reached_by: str | None) -> None:
    """An answer or a failure that shows that the host was reached, which keeps its strike."""
    watch = OutageWatch()
    fail(watch, HOSTS - 1)
    for is_out in (False, True):
        if reached_by is None:
            assert watch.succeeded(0.0) is is_out
        else:
            verdict = FailureVerdict.END if is_out else FailureVerdict.COUNT
            assert watch.failed("a.test", reached_by, 0.0) is verdict
        assert (watch.is_out, watch.open(1.0)) == (False, True)
        assert set(fail(watch, HOSTS - 1, now=ANSWERLESS)) == {FailureVerdict.COUNT}
        watch = in_outage()
        assert set(fail(watch, 10 * HOSTS, OWN[0])) == {FailureVerdict.COUNT}
        assert not watch.open(1.0)


def test_outage_given_up_is_over_and_the_count_begins_anew() -> None:
    watch = in_outage()
    watch.give_up()
    assert (watch.is_out, watch.open(0.0)) == (False, True)
    assert fail(watch, HOSTS) == [FailureVerdict.COUNT] * (HOSTS - 1) + [FailureVerdict.BEGIN]


def test_an_outage_lets_one_probe_out_at_a_time() -> None:
    watch = in_outage(now=100.0)
    assert (watch.since, watch.next_probe) == (100.0, 100.0 + PROBE_EVERY)
    assert not watch.open(watch.next_probe - 0.1)
    assert watch.open(watch.next_probe)
    # Asking is not sending: nothing may have been due.
    assert watch.open(watch.next_probe)
    watch.sent(110.0)
    assert not watch.open(110.0)
    assert not watch.open(110.0 + PROBE_EVERY - 0.1)
    assert watch.open(110.0 + PROBE_EVERY)


def test_without_an_outage_everything_goes_out() -> None:
    watch = OutageWatch()
    for _ in range(3):
        assert watch.open(5.0)
        watch.sent(5.0)


def test_struck_has_the_failures_counted_before() -> None:
    """Since the last answer, and without the failure that is forgiven."""
    watch = OutageWatch()
    fail(watch, 1, prefix="old")
    watch.succeeded(0.0)
    fail(watch, 1, prefix="dead", now=ANSWERLESS, is_evidence=False)
    fail(watch, HOSTS - 2, now=ANSWERLESS)
    fail(watch, 2, now=ANSWERLESS)
    assert fail(watch, 2, prefix="late", now=ANSWERLESS) == [
        FailureVerdict.COUNT,
        FailureVerdict.BEGIN,
    ]
    struck = {f"h{number}.test": 1 for number in range(HOSTS - 2)}
    twice = {"h0.test": 2, "h1.test": 2}
    assert watch.struck == struck | twice | {"dead0.test": 1, "late0.test": 1}


def test_struck_leaves_out_the_certain_failure_that_begins() -> None:
    watch = OutageWatch()
    fail(watch, HOSTS_CERTAIN - 1, "network_down")
    assert watch.failed("last.test", "connect_timeout", 0.0) is FailureVerdict.COUNT
    assert watch.failed("last.test", "network_down", 0.0) is FailureVerdict.BEGIN
    assert watch.struck.pop("last.test") == 1
    assert set(watch.struck.values()) == {1}


@table("kind", [*SUSPECT, *CERTAIN])
def test_in_a_long_outage_only_what_is_certain_is_forgiven(kind: str) -> None:
    watch = in_outage(now=100.0)
    assert watch.failed("a.test", kind, 100.0 + FORGIVEN_FOR - 1) is FailureVerdict.FORGIVE
    late = watch.failed("b.test", kind, 100.0 + FORGIVEN_FOR)
    assert late is (FailureVerdict.FORGIVE if kind in CERTAIN else FailureVerdict.COUNT)
    assert watch.is_out


def test_crawl_with_dead_hosts_alone_ends() -> None:
    """Each probe counts against a host, after a wait of minutes, until the last host is parked."""
    watch, now, probes = OutageWatch(), 0.0, 0
    strikes = dict.fromkeys((f"dead{number}.test" for number in range(50)), 0)
    while left := [host for host, count in strikes.items() if count < 10]:
        now = max(now, watch.next_probe)
        assert watch.open(now)
        watch.sent(now)
        probes += 1
        host = left[probes % len(left)]
        verdict = watch.failed(host, "connect_timeout", now)
        strikes[host] += verdict is FailureVerdict.COUNT
        if verdict is FailureVerdict.BEGIN:
            for name, count in watch.struck.items():
                strikes[name] -= count
    assert now < FORGIVEN_FOR + (len(strikes) * 10 + HOSTS) * PROBE_EVERY


def test_resolver_watch_ignores_other_failures() -> None:
    watch = OutageWatch(RESOLVER)
    assert set(fail(watch, 2 * HOSTS, "connect_timeout")) == {FailureVerdict.COUNT}
    fail(watch, HOSTS - 1, "dns_timeout")
    # It was reached by an address remembered.
    assert watch.failed("a.test", "connect_refused", 0.0) is FailureVerdict.COUNT
    assert fail(watch, 1, "dns_servfail", prefix="last") == [FailureVerdict.BEGIN]
    assert fail(watch, 1, "connect_timeout", prefix="other") == [FailureVerdict.COUNT]


KINDS = st.sampled_from([*SUSPECT, *OWN])
NUMBERS = st.integers(0, 200)


@given(
    st.lists(st.lists(st.tuples(NUMBERS, KINDS, st.floats(0, 10)), max_size=HOSTS - 1), max_size=20)
)
def test_crawl_with_answers_never_pauses(runs: list[list[tuple[int, str, float]]]) -> None:
    """``runs`` are the failures between two answers, fewer than an outage takes."""
    watch, now = OutageWatch(), 0.0
    for run in runs:
        for number, kind, wait in run:
            now += wait
            assert watch.open(now)
            verdict = watch.failed(f"{number}.test", kind, now)
            assert verdict is FailureVerdict.COUNT
        assert not watch.succeeded(now)


@given(
    before=st.lists(st.tuples(NUMBERS, KINDS), max_size=50),
    kinds=st.lists(st.sampled_from([*SUSPECT, *CERTAIN]), min_size=HOSTS, max_size=HOSTS),
    seconds=st.floats(0, WINDOW),
)
def test_crawl_pauses_when_all_fail_and_goes_on_with_an_answer(
    before: list[tuple[int, str]], kinds: list[str], seconds: float
) -> None:
    watch, now = OutageWatch(), 0.0
    for number, kind in before:
        watch.failed(f"{number}.test", kind, now)
    for number, kind in enumerate(kinds):
        watch.failed(f"new{number}.test", kind, seconds * number / HOSTS)
    assert watch.is_out
    assert watch.succeeded(seconds)
    assert not watch.is_out
    assert watch.open(seconds)


EVENTS = st.one_of(
    st.just(("succeeded",)),
    st.just(("sent",)),
    st.tuples(
        st.just("failed"),
        NUMBERS,
        st.sampled_from([*SUSPECT, *CERTAIN, *REFUTED, *OWN]),
        st.booleans(),
    ),
)


@given(st.lists(st.tuples(st.floats(0, 2 * WINDOW), EVENTS), max_size=200))
def test_memory_is_bounded_and_verdicts_report_changes(
    events: list[tuple[float, tuple[str, int, str, bool]]],
) -> None:
    watch, now = OutageWatch(), 0.0
    for wait, (event, *values) in events:
        now += wait
        before, verdict, ended = watch.is_out, None, False
        if event == "succeeded":
            ended = watch.succeeded(now)
        elif event == "sent":
            watch.sent(now)
        else:
            number, kind, _ = values
            verdict = watch.failed(f"{number}.test", kind, now)
            ended = verdict is FailureVerdict.END
        changes = {(False, True): (True, False), (True, False): (False, True)}
        begun_or_ended = (verdict is FailureVerdict.BEGIN, ended)
        assert begun_or_ended == changes.get((before, watch.is_out), (False, False))
        assert len(watch) <= HOSTS
        assert len(watch.struck) <= HOSTS
        assert all(watch.struck.values())
        assert watch.open(now) or watch.is_out
        assert watch.open(now + PROBE_EVERY)

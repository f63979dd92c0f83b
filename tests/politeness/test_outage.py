"""Many hosts fail at once: whose fault it is, and what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    Fault,
    OutageWatch,
    Verdict,
    block_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SUSPECT = sorted(NETWORK.suspect)
CERTAIN = sorted(NETWORK.certain)
# Kinds that are a host's own doing, and show nothing of the network.
OWN = [
    "too_slow",
    "dns_nxdomain",
    "dns_no_address",
    "dns_bad_name",
    "reset",
    "disconnect",
    "local",
    "error",
]


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
) -> list[Verdict]:
    """Let this many hosts fail, each once."""
    return [
        watch.failed(
            f"{prefix}{number}.test", kind, now, is_evidence=is_evidence, domain=domain, block=block
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


@pytest.mark.parametrize("kind", SUSPECT)
def test_outage_begins_when_many_hosts_fail_and_none_answers(kind: str) -> None:
    watch = OutageWatch()
    assert fail(watch, HOSTS, kind) == [Verdict.COUNT] * (HOSTS - 1) + [Verdict.BEGIN]
    assert watch.is_out


def test_fewer_hosts_suffice_for_certain_failures() -> None:
    verdicts = fail(OutageWatch(), HOSTS_CERTAIN, "network_down")
    assert verdicts == [Verdict.COUNT] * (HOSTS_CERTAIN - 1) + [Verdict.BEGIN]


def test_one_failure_suffices_without_name_servers() -> None:
    assert fail(OutageWatch(), 1, "dns_down") == [Verdict.BEGIN]


def test_dead_hosts_prove_nothing_and_are_forgiven() -> None:
    watch = OutageWatch()
    for number in range(3 * HOSTS):
        verdict = watch.failed(f"old{number}.test", "connect_timeout", 0.0, is_evidence=False)
        assert verdict is Verdict.COUNT
    assert fail(watch, HOSTS, "connect_timeout")[-1] is Verdict.BEGIN
    assert watch.struck["old0.test"] == 1


@pytest.mark.parametrize("common", [{"domain": "evil.test"}, {"block": "203.0.113.0/24"}])
def test_hosts_of_one_owner_are_no_outage(common: dict[str, str]) -> None:
    """Subdomains of one domain, or domains in one address block, that answered before."""
    watch = OutageWatch()
    assert set(fail(watch, 10 * HOSTS, **common)) == {Verdict.COUNT}
    # With all of them there is one owner more than those.
    assert fail(watch, HOSTS - 1, prefix="other")[-1] is Verdict.BEGIN


def test_many_blocks_of_one_domain_are_no_outage() -> None:
    watch = OutageWatch()
    for number in range(10 * HOSTS):
        verdict = watch.failed(
            f"h{number}.evil.test",
            "connect_timeout",
            0.0,
            domain="evil.test",
            block=f"203.0.{number}.0/24",
        )
        assert verdict is Verdict.COUNT


def test_other_failures_do_not_displace_evidence() -> None:
    """A page links to hosts that do not answer, while our own network fails."""
    watch = OutageWatch()
    fail(watch, HOSTS - 1)
    assert set(fail(watch, 3 * NOTED, prefix="dead", is_evidence=False)) == {Verdict.COUNT}
    assert len(watch) == NOTED
    assert fail(watch, 1, prefix="last") == [Verdict.BEGIN]


def test_failures_just_after_an_answer_are_no_outage() -> None:
    """Requests that one owner leaves unanswered time out together, between two answers of
    others."""
    watch = OutageWatch()
    watch.succeeded(100.0)
    assert set(fail(watch, 2 * HOSTS, now=100.0 + ANSWERLESS - 0.1)) == {Verdict.COUNT}
    assert fail(watch, 1, now=100.0 + ANSWERLESS, prefix="late") == [Verdict.BEGIN]


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


def test_outage_given_up_is_over_and_the_count_begins_anew() -> None:
    watch = in_outage()
    watch.give_up()
    assert not watch.is_out
    assert watch.open(0.0)
    assert fail(watch, HOSTS) == [Verdict.COUNT] * (HOSTS - 1) + [Verdict.BEGIN]


@pytest.mark.parametrize("kind", OWN)
def test_failures_of_a_host_alone_do_not_count(kind: str) -> None:
    watch = OutageWatch()
    assert set(fail(watch, 10 * HOSTS, kind)) == {Verdict.COUNT}
    watch = in_outage()
    assert set(fail(watch, 10 * HOSTS, kind)) == {Verdict.COUNT}
    assert watch.is_out


def test_one_host_that_fails_for_ever_is_no_outage() -> None:
    watch = OutageWatch()
    for _ in range(10 * HOSTS):
        assert fail(watch, 1, "network_down") == [Verdict.COUNT]


def test_failures_further_apart_than_the_window_do_not_add_up() -> None:
    watch = OutageWatch()
    fail(watch, HOSTS - 1, now=0.0)
    assert fail(watch, 1, now=WINDOW + 0.1, prefix="late") == [Verdict.COUNT]
    assert len(watch) == 1


def test_failures_just_within_the_window_do() -> None:
    watch = OutageWatch()
    fail(watch, HOSTS - 1, now=0.0)
    assert fail(watch, 1, now=WINDOW, prefix="late") == [Verdict.BEGIN]


@pytest.mark.parametrize("kind", [None, *sorted(NETWORK.refuted_by)])
def test_reached_host_starts_the_count_anew(kind: str | None) -> None:
    watch = OutageWatch()
    fail(watch, HOSTS - 1)
    if kind is None:
        assert not watch.succeeded(0.0)
    else:
        assert watch.failed("a.test", kind, 0.0) is Verdict.COUNT
    assert set(fail(watch, HOSTS - 1)) == {Verdict.COUNT}


@pytest.mark.parametrize("kind", sorted(NETWORK.refuted_by))
def test_reached_host_ends_an_outage_and_keeps_its_strike(kind: str) -> None:
    watch = in_outage()
    assert watch.failed("a.test", kind, 1.0) is Verdict.END
    assert not watch.is_out


def test_the_first_answer_ends_an_outage() -> None:
    watch = in_outage()
    assert not watch.open(1.0)
    assert watch.succeeded(0.0)
    assert not watch.is_out
    assert watch.open(1.0)
    assert not watch.succeeded(0.0)


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
    watch = OutageWatch()
    fail(watch, HOSTS - 2)
    fail(watch, 2)
    assert fail(watch, 2, prefix="late") == [Verdict.COUNT, Verdict.BEGIN]
    struck = {f"h{number}.test": 1 for number in range(HOSTS - 2)}
    assert watch.struck == struck | {"h0.test": 2, "h1.test": 2, "late0.test": 1}


def test_struck_leaves_out_the_failure_that_is_forgiven() -> None:
    watch = OutageWatch()
    fail(watch, 2, "network_down")
    fail(watch, 1, "network_down")
    fail(watch, 2, "network_down", prefix="late")
    fail(watch, 1, "connect_timeout", prefix="late")
    assert watch.failed("last.test", "connect_timeout", 0.0) is Verdict.COUNT
    assert watch.failed("last.test", "network_down", 0.0) is Verdict.BEGIN
    assert watch.struck == {
        "h0.test": 2,
        "h1.test": 1,
        "late0.test": 2,
        "late1.test": 1,
        "last.test": 1,
    }


def test_strikes_of_before_the_last_answer_stand() -> None:
    watch = OutageWatch()
    fail(watch, 1, prefix="dead")
    watch.succeeded(0.0)
    fail(watch, HOSTS)
    assert "dead0.test" not in watch.struck


@pytest.mark.parametrize("kind", [*SUSPECT, *CERTAIN])
def test_every_host_is_forgiven_while_an_outage_is_young(kind: str) -> None:
    watch = in_outage(now=100.0)
    late = 100.0 + FORGIVEN_FOR - 1
    assert watch.failed("a.test", kind, late) is Verdict.FORGIVE


def test_in_a_long_outage_only_what_is_certain_is_forgiven() -> None:
    watch = in_outage(now=100.0)
    late = 100.0 + FORGIVEN_FOR
    assert watch.failed("b.test", "connect_timeout", late) is Verdict.COUNT
    assert watch.failed("b.test", "dns_down", late) is Verdict.FORGIVE
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
        strikes[host] += verdict is Verdict.COUNT
        if verdict is Verdict.BEGIN:
            for name, count in watch.struck.items():
                strikes[name] -= count
    assert now < FORGIVEN_FOR + (len(strikes) * 10 + HOSTS) * PROBE_EVERY


def test_resolver_watch_ignores_other_failures() -> None:
    watch = OutageWatch(RESOLVER)
    assert set(fail(watch, 2 * HOSTS, "connect_timeout")) == {Verdict.COUNT}
    fail(watch, HOSTS - 1, "dns_timeout")
    # It was reached by an address remembered.
    assert watch.failed("a.test", "connect_refused", 0.0) is Verdict.COUNT
    assert fail(watch, 1, "dns_servfail", prefix="last") == [Verdict.BEGIN]
    assert fail(watch, 1, "connect_timeout", prefix="other") == [Verdict.COUNT]


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
            assert verdict is Verdict.COUNT
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
        st.sampled_from([*SUSPECT, *CERTAIN, *sorted(NETWORK.refuted_by), *OWN]),
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
            ended = verdict is Verdict.END
        changes = {(False, True): (True, False), (True, False): (False, True)}
        begun_or_ended = (verdict is Verdict.BEGIN, ended)
        assert begun_or_ended == changes.get((before, watch.is_out), (False, False))
        assert len(watch) <= HOSTS
        assert len(watch.struck) <= HOSTS
        assert all(watch.struck.values())
        assert watch.open(now) or watch.is_out
        assert watch.open(now + PROBE_EVERY)

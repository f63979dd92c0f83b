"""The statuses of Gemini in the tables, and the rules of its robots.txt."""

from __future__ import annotations

from krowlspider.frontier.entry_queues import REDIRECTS
from krowlspider.job.answers.host_feedback import WaitCause, cause_of_answer
from krowlspider.politeness.delay import THROTTLING, DelayPolicy, HostRate, SiteDelays
from krowlspider.politeness.gemini import TEMPORARY, PrefixRules, prefix_line, reason_to_drop
from krowlspider.politeness.robots import Ruling, judge
from krowlspider.recrawl.gone import Absence, PageState, is_missing, may_pass
from tests.support.tables import table

# By status: the reason to drop a page, what it means for a robots.txt, and for the row of a page.
MEANINGS = {
    10: ("gemini_input", Ruling.ALLOW_ALL, "passes"),
    11: ("gemini_input", Ruling.ALLOW_ALL, "passes"),
    20: (None, Ruling.RULES, "present"),
    29: (None, Ruling.RULES, "present"),
    30: (None, Ruling.REDIRECT, "says nothing"),
    31: (None, Ruling.REDIRECT, "moved"),
    40: ("gemini_temporary", Ruling.RETRY, "passes"),
    43: ("gemini_temporary", Ruling.RETRY, "passes"),
    44: ("gemini_temporary", Ruling.RETRY, "passes"),
    49: ("gemini_temporary", Ruling.RETRY, "passes"),
    50: ("gemini_permanent", Ruling.ALLOW_ALL, "passes"),
    51: ("gemini_missing", Ruling.ALLOW_ALL, "missing"),
    52: ("gemini_missing", Ruling.ALLOW_ALL, "missing"),
    53: ("gemini_permanent", Ruling.ALLOW_ALL, "passes"),
    59: ("gemini_permanent", Ruling.ALLOW_ALL, "passes"),
    60: ("gemini_certificate", Ruling.ALLOW_ALL, "passes"),
    62: ("gemini_certificate", Ruling.ALLOW_ALL, "passes"),
}


@table("status", MEANINGS)
def test_each_status_has_its_meaning(status: int):
    reason, ruling, row = MEANINGS[status]
    assert reason_to_drop(status) == reason
    assert judge(status) is ruling
    assert may_pass(status) is (row == "passes")
    assert is_missing(status) is (row == "missing")
    before = Absence(PageState.MISSING, 1, 5.0)
    after = {
        "present": Absence(),
        "moved": Absence(PageState.MOVED, 1, 9.0),
        "missing": Absence(PageState.MISSING, 2, 5.0),
    }
    assert before.answered(status, 9.0) == after.get(row, before)


def test_only_44_asks_for_rest():
    """It doubles the delay, and a 4x for robots.txt does so too. Others are ordinary answers."""
    gemini = set(range(10, 70))
    assert gemini & THROTTLING == {44}
    assert gemini & REDIRECTS == set(range(30, 40))
    assert TEMPORARY == set(range(40, 50)) - {44}
    throttled = {status for status in gemini if _cause(status) is WaitCause.THROTTLING}
    assert throttled == {44}
    assert {each for each in gemini if _cause(each, is_robots=True) is WaitCause.THROTTLING} == set(
        range(40, 50)
    )


def _cause(status: int, *, is_robots: bool = False) -> WaitCause:
    return cause_of_answer(status, is_robots=is_robots)


def test_a_page_is_dropped_after_thirty_days_of_51():
    day, absence = 86_400.0, Absence()
    for days in (0, 1, 3, 7, 15):
        absence = absence.answered(51, days * day)
        assert not absence.is_dropped(days * day)
    assert absence.is_tombstone
    assert absence.answered(51, 31 * day).is_dropped(31 * day)


@table(
    ("prefixes", "path", "allowed"),
    [
        ([], "/a", True),
        ([""], "/a", True),
        (["/a"], "/a", False),
        (["/a"], "/ab?c", False),
        (["/a"], "/", True),
        (["/a/"], "/a", True),
        (["/"], "/a", False),
        (["/"], "/robots.txt", True),
        (["/%7ejo"], "/~jo/x", False),
        (["/~jo"], "/%7Ejo/x", False),
        (["/é"], "/%C3%A9", False),
        # The wildcards of the web are texts here. Both readings hold.
        (["/*.gif"], "/*.gif", False),
        (["/*.gif"], "/a/b.gif", False),
        (["/a$"], "/a", False),
        (["/a$"], "/ab", True),
        (["/a$"], "/a$b", False),
        (["/?"], "/?q", False),
    ],
)
def test_prefixes_are_disallowed(prefixes: list[str], path: str, allowed: bool):
    assert PrefixRules(prefixes).allowed(f"gemini://a.test{path}") is allowed


def test_the_size_of_rules_grows_with_them():
    assert PrefixRules.allow_all().size == 1
    assert PrefixRules([f"/{number}" for number in range(1000)]).size > 1000


def test_the_line_that_decides_is_named():
    body = b"User-agent: *\nDisallow: /a # here\nDisallow: /a/b\nDisallow:\n"
    line = prefix_line(body, "gemini://a.test/a/c")
    assert line is not None
    assert (line.number, line.text) == (2, "Disallow: /a # here")
    assert prefix_line(body, "gemini://a.test/c") is None


def test_delays_of_two_kinds_hold_together():
    policy = DelayPolicy(1.0, 0.25, 30.0, 300.0)
    first = SiteDelays.over(policy, lambda host: 3.0 if host == "a:1965" else 0.0, 3.0)
    both = SiteDelays.over(first, lambda host: 1.0 if host.endswith(":1965") else 0.0, 1.0)
    wait = {host: both.of(host).delay(HostRate()) for host in ("a:1965", "b:1965", "c")}
    assert wait == {"a:1965": 3.0, "b:1965": 1.0, "c": 0.25}
    assert both.longest_least == 3.0

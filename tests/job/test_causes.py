"""Each cause of a drop and of a wait, as a running crawl explains it: made to happen, and read."""

from __future__ import annotations

import asyncio
import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.archive.cdxj import index_path
from krowlspider.engine.control import Control
from krowlspider.engine.steering import Steering
from krowlspider.fetch import errors
from krowlspider.job.explain import _COUNTED, Explanation
from krowlspider.job.meters import _DROPPED, REFUSED, words_of_drop
from krowlspider.job.parts import trap_rules
from krowlspider.urls.scope import Scope, ScopeRules
from tests.frontier.memory import MemoryStore
from tests.support.simulation import Answer, Simulation, Web

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


KINDS: dict[str, type[errors.FetchError]] = {
    kind.kind.replace("_", "-"): kind
    for kind in (
        errors.AddressForbidden,
        errors.ConnectTimeout,
        errors.FirstByteTimeout,
        errors.NameNotFound,
        errors.PortForbidden,
        errors.TooLarge,
        errors.TotalTimeout,
        errors.TLSFailed,
    )
}
# Rules that take long to match LONG.
WILD = "".join(f"Disallow: /*{'a' * 100}aab{'a' * 98}*{number}\n" for number in range(2000))
LONG = "a" * 1000 + "aab" + "a" * 900
RULES = {
    "robots": "Disallow: /x",
    "robots-undecided": WILD,
    "crawl-delay": "Crawl-delay: 999",
    "slow-robots": "Crawl-delay: 60",
}


class Troubled(Web):
    """Hosts whose first label says what happens there; /slow takes a minute everywhere."""

    def answer(self, host: str, path: str, now: float) -> Answer:
        name = host.partition(".")[0]
        if name in {"no-https", "dns-nxdomain"}:
            return Answer(0.1, failure=KINDS.get(name, errors.ConnectionLost))
        if path == "/robots.txt":
            if name == "elsewhere":
                return Answer(0.1, 301, location="http://other.test/slow/robots.txt")
            latency = 60.0 if name.startswith("mute") else 0.1
            return Answer(latency, body=f"User-agent: *\n{RULES.get(name, '')}\n".encode())
        if name == "throttled":
            return Answer(0.1, 429, retry_after="100" if path == "/later" else None)
        if name == "lost":
            return Answer(0.1, failure=errors.ConnectionLost)
        return Answer(60.0 if path.startswith("/slow") else 0.1, failure=KINDS.get(name))

    def address(self, host: str) -> str:
        """Return an address of its own block, or for hosts of ip.test the one in their name."""
        name = host.partition(".")[0]
        if host.endswith(".ip.test"):
            return f"203.0.113.{name[1:]}"
        return f"198.18.{sum(name.encode()) % 256}.1"

    def links(self, host: str, path: str) -> list[str]:
        return []


# --- drops ---

DROPPED_TOO = ("robots", "robots-undecided", "no-https", "crawl-delay", "throttled", "ex")
# What a spider, a middleware, a restart or a bug causes.
_ELSEWHERE = {
    *("stopped", "ignored", "not_awaited", "error", "robots_unreachable"),
    # Of Gemini: tests/whole_crawls/test_gemini.py.
    *("gemini_input", "gemini_temporary", "gemini_permanent", "gemini_missing"),
    *("gemini_certificate", "redirect_scheme"),
    # Of seeds with words: tests/whole_crawls/test_seed_words.py.
    *("seed_depth", "seed_pages"),
    # Of a hook: tests/hooks.
    "hook",
    # Of sheets: tests/whole_crawls/test_policies.py and test_site_policies.py.
    *("sheet_depth", "head_type", "max_bytes", "max_pages", "max_seconds"),
    *("sheet_exclude", "sheet_include"),
}


def url_of(name: str) -> str:
    scheme = "https" if name == "no-https" else "http"
    return f"{scheme}://{name}.test/{LONG if name == 'robots-undecided' else 'x'}"


@pytest.fixture(scope="module")
def drops(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Explanation]:
    """The explanation of a page that was dropped, by its reason."""
    names = [name for name in (*KINDS, *DROPPED_TOO) if name != "dns-nxdomain"]

    async def run() -> dict[str, Explanation]:
        overrides = {
            "RETRY_TIMES": 0,
            "KROWL_RETRY_DELAY": 0.01,
            "KROWL_DELAY_MIN": 0,
            "KROWL_DELAY_FACTOR": 0,
        }
        crawl = begun(tmp_path_factory.mktemp("drops"), overrides)
        crawl.scheduler.intake.discover(
            map(url_of, names), depth=0, bare=frozenset({url_of("no-https")})
        )
        crawl.scheduler.intake.exclusions.patterns = (re.compile(r"\bex\b"),)
        crawl.run_until(crawl.clocks.monotonic + 60)
        control = Control(crawl.crawler)  # type: ignore[arg-type]
        reasons = {lease.entry.url: reason or "done" for lease, reason in crawl.job.frontier.recent}
        return {reasons[url_of(name)]: control.explain(url_of(name)) for name in names}

    return asyncio.run(run())


def begun(folder: Path, overrides: dict[str, Any], **more: Any) -> Simulation:
    crawl = Simulation(Troubled(), lambda _: MemoryStore(), folder, overrides, **more)
    crawl.job.folder.path = folder
    return crawl


@pytest.mark.parametrize("reason", sorted({*_DROPPED, "tls"} - _ELSEWHERE))
def test_a_drop_names_its_reason_and_the_setting(
    drops: dict[str, Explanation], reason: str
) -> None:
    found = drops[reason]
    words, setting = words_of_drop(reason)
    if reason == "robots":
        words = "http://robots.test/robots.txt forbids it by line 2: Disallow: /x"
    last = "; status 429, 0 bytes" if reason == "throttled" else ""
    assert found.state == "dropped"
    assert found.why == f"It was dropped just now: {words}{last}."
    assert found.setting == setting


def test_a_seed_without_https_fell_back(drops: dict[str, Explanation]) -> None:
    found = drops["fallback"]
    assert (found.state, found.setting) == ("fell back", "")
    assert found.why == "Its host has no https: the seed goes on with its http URL."


@pytest.mark.parametrize(
    ("reason", "url"),
    [
        ("length", "http://a.test/" + "l" * 300),
        ("port", "http://a.test:25/"),
        ("deny", "http://a.test/no/x"),
        ("allow", "http://b.other/x"),
        ("path_depth", "http://a.test" + "/a/b" * 40),
        ("repeated_segments", "http://a.test/s/s/s/s/s/s/s/s"),
        ("extension", "http://a.test/x.zip"),
        ("calendar", "http://a.test/calendar/2099/01/"),
        ("exclude", "http://a.test/ex"),
    ],
)
def test_a_refused_link_names_the_rule(tmp_path: Path, reason: str, url: str) -> None:
    async def run() -> None:
        crawl = begun(tmp_path, {"URLLENGTH_LIMIT": 250})
        rules = ScopeRules(deny=("/no/",), allow=(r"\.test",))
        intake = crawl.scheduler.intake
        traps = trap_rules(crawl.crawler.settings)
        intake.scope = Scope(rules, max_url_length=250, traps=traps)
        intake.exclusions.patterns = (re.compile("/ex$"),)
        crawl.discover([url], via="a.test")
        assert crawl.job.frontier.counters[f"dropped/{reason}"] == 1
        found = Control(crawl.crawler).explain(url)  # type: ignore[arg-type]
        words, setting = REFUSED[reason]
        assert (found.state, found.setting) == ("refused", setting)
        assert found.why == f"It is not queued where it is found: {words}."

    asyncio.run(run())


@pytest.mark.parametrize(
    ("reason", "rules"),
    [
        ("depth", {"max_depth": 0}),
        ("host", {"same_host": True}),
        ("domain", {"same_domain": True}),
        ("port", {}),
        ("domain_budget", {}),
    ],
)
def test_a_refusal_that_is_only_counted_is_named(
    tmp_path: Path, reason: str, rules: dict[str, Any]
) -> None:
    host = {"port": "b.test:8123", "domain_budget": "a.test"}.get(reason, "b.test")
    url = f"http://{host}/x"

    async def run() -> None:
        crawl = begun(tmp_path, {"KROWL_DOMAIN_BUDGET": 1, "KROWL_PORTS": []})
        crawl.scheduler.intake.scope = Scope(ScopeRules(**rules), max_url_length=250)
        crawl.discover(["http://a.test/"])
        crawl.discover([url], via="a.test")
        found = Control(crawl.crawler).explain(url)  # type: ignore[arg-type]
        # It is not known which of the refused URLs it was.
        assert (found.state, found.setting) == ("unknown", "")
        assert f" by {_COUNTED[reason]} 1. scrapy frontier --import" in found.why

    asyncio.run(run())


# --- waits ---


@dataclass
class Wait:
    """A crawl of ``urls`` for ``seconds``, then ``more``; and why /z of ``host`` waits."""

    host: str
    words: str
    setting: str = ""
    urls: list[str] = field(default_factory=list)
    seconds: float = 9.0
    overrides: dict[str, Any] = field(default_factory=dict)
    more: Callable[[Simulation], object] = lambda _: None
    may_fetch: Callable[[str], bool] | None = None


def pages(*hosts: str, first: object = "slow") -> list[str]:
    return [f"http://{host}.test/{page}" for host in hosts for page in (first, "z")]


def strangers(crawl: Simulation) -> None:
    # So many that one is always due.
    for name in (f"s{number}.test" for number in range(60)):
        crawl.discover([f"http://{name}/{page}" for page in range(15)], via=name)
    crawl.discover(pages("a", "b"), via="seed.test")
    crawl.run_until(crawl.clocks.monotonic + 8)


def mutes(crawl: Simulation) -> None:
    crawl.discover(pages("mute0", "mute1", "mute2"))
    crawl.run_until(crawl.clocks.monotonic + 5)


def limited(crawl: Simulation) -> None:
    crawl.scheduler.budget.left = crawl.scheduler.budget.total = 50
    crawl.discover(["http://a.test/slow"])
    crawl.discover(pages("b"), via="a.test")
    crawl.run_until(crawl.clocks.monotonic + 5)


EIGHT = {"CONCURRENT_REQUESTS": 8}
ROOM = "It waits for room: at most "
WAITS = {
    "in flight": Wait("a", "A request to it is under way.", urls=pages("a")),
    "due": Wait("b", "It is due.", urls=pages("a", "b"), overrides={"CONCURRENT_REQUESTS": 1}),
    "seeds": Wait(
        "b",
        "Seeds are fetched before it, as pages are limited.",
        "max_pages",
        seconds=0,
        more=limited,
    ),
    "domain": Wait(
        "c.one",
        f"{ROOM}2 requests to its domain one.test may be in flight.",
        "KROWL_DOMAIN_CONCURRENCY",
        urls=pages("a.one", "b.one", "c.one"),
    ),
    "called": Wait(
        "c.one",
        "It is the next to be fetched: there is room at its domain and address.",
        urls=pages("a.one", "b.one", "c.one"),
        seconds=59,
        more=lambda crawl: crawl.run_until(crawl._events[0][0]),
    ),
    "address": Wait(
        "b1.ip",
        f"{ROOM}1 request to its address 203.0.113.1 may be in flight.",
        "KROWL_IP_CONCURRENCY",
        urls=pages("a1.ip", "b1.ip"),
        overrides={"KROWL_IP_CONCURRENCY": 1},
    ),
    "address delay": Wait(
        "b1.ip",
        "Its address 203.0.113.1 may not be asked again yet.",
        "KROWL_IP_DELAY_MIN",
        urls=pages("a1.ip", "b1.ip", first="quick"),
        overrides={"KROWL_IP_DELAY_MIN": 20},
    ),
    "block": Wait(
        "a3.ip",
        f"{ROOM}2 requests to its block of addresses 203.0.113 may be in flight.",
        "CONCURRENT_REQUESTS",
        urls=pages("a1.ip", "a2.ip", "a3.ip"),
        overrides={"KROWL_IP_CONCURRENCY": 1, "KROWL_DOMAIN_CONCURRENCY": 9, **EIGHT},
    ),
    "origin": Wait(
        "b",
        f"{ROOM}1 request to the hosts that were found by the same domain may be in flight.",
        "CONCURRENT_REQUESTS",
        urls=pages("other"),
        seconds=1,
        overrides=EIGHT,
        more=strangers,
    ),
    "crowd": Wait(
        "mute2",
        f"{ROOM}2 requests to the hosts that are not known to answer soon may be in flight.",
        "CONCURRENT_REQUESTS",
        urls=[f"http://k{n}.test/{page}" for n in range(5) for page in ("quick", "slow")],
        overrides=EIGHT,
        more=mutes,
    ),
    "robots elsewhere": Wait(
        "elsewhere",
        "Its robots.txt redirects to another host, which is asked for it first.",
        urls=pages("elsewhere"),
    ),
    "held": Wait(
        "a",
        "This node does not own its domain at the moment, or is waiting to know.",
        urls=pages("a"),
        may_fetch=lambda _: False,
    ),
    "sealed": Wait(
        "a",
        "It is being handed over to another node.",
        urls=pages("a"),
        seconds=3,
        overrides={"KROWL_DELAY_MIN": 20},
        more=lambda crawl: crawl.job.frontier.schedule.ownership.seal("a.test"),
    ),
    "least delay": Wait(
        "a",
        "It is due in 25.1 s, because of its least delay of 30 s.",
        "KROWL_DELAY_MIN",
        urls=pages("a", first="x"),
        seconds=5,
        overrides={"KROWL_DELAY_MIN": 30},
    ),
    "ordered delay": Wait(
        "a",
        "because of its least delay of 90 s, which a person set.",
        "KROWL_DELAY_MIN",
        urls=pages("a", first="x"),
        seconds=0.3,
        more=lambda crawl: Steering(crawl.crawler, "a test").stand("delay", "a.test", 90.0),
    ),
    "delay": Wait(
        "a",
        "It is due in 2.1 s, because of its delay.",
        "KROWL_DELAY_FACTOR",
        urls=pages("a", first="x"),
        seconds=3,
        overrides={"KROWL_DELAY_FACTOR": 50},
    ),
    "longest delay": Wait(
        "a",
        "It is due in 2.1 s, because of its delay.",
        "KROWL_DELAY_MAX",
        urls=pages("a", first="x"),
        seconds=3,
        overrides={"KROWL_DELAY_FACTOR": 500, "KROWL_DELAY_MAX": 5},
    ),
    "crawl-delay": Wait(
        "slow-robots",
        "because of the crawl-delay of its robots.txt.",
        "KROWL_CRAWL_DELAY_MAX",
        urls=pages("slow-robots", first="x"),
    ),
    "throttling": Wait(
        "throttled",
        "because of its delay, doubled 2 times after answers 429 or 503.",
        "KROWL_DELAY_MAX",
        urls=[f"http://throttled.test/{page}" for page in (*range(6), "z")],
        seconds=3,
    ),
    "Retry-After": Wait(
        "throttled",
        "because of the Retry-After of an answer 429 or 503.",
        "",
        urls=pages("throttled", first="later"),
    ),
    "backoff": Wait(
        "lost",
        "because of the backoff after 4 errors in a row.",
        "KROWL_DELAY_MAX",
        urls=[f"http://lost.test/{page}" for page in (*range(6), "z")],
    ),
    "retries": Wait(
        "lost",
        "All its queued URLs are retries, the first due in ",
        "KROWL_RETRY_DELAY",
        urls=["http://lost.test/z"],
    ),
    "no such name": Wait(
        "dns-nxdomain",
        "It is deferred because the DNS does not know its name; it is tried again in 2",
        urls=pages("dns-nxdomain"),
        seconds=40,
    ),
    "paused crawl": Wait(
        "a",
        "The crawl is paused by a person: ",
        urls=pages("a"),
        more=lambda crawl: crawl.job.pause(),
    ),
}


@pytest.mark.parametrize("cause", WAITS)
def test_a_wait_names_its_cause_and_the_setting(tmp_path: Path, cause: str) -> None:
    wait = WAITS[cause]

    async def run() -> Explanation:
        crawl = begun(tmp_path, wait.overrides, may_fetch=wait.may_fetch)
        crawl.discover(wait.urls)
        crawl.run_until(crawl.clocks.monotonic + wait.seconds)
        wait.more(crawl)
        return Control(crawl.crawler).explain(f"http://{wait.host}.test/z")

    found = asyncio.run(run())
    assert found.state == "queued"
    assert wait.words in found.why.partition(" The host: ")[2]
    assert found.setting == wait.setting


def test_a_running_crawl_reads_a_bounded_number_of_indexes(tmp_path: Path) -> None:
    """Reading those of 10,000 files would block the event loop for a second."""
    folder = tmp_path / "warc"
    folder.mkdir()
    fields = {"url": "http://a.test/x", "filename": "000.warc.gz", "offset": "0", "length": "9"}
    line = f"test,a)/x 20260101000000 {json.dumps(fields)}\n"

    async def run() -> list[str]:
        crawl = begun(tmp_path, {})
        crawl.discover(["http://a.test/x"])
        crawl.run_until(crawl.clocks.monotonic + 9)
        crawl.job.frontier.recent.clear()
        control = Control(crawl.crawler)  # type: ignore[arg-type]
        said = []
        for number in range(101):
            warc = folder / f"{number:03}.warc.gz"
            index_path(warc).write_text("" if number else line)
            warc.touch()
            os.utime(warc, (0, 0))
            if number >= 99:
                said.append(control.explain("http://a.test/x").why)
        return said

    with_all, with_more = asyncio.run(run())
    assert with_all.startswith("It was fetched at 2026-01-01 ")
    assert "none of the newest 100 indexes of the archive has a capture" in with_more

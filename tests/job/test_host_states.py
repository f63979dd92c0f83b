"""The states of hosts that `scrapy frontier --host` shows after a crawl in simulated time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from krowlspider.fetch import errors
from krowlspider.frontier.admin.view import HostView, view_host
from tests.frontier.memory import MemoryStore
from tests.support.simulation import Answer, Simulation, Web

if TYPE_CHECKING:
    from pathlib import Path


# Seconds of the crawl: longer than waits of minutes, shorter than the hour until the next round.
LONG = 1500.0
# Seconds of Retry-After of the busy host; as a Crawl-delay it is too long.
REST = 3000


class Trouble(Web):
    """One host of each kind of trouble."""

    def answer(self, host: str, path: str, now: float) -> Answer:
        if path.endswith("/robots.txt"):
            return self.robots(host, path)
        at_first = host == "once.test" and not self.was_asked(host, path)
        if host == "deaf.test" or (at_first and path == "/0"):
            return Answer(0.1, failure=errors.ConnectionLost)
        if host == "busy.test" and path != "/0":
            return Answer(0.1, 503, retry_after=str(REST), rest=float(REST))
        return Answer(0.1)

    def robots(self, host: str, path: str) -> Answer:
        if host == "waiting.test":
            # The answer comes when the redirect's target, the busy host, rests.
            return Answer(20.0, 301, location="http://busy.test/its/robots.txt")
        if host == "broken.test":
            return Answer(0.1, 500)
        delay = f"Crawl-delay: {REST}" if host == "tooslow.test" else ""
        return Answer(0.1, body=f"User-agent: *\n{delay}\n".encode())

    def was_asked(self, host: str, path: str) -> bool:
        return any((entry.host, entry.path) == (host, path) for entry in self.log)

    def address(self, host: str) -> str:
        return "203.0.113.1"

    def links(self, host: str, path: str) -> list[str]:
        return []


HOSTS = ("ordinary", "once", "busy", "waiting", "deaf", "broken", "tooslow")


def after(seconds: float, folder: Path) -> dict[str, HostView]:
    """Return the view of each host after ``seconds`` of a crawl of three pages of each."""

    async def run() -> dict[str, HostView]:
        crawl = Simulation(Trouble(), lambda _: MemoryStore(), folder)
        crawl.discover(f"http://{host}.test/{page}" for page in range(3) for host in HOSTS)
        crawl.run_until(crawl.clocks.monotonic + seconds)
        store, rule, wall = crawl.store, crawl.job.rule, crawl.clocks.wall
        return {host: view_host(store, f"{host}.test", rule, wall, most=9) for host in HOSTS}

    return asyncio.run(run())


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> dict[str, HostView]:
    return after(LONG, tmp_path_factory.mktemp("trouble"))


@pytest.mark.parametrize(
    ("host", "shown", "why"),
    [
        ("ordinary", ("active", 3, 0), "Nothing of it is queued."),
        ("once", ("active", 3, 0), "Nothing of it is queued."),
        ("busy", ("backing off", 1, 2), "because of the Retry-After of an answer 429 or 503."),
        ("waiting", ("waiting for robots", 0, 3), "It is due"),
        ("deaf", ("deferred", 0, 1), "It is deferred after 8 errors in a row"),
        ("broken", ("deferred", 0, 3), "It is deferred because its robots.txt cannot be fetched"),
        ("tooslow", ("retired", 0, 0), "It is retired: its robots.txt asks for 3000 s"),
    ],
)
def test_the_state_of_a_host_says_how_it_has_answered(
    views: dict[str, HostView], host: str, shown: tuple[str, int, int], why: str
) -> None:
    """``shown``: its state, the pages done and the pages queued."""
    view = views[host]
    assert (view.state, view.host.done, view.host.queued) == shown
    assert why in view.why

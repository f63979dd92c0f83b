"""Small webs, crawls of them, and checks of both, for many tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krowlspider.frontier.entry_queues import REDIRECTS
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.mockweb.graph import DEFAULT_FEATURES
from tests.mockweb.robots import allowed_at, delay_at
from tests.support.crawling import Crawl, write_seeds
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.mockweb.log import Entry

AnyWeb = MockWeb | SimulatedWeb
# Seconds, as in `tests.support.crawling.SETTINGS`.
DELAY = 0.05
QUICK = DEFAULT_FEATURES - {"crawl_delay", "busy"}
AT_ONCE = {"KROWL_DELAY_MIN": 0, "KROWL_DELAY_FACTOR": 0}


def page(path: str, body: str, **more: Any) -> dict[str, Any]:
    """Return the rule of a mock web for a page."""
    return {"path": path, "headers": {"Content-Type": "text/html"}, "body": body, **more}


ROBOTS = page("/robots.txt", "", status=404)


def anchors(*urls: object) -> str:
    """Return the HTML of links to these URLs."""
    return "".join(f"<a href={url}>x</a>" for url in urls)


def crawl_of(web: AnyWeb, folder: Path, seeds: list[str] | None = None, **more: Any) -> Crawl:
    """Return a crawl of a mock web from its seeds; simulated if the web is.

    ``arguments`` and ``settings`` are those of `Crawl`.
    """
    arguments = dict(more.pop("arguments", {}))
    arguments["seeds"] = write_seeds(folder / "seeds.txt", seeds or web.seeds())
    return crawl_class(web)(folder / "job", arguments=arguments, **more)


def crawled(
    folder: Path,
    spec: Iterable[Mapping[str, Any]],
    *seeds: str,
    arguments: Mapping[str, object] | None = None,
    code: int = 0,
    **settings: Any,
) -> tuple[Crawl, list[Entry]]:
    """Crawl a simulated web of these rules from seeds such as ``a.test/page``.

    Return the crawl, and the log of the web.
    """
    with SimulatedWeb(spec=[*spec]) as web:
        urls = [
            web.url(host, f"/{path}") for host, _, path in (seed.partition("/") for seed in seeds)
        ]
        crawl = crawl_of(web, folder, urls, arguments=arguments or {}, settings=settings)
        return crawl.run(code=code), web.log()


def crawl_class(web: AnyWeb) -> type[Crawl]:
    """Return the class of crawls that can reach a web."""
    return SimulatedCrawl if isinstance(web, SimulatedWeb) else Crawl


def one_page(web: AnyWeb, folder: Path, path: str, code: int = 0, **settings: Any) -> Crawl:
    """Crawl from one page, without retries."""
    return crawl_of(
        web, folder, [web.url("a.test", path)], settings={"RETRY_TIMES": 0, **settings}
    ).run(code=code)


def crawl_raw(folder: Path, seeds: Iterable[str], code: int = 0, **settings: Any) -> Crawl:
    """Crawl from these seeds, without retries and without delays."""
    quick = {"RETRY_TIMES": 0, "KROWL_DELAY_MIN": 0, "KROWL_DELAY_FACTOR": 0}
    return SimulatedCrawl(
        folder / "job",
        arguments={"seeds": write_seeds(folder / "seeds.txt", seeds)},
        settings={**quick, **settings},
    ).run(code=code)


def refused(crawl: Crawl, code: int = 2) -> str:
    """Run a crawl that must not start; return the one line that it ends with."""
    crawl.run(code=code)
    assert "Traceback" not in crawl.log, crawl.log
    errors = [line for line in crawl.log.splitlines() if line.startswith("krowlspider: ")]
    assert len(errors) == 1, crawl.log
    return errors[0]


def pages(entries: list[Entry]) -> list[Entry]:
    """Return the requests other than for robots.txt."""
    return [entry for entry in entries if entry.path != "/robots.txt"]


def done_in(figures: Mapping[str, Any]) -> int:
    """Return how many URLs of all kinds are done, robots.txt left out, by stats or by the view of a
    frontier."""
    start = "krowl/frontier/fetched_count/"
    fetched = figures.get("fetched") or {
        name.removeprefix(start): count for name, count in figures.items() if start in name
    }
    return sum(count for kind, count in fetched.items() if kind != "robots")


def is_redirect(entry: Entry) -> bool:
    """Return whether an answer is no page but a redirect."""
    return entry.status in REDIRECTS


def paths(entries: list[Entry]) -> list[str]:
    """Return the paths of the requests other than for robots.txt."""
    return [entry.path for entry in pages(entries)]


def impolite(
    web: AnyWeb, delay: float = DELAY, entries: Iterable[Entry] | None = None
) -> list[str]:
    """Return the violations in the log of a web that is a graph, or in these entries."""
    return violations(
        web.log() if entries is None else entries,
        min_delay=lambda host: delay_at(web.graph, host, delay),
        allowed=lambda host, path: allowed_at(web.graph, host, path),
    )


def failures(crawl: Crawl) -> dict[str, int]:
    """Return the number of failed fetches by their reason."""
    return _under("krowl/fetch/failed_count/", crawl.stats)


def dropped(crawl: Crawl) -> dict[str, int]:
    """Return the number of dropped URLs by their reason."""
    return _under("krowl/frontier/dropped_count/", crawl.stats)


def _under(prefix: str, stats: dict[str, Any]) -> dict[str, int]:
    return {
        name.removeprefix(prefix): count for name, count in stats.items() if name.startswith(prefix)
    }


def status_lines(crawl: Crawl) -> int:
    """Return the number of status lines of a crawl that is paused by a full disk."""
    return crawl.log.count("| paused: no room in ")

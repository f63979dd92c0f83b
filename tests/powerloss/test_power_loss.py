"""After a power loss no URL is lost, nor the record of a page that was counted."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from redis import Redis

from krowlspider.archive.tools.check import check_folder
from krowlspider.job.folder import JobFolder, JobHead
from krowlspider.urls.scope import ScopeRules
from tests.cluster.register_nodes import found, supervisor_register
from tests.cluster.servers import redis_server
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.mockweb.identity import identity
from tests.mockweb.oracle import reachable
from tests.powerloss.disk import BUFFER, SMALL_BUFFER, Loss, WatchedCrawl, lose_power
from tests.powerloss.survivors import Survivors
from tests.support.crawling import frontier_view, scrapy, write_seeds
from tests.support.crawls import DELAY, pages

if TYPE_CHECKING:
    from pathlib import Path

# Without the pages that answer 429 first: a death in between would let them answer it again.
GRAPH = Graph(hosts=18, pages=12, seed=4, features=DEFAULT_FEATURES - {"busy", "crawl_delay"})
SETTINGS = {
    "KROWL_COMMIT_INTERVAL": 0.1,
    "KROWL_STATUS_INTERVAL": 0.1,
    # Several files in a crawl.
    "KROWL_WARC_MAX_SIZE": 150_000,
}
# Some commits before the death.
SLOWER = {"KROWL_DELAY_MIN": 2 * DELAY}


def crawl_of(web: MockWeb, folder: Path, seeds: list[str], **more: Any) -> WatchedCrawl:
    settings = {**SETTINGS, **more.pop("settings", {})}
    arguments = {"seeds": write_seeds(folder / "seeds.txt", seeds)}
    journal = folder / "journal"
    return WatchedCrawl(
        folder / "job", arguments=arguments, settings=settings, journal=journal, feed=False, **more
    )


def pages_done(crawl: WatchedCrawl) -> int:
    """Return how many pages the crawl has reported as done since its start."""
    status = JobFolder(crawl.jobdir).read_status()
    return 0 if status is None else int(str(status["done"]))


def fetched(web: MockWeb) -> set[str | None]:
    return {identity(entry.url) for entry in pages(web.log())}


def run_a_while(crawl: WatchedCrawl, web: MockWeb, chance: random.Random) -> None:
    """Wait for some commits and some more requests, so that deaths differ."""
    some = chance.randrange(1, 30)
    crawl.wait_until(lambda: pages_done(crawl) >= some)
    goal = len(web.log()) + chance.randrange(20)
    crawl.wait_until(lambda: len(web.log()) >= goal)


def lose(crawl: WatchedCrawl, loss: Loss, chance: random.Random) -> Survivors:
    lose_power(crawl.jobdir, crawl.journal, loss, chance)
    # Not made to last; the next start removes it, and is not to be taken for one that has said
    # this.
    (crawl.jobdir / "status.json").unlink(missing_ok=True)
    if loss is Loss.TORN:
        # LevelDB takes half a record with more behind it for damage: the start refuses, and says
        # what mends it.
        scrapy("frontier", crawl.jobdir, "--repair")
    return Survivors.of(crawl.jobdir)


def survive(
    folder: Path, loss: Loss, seed: int, *, losses: int, write_buffer: int, save_every: int
) -> None:
    """Lose power so many times at random moments, then crawl to the end."""
    chance = random.Random(seed)
    with MockWeb(graph=GRAPH) as web:
        expected = reachable(web.graph, web.seeds())
        more = {"write_buffer": write_buffer, "save_every": save_every}
        again = done = 0
        for _ in range(losses):
            crawl = crawl_of(web, folder, web.seeds(), settings=SLOWER, **more).start()
            run_a_while(crawl, web, chance)
            crawl.kill()
            promised = done + pages_done(crawl)
            left = lose(crawl, loss, chance)
            assert left.faults(expected.identities, expected.refused) == []
            assert left.done >= promised
            done = left.done
            again += len(fetched(web)) - done
        crawl = crawl_of(web, folder, web.seeds(), **more).run()
        assert expected.differences(web.log(), at_least=True) == []
        assert len(pages(web.log())) - len(fetched(web)) <= again
        assert violations(web.log(), min_delay=DELAY) == []
        assert frontier_view(crawl.jobdir)["queued"] == 0
        report = check_folder(crawl.jobdir / "warc")
        assert (report.open_files, report.problems) == (0, [])
        left = Survivors.of(crawl.jobdir)
        assert left.faults(expected.identities, expected.refused) == []
        assert {left.hasher.key(url) for url in expected.identities} <= left.archived


def test_invariants_4_and_5_hold_when_unsynced_bytes_are_lost(tmp_path: Path) -> None:
    survive(tmp_path, Loss.CUT, 1, losses=1, write_buffer=BUFFER, save_every=0)


@pytest.mark.slow
@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("write_buffer", [SMALL_BUFFER, BUFFER])
def test_invariants_4_and_5_hold_however_much_reaches_the_disk(
    tmp_path: Path, loss: Loss, write_buffer: int
) -> None:
    """With a small buffer LevelDB has several logs at a time; the seen filter is saved every so
    often."""
    survive(tmp_path, loss, 2, losses=2, write_buffer=write_buffer, save_every=40)


LEAVES = [f"/leaf{number}?{'x' * 1900}" for number in range(40)]
# A root, a branch, and leaves: the branch's links alone fill the small buffer, so that the next
# write begins a log.
BRANCHED: list[dict[str, Any]] = [
    {"path": "/", "body": "<a href='/branch'>x</a>"},
    {"path": "/branch", "body": "".join(f"<a href='{leaf}'>x</a>" for leaf in LEAVES)},
    {"path": "^/leaf", "body": "a leaf"},
]


@pytest.mark.slow
def test_an_acknowledgement_does_not_outlive_its_links(
    tmp_path: Path,
) -> None:
    """Power is lost when the branch is acknowledged, its links still in the log before and in no
    table."""
    with MockWeb(spec=BRANCHED) as web:
        urls = [web.url("127.0.0.1", path) for path in ["/", "/branch", *LEAVES]]
        crawl = crawl_of(
            web,
            tmp_path,
            urls[:1],
            # The root is committed before the branch is asked for.
            settings={"KROWL_DELAY_MIN": 0.5},
            write_buffer=SMALL_BUFFER,
            die_between_logs=True,
        )
        crawl.start().wait(code=-9)
        left = lose(crawl, Loss.CUT, random.Random(0))
        assert left.faults(urls) == []
        assert left.done > 0
        crawl_of(web, tmp_path, urls[:1], settings={"KROWL_DELAY_MIN": 0.01}).run()
        assert fetched(web) == set(urls)
        assert Survivors.of(crawl.jobdir).faults(urls) == []


def test_new_scope_survives_a_power_loss(tmp_path: Path) -> None:
    with MockWeb(spec=[{"path": "^/", "body": "a page"}]) as web:
        url = web.url("127.0.0.1")
        crawl_of(web, tmp_path, [url]).run()
        crawl = crawl_of(web, tmp_path, [url, f"{url}slow"], settings={"KROWL_DELAY_MIN": 30})
        crawl.arguments = {**crawl.arguments, "max_depth": 1, "scope": "new"}
        crawl.start().wait_until(lambda: "Crawl: spider" in crawl.log)
        crawl.kill()
        lose_power(crawl.jobdir, crawl.journal, Loss.CUT, random.Random(0))
        head = msgspec.json.decode((crawl.jobdir / "job.json").read_bytes(), type=JobHead)
        assert head.scope == ScopeRules(max_depth=1)


def test_a_url_that_has_left_redis_survives_a_power_loss(tmp_path: Path) -> None:
    """Nothing else syncs meanwhile: the next commit would come in a minute."""
    settings = {
        "KROWL_NODE_ID": "a",
        "KROWL_DELAY_MIN": 30,
        "KROWL_DELAY_MAX": 60,
        "KROWL_COMMIT_INTERVAL": 60,
    }
    with (
        redis_server(tmp_path / "redis") as server,
        Redis.from_url(server.url) as client,
        supervisor_register(tmp_path) as register,
        MockWeb(spec=[{"path": "^/", "body": "a page"}]) as web,
    ):
        found(register, "krowlspider")
        urls = [web.url("127.0.0.1", f"/pushed/{number}") for number in range(900)]
        settings |= {"KROWL_CONSUL": register.url, "REDIS_URL": server.url}
        crawl = crawl_of(web, tmp_path, urls[:1], settings=settings).start()
        crawl.wait_until(lambda: len(web.log()) > 0)
        client.lpush("broad:start_urls", *urls)
        crawl.wait_until(lambda: not client.llen("broad:start_urls"))
        crawl.kill()
        left = lose(crawl, Loss.CUT, random.Random(0))
        assert {left.hasher.key(url) for url in urls} <= set(left.queued)
